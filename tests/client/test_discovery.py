from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent_kernel.client.discovery import find
from agent_kernel.core.errors import ServerUnreachable


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AGENT_KERNEL_URL", "AGENT_KERNEL_TOKEN", "AGENT_KERNEL_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def wrote(runtime: Path, name: str, changed: int, **facts: object) -> None:
    file = runtime / f"jpserver-{name}.json"
    file.write_text(json.dumps(facts))
    os.utime(file, (changed, changed))


def test_a_url_is_completed_to_the_routes(runtime: Path) -> None:
    for url in ("http://host:1/base", "http://host:1/base/", "http://host:1/base/agent/v1", "http://host:1/base/v1"):
        assert find(url, "t").url == "http://host:1/base/agent/v1/"


def test_the_newest_server_that_lives_is_taken(runtime: Path) -> None:
    wrote(runtime, "1", 1, url="http://127.0.0.1:1/", token="old", pid=os.getpid())
    wrote(runtime, "2", 2, url="http://127.0.0.1:2/", token="new", pid=os.getpid())
    wrote(runtime, "3", 3, url="http://127.0.0.1:3/", token="dead", pid=2**22 + 12345)
    (runtime / "jpserver-4.json").write_text("{")
    found = find(None, None)
    assert (found.url, found.headers["Authorization"]) == ("http://127.0.0.1:2/agent/v1/", "token new")


def test_what_is_named_wins_over_what_is_found(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote(runtime, "1", 1, url="http://127.0.0.1:1/", token="found", pid=os.getpid())
    monkeypatch.setenv("AGENT_KERNEL_URL", "https://hub.example/user/me")
    monkeypatch.setenv("AGENT_KERNEL_TOKEN", "said")
    assert find(None, None).headers["Authorization"] == "token said"
    assert find(None, "own").headers["Authorization"] == "token own"
    assert find("http://other/", None).url == "http://other/agent/v1/"


def test_the_token_of_one_server_is_not_sent_to_another(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KERNEL_TOKEN", "said")
    assert find("http://any/", None).headers["Authorization"] == "token said"
    monkeypatch.setenv("AGENT_KERNEL_URL", "https://hub.example/user/me/")
    assert find("http://any/", None).headers == {}
    assert find("https://hub.example/user/me", None).headers["Authorization"] == "token said"


def test_a_program_that_a_kernel_starts_has_the_token_that_the_server_wrote(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel keeps its own credential to itself."""
    wrote(runtime, "1", 1, url="http://127.0.0.1:1/", token="one", pid=os.getpid())
    wrote(runtime, "2", 2, url="http://127.0.0.1:2/", token="two", pid=os.getpid())
    monkeypatch.setenv("AGENT_KERNEL_URL", "http://127.0.0.1:1/")
    assert find(None, None).headers["Authorization"] == "token one"
    assert find("http://127.0.0.1:2/", None).headers["Authorization"] == "token two"
    assert find("http://127.0.0.1:3/", None).headers == {}


def test_no_server_at_all_is_told_with_what_to_do(runtime: Path) -> None:
    with pytest.raises(ServerUnreachable, match="AGENT_KERNEL_URL"):
        find(None, None)
