"""Tests that a URL selects a store, and that the error for an unknown one lists the known ones."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.json_files import FilesStore
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.sessions.store.store_url import LOGS, SCHEMES, open_store

KEY = SessionKey("local", "s")


@pytest.mark.parametrize(
    ("url", "kind", "file"),
    [("sqlite:{}/a.db", SqliteStore, "a.db"), ("files:{}/a", FilesStore, "a"), ("memory:", MemoryStore, "")],
)
async def test_a_store_is_where_its_url_says(tmp_path: Path, url: str, kind: type, file: str) -> None:
    store = open_store(url.format(tmp_path))
    assert type(store) is kind
    assert list(tmp_path.iterdir()) == [], "nothing is created before the first use"
    await store.create(KEY)
    assert (tmp_path / file).exists()
    await store.aclose()


async def test_a_path_is_relative_to_the_current_directory_and_may_begin_with_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for url, file in (("sqlite:chats.db", "chats.db"), ("sqlite:~/chats.db", "home/chats.db")):
        store = open_store(url)
        await store.create(KEY)
        await store.aclose()
        assert (tmp_path / file).is_file()


@pytest.mark.parametrize("scheme", ["mysql", "mongodb+tcp", "file"])
def test_a_store_that_this_version_does_not_have_is_named_without_its_password(scheme: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"no store for {re.escape(scheme)}: URLs") as raised:
        open_store(f"{scheme}://ann:secret@host/chats")
    assert "secret" not in f"{raised.value}{raised.value.hint}{raised.value.details}"
    assert all(f"{name}:" in raised.value.hint for name in {*SCHEMES, *LOGS})


@pytest.mark.parametrize(
    ("scheme", "library", "extra"),
    [
        ("postgresql", "psycopg", "postgres"),
        ("redis", "redis", "redis"),
        ("rediss", "redis", "redis"),
        ("mongodb", "pymongo", "mongodb"),
        ("mongodb+srv", "pymongo", "mongodb"),
        ("dynamodb", "botocore", "dynamodb"),
        ("supabase", "postgrest", "supabase"),
    ],
)
def test_a_missing_library_is_named_with_the_extra_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, scheme: str, library: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidRequest, match=library) as raised:
        open_store(f"{scheme}://ann:secret@host/1")
    assert f"agent-kernel[{extra}]" in raised.value.hint
    assert "secret" not in f"{raised.value}{raised.value.hint}"


@pytest.mark.parametrize("url", ["", "chats.db", "sqlite", "sqlite:", "files:", "sqlite://host/chats.db", "memory:a"])
def test_a_url_that_is_incomplete_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        open_store(url)
    assert raised.value.hint
