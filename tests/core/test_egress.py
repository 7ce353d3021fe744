from __future__ import annotations

import pytest

from agent_kernel.core.egress import EgressPolicy, host_of, is_here
from agent_kernel.core.errors import Forbidden, LocalOnly

HERE = (
    "http://localhost:8000/v1",
    "http://127.0.0.1",
    "https://127.9.9.9:1/x",
    "http://[::1]:80/",
    "http://models.localhost/",
    "localhost:11434",
    "http://LOCALHOST./",
)
ELSEWHERE = (
    "https://example.org",
    "http://10.0.0.1",
    "http://localhost.example.org",
    "http://127.0.0.1.example.org/",
    "http://localhost@example.org/",
    "http://example.org#@localhost/",
    "http://0.0.0.0/",
    "http://[::ffff:8.8.8.8]/",
    "http://127.1/",
    "http://[::1",
    "",
    "file",
)


@pytest.mark.parametrize("url", HERE)
def test_this_machine_is_no_exit(url: str) -> None:
    assert is_here(url)
    EgressPolicy(local_only=True).check(url, "a model")


@pytest.mark.parametrize("url", ELSEWHERE)
def test_with_local_only_nothing_goes_elsewhere(url: str) -> None:
    with pytest.raises(LocalOnly, match="local_only is set: the web search was refused, because it would connect to"):
        EgressPolicy(local_only=True).check(url, "the web search")


@pytest.mark.parametrize("url", [*HERE, *ELSEWHERE])
def test_without_it_everything_may(url: str) -> None:
    EgressPolicy().check(url, "the web search")


def test_a_refusal_names_the_host_and_no_password() -> None:
    with pytest.raises(Forbidden) as refused:
        EgressPolicy(local_only=True).check("https://me:secret@example.org:8443/x?key=secret", "a page")
    assert refused.value.code == "local_only"
    assert refused.value.details == {"host": "example.org", "purpose": "a page"}
    assert "secret" not in str(refused.value)


def test_a_host_is_read_from_urls_and_from_bare_hosts() -> None:
    assert [host_of(url) for url in ("https://A.example:1/", "b.example:2", "[::1]:3", "")] == [
        "a.example",
        "b.example",
        "::1",
        "",
    ]
