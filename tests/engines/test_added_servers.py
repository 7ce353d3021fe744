"""The stored list of model servers that users added."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import keyring
import pytest
from filelock import FileLock
from keyring.backends import fail

from agent_kernel.core.errors import Conflict, StoreCorrupt
from agent_kernel.core.settings import Settings
from agent_kernel.engines import added_servers
from agent_kernel.engines.added_servers import AddedServers
from agent_kernel.engines.openai_api.api_keys import key_of
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.registry import NamedEngines
from agent_kernel.engines.scripted import ScriptedEngine
from tests.engines.conftest import Drawer

HERE = Endpoint("http://127.0.0.1:9/v1", "m")


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


ADDER = """
import sys
from pathlib import Path
from agent_kernel.engines.added_servers import AddedServers
from agent_kernel.engines.openai_api.endpoint import Endpoint

servers = AddedServers(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(12):
    servers.save(f"{sys.argv[2]}{number}", "ada", Endpoint("http://127.0.0.1:9/v1", "m"), None)
    if number % 2:
        assert servers.remove(f"{sys.argv[2]}{number}", "ada")
"""


def test_processes_that_change_the_list_at_once_lose_no_change(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ADDER, str(tmp_path)]
    processes = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in "abc"
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    expected = {f"{name}{number}" for name in "abc" for number in range(0, 12, 2)}
    assert {server.name for server in AddedServers(tmp_path).load()} == expected


@pytest.mark.usefixtures("drawer")
def test_a_change_is_refused_while_another_process_does_not_finish_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(added_servers, "LOCK_S", 0.05)
    servers = AddedServers(tmp_path)
    with FileLock(tmp_path / "model_servers.json.lock"), pytest.raises(Conflict, match="Another Jupyter server"):
        servers.save("mine", "ada", HERE, "sk-1")
    assert servers.load() == []
    assert servers.save("mine", "ada", HERE, "sk-1").name == "mine"
