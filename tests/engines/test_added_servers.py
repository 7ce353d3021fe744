"""The stored list of model servers that users added."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backends import fail

from agent_kernel.core.errors import Conflict, StoreCorrupt
from agent_kernel.core.settings import Settings
from agent_kernel.engines.added_servers import AddedServers
from agent_kernel.engines.openai_api.api_keys import key_of
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.registry import NamedEngines
from agent_kernel.engines.scripted import ScriptedEngine
from tests.engines.openai_api.test_api_keys import Drawer

HERE = Endpoint("http://127.0.0.1:9/v1", "m")


@pytest.fixture
def drawer() -> Iterator[Drawer]:
    before = keyring.get_keyring()
    keyring.set_keyring(drawer := Drawer())
    yield drawer
    keyring.set_keyring(before)


def test_a_key_goes_into_the_keyring_where_there_is_one_and_leaves_it_with_the_server(
    tmp_path: Path, drawer: Drawer
) -> None:
    servers = AddedServers(tmp_path)
    saved = servers.save("mine", "ada", HERE, "sk-1")
    assert (saved.key_place, key_of(saved.endpoint)) == ("keyring", "sk-1")
    assert not (tmp_path / "model_server_keys").exists()
    assert "sk-1" not in (tmp_path / "model_servers.json").read_text()
    assert AddedServers(tmp_path).load() == [saved]
    assert servers.remove("mine", "ada")
    service, _, user = saved.endpoint.api_key_keyring.partition("/")
    assert keyring.get_password(service, user) is None


@pytest.mark.usefixtures("drawer")
def test_a_keyring_that_fails_leaves_the_key_in_a_file(tmp_path: Path) -> None:
    keyring.set_keyring(fail.Keyring())  # type: ignore[no-untyped-call]  # of keyring
    saved = AddedServers(tmp_path).save("mine", "ada", HERE, "sk-1")
    assert (saved.key_place, key_of(saved.endpoint)) == ("file", "sk-1")


@pytest.mark.usefixtures("drawer")
def test_another_user_neither_sees_nor_replaces_a_server(tmp_path: Path) -> None:
    servers = AddedServers(tmp_path)
    saved = servers.save("mine", "ada", HERE, None)
    with pytest.raises(Conflict):
        servers.save("mine", "bob", HERE, None)
    assert not servers.remove("mine", "bob")
    engines = NamedEngines(Settings(engine="scripted"), ScriptedEngine([]), lambda settings: ScriptedEngine([]))
    engines.add(saved)
    assert (engines.servers_of("ada"), engines.servers_of("bob")) == ([saved], [])
    assert (engines.hides("mine", "bob"), engines.hides("mine", "ada")) == (True, False)


def test_a_row_that_makes_no_sense_is_left_out_and_the_others_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = {"a": {"namespace": "ada", "url": "http://127.0.0.1:9/v1"}, "b": {"url": 7}, "c": 3}
    (tmp_path / "model_servers.json").write_text(json.dumps(rows))
    with caplog.at_level(logging.WARNING):
        assert [server.name for server in AddedServers(tmp_path).load()] == ["a"]
    assert "b" in caplog.text


def test_the_key_of_a_test_that_was_killed_is_removed_at_the_next_start(tmp_path: Path) -> None:
    servers = AddedServers(tmp_path)
    tried = servers.trying(HERE, "sk-1")
    with_key = tried.__enter__()  # and then the process was killed
    assert key_of(with_key) == "sk-1"
    AddedServers(tmp_path).load()
    assert key_of(with_key) == "sk-1"  # another server may be testing right now
    os.utime(with_key.api_key_file, (1, 1))
    AddedServers(tmp_path).load()
    assert list((tmp_path / "model_server_keys").iterdir()) == []


@pytest.mark.usefixtures("drawer")
def test_a_change_keeps_the_servers_that_this_version_cannot_read(tmp_path: Path) -> None:
    newer = {"newer": {"namespace": "ada", "kind": "tunnel"}}
    (tmp_path / "model_servers.json").write_text(json.dumps(newer))
    servers = AddedServers(tmp_path)
    servers.save("mine", "ada", HERE, None)
    with pytest.raises(Conflict):
        servers.save("newer", "ada", HERE, None)
    assert servers.remove("mine", "ada")
    assert json.loads((tmp_path / "model_servers.json").read_text()) == {
        "newer": {"namespace": "ada", "kind": "tunnel"}
    }


@pytest.mark.parametrize("text", ["{ torn", "[]"])
def test_a_list_that_cannot_be_read_is_not_overwritten(tmp_path: Path, text: str) -> None:
    (tmp_path / "model_servers.json").write_text(text)
    servers = AddedServers(tmp_path)
    assert servers.load() == []
    with pytest.raises(StoreCorrupt, match="cannot be read"):
        servers.save("mine", "ada", HERE, None)
    with pytest.raises(StoreCorrupt, match="cannot be read"):
        servers.remove("mine", "ada")
    assert (tmp_path / "model_servers.json").read_text() == text
