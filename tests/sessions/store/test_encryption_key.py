"""Tests that the key of an encrypted store is found where its URL says, and is never shown."""

from __future__ import annotations

import base64
from pathlib import Path

import keyring
import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.sessions.store.store_url import open_store, read_key

KEY = bytes(range(32))
TEXT = base64.b64encode(KEY).decode()


def test_a_key_is_in_a_file_or_the_environment_or_the_keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(f"{TEXT}\n")
    monkeypatch.setattr(keyring, "get_password", lambda service, user: {"agent/ann": TEXT}[f"{service}/{user}"])
    assert read_key(str(tmp_path / "key")) == KEY
    assert read_key("env:CHATS", {"CHATS": TEXT}) == KEY
    assert read_key("keyring:agent/ann") == KEY


@pytest.mark.parametrize("text", ["", "secret-word", base64.b64encode(b"short").decode(), f"{TEXT}{TEXT}"])
def test_what_is_no_key_is_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    for place in (str(tmp_path / "key"), "env:CHATS"):
        with pytest.raises(InvalidRequest, match="no key of 32 bytes") as raised:
            read_key(place, {"CHATS": text})
        assert not text or text not in f"{raised.value}{raised.value.hint}"


def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_key(str(tmp_path / "nothing"))
    with pytest.raises(InvalidRequest, match="the environment variable NOTHING"):
        read_key("env:NOTHING", {})


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
def test_a_store_of_one_machine_has_no_key(scheme: str) -> None:
    with pytest.raises(InvalidRequest, match="not encrypted by agent-kernel"):
        open_store(f"{scheme}:chats#key=env:CHATS")
