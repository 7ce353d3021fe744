"""Tests model servers that a user adds: tested, saved with a key, used by a turn, removed. No response contains the
key.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from tests.engines.openai_api.wire_server import HELLO, WireServer
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, followed, start_turn, text_of

KEY = "sk-secret-of-ada-123"
NO_KEYRING = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
SCRIPT: list[dict[str, Any]] = [{"text": "own", "loop": True}]


def files_with_the_key(server: AgentServer) -> list[Path]:
    files = [path for path in server.directory.rglob("*") if path.is_file()]
    return [path for path in files if KEY.encode() in path.read_bytes()]


async def test_a_server_is_saved_with_its_key_and_serves_turns_also_after_a_restart(
    agent_server: ServerFactory,
) -> None:
    async with WireServer([HELLO]) as near:
        server = await agent_server(SCRIPT, env=NO_KEYRING)
        async with server.client() as person:
            body = {"url": near.url, "model": "m", "key": KEY}
            saved = await person.put("agent/v1/model_servers/mine", json=body)
            assert saved.status_code == 200
            expected = {"name": "mine", "url": near.url, "model": "m", "local": True, "host": near.host, "key": "file"}
            assert saved.json() == expected
            listed = await person.get("agent/v1/model_servers")
            assert listed.json() == {"servers": [expected]}
            assert KEY not in saved.text + listed.text
            own = await start_turn(person, "x")
            assert text_of(await followed(person, own["turn"])) == "own"  # nothing is chosen silently
            assert near.asked == []
        await server.stop()
        await server.start()
        async with server.client() as person:
            turn = await start_turn(person, "x", model="mine")
            events = await followed(person, turn["turn"])
            assert text_of(events) == "Hello."
            assert near.asked[-1].headers["authorization"] == f"Bearer {KEY}"
            started = next(event["data"] for event in events if event["type"] == "turn.started")
            assert started["host"] == near.host
            assert KEY not in str(events)
            (file,) = files_with_the_key(server)
            assert (file.parent.name, stat.S_IMODE(file.stat().st_mode)) == ("model_server_keys", 0o600)
            assert (await person.delete("agent/v1/model_servers/mine")).json() == {"removed": True}
            assert (await person.delete("agent/v1/model_servers/mine")).status_code == 404
            refused = await person.post("agent/v1/turns", json={"prompt": "x", "model": "mine"})
            assert refused.status_code == 404
        assert files_with_the_key(server) == []


async def test_a_test_reports_what_the_doctor_does_and_keeps_no_key(agent_server: ServerFactory) -> None:
    async with WireServer([HELLO], models=[{"id": "a"}, {"id": "b"}]) as near:
        server = await agent_server(SCRIPT, env=NO_KEYRING)
        async with server.client() as person:
            choice = (await person.post("agent/v1/model_servers/probe", json={"url": near.url, "key": KEY})).json()
            assert (choice["models"], choice["findings"]) == (["a", "b"], [])
            assert near.asked[-1].headers["authorization"] == f"Bearer {KEY}"
            body = {"url": near.url, "model": "a", "key": KEY}
            found = await person.post("agent/v1/model_servers/probe", json=body)
            report = found.json()
            assert (report["model"], report["host"], report["local"]) == ("a", near.host, True)
            states = {row["feature"]: row["state"] for row in report["findings"]}
            assert (states["answers"], states["tools"], report["missing"]) == ("ok", "lacks", ["tools"])
            assert KEY not in found.text
            assert (await person.get("agent/v1/model_servers")).json() == {"servers": []}
        assert files_with_the_key(server) == []


async def test_a_server_that_does_not_answer_is_a_report_and_no_error(agent_server: ServerFactory) -> None:
    async with (await agent_server(SCRIPT, env=NO_KEYRING)).client() as person:
        body = {"url": "http://127.0.0.1:9/v1", "model": "m", "key": KEY}
        found = (await person.post("agent/v1/model_servers/probe", json=body)).json()
        assert found["missing"] == ["answers"]
        assert "127.0.0.1:9" in found["problem"]


async def test_a_key_is_never_sent_to_another_address_than_it_was_entered_for(agent_server: ServerFactory) -> None:
    async with WireServer([HELLO]) as first, WireServer([HELLO]) as second:
        server = await agent_server(SCRIPT, env=NO_KEYRING)
        async with server.client() as person:
            path = "agent/v1/model_servers/mine"
            await person.put(path, json={"url": first.url, "model": "m", "key": KEY})
            renamed = (await person.put(path, json={"url": first.url, "model": "n"})).json()
            assert (renamed["model"], renamed["key"]) == ("n", "file")
            assert (await person.put(path, json={"url": second.url, "model": "m"})).json()["key"] == ""
            turn = await start_turn(person, "x", model="mine")
            assert text_of(await followed(person, turn["turn"])) == "Hello."
        assert all("authorization" not in asked.headers for asked in second.asked)
        assert files_with_the_key(server) == []


async def test_local_only_refuses_a_server_elsewhere_before_anything_is_sent_or_stored(
    agent_server: ServerFactory,
) -> None:
    server = await agent_server(SCRIPT, traits={"local_only": True}, env=NO_KEYRING)
    async with server.client() as person:
        body = {"url": "https://models.example.com/v1", "model": "m", "key": KEY}
        assert (await person.post("agent/v1/model_servers/probe", json=body)).status_code == 403
        assert (await person.put("agent/v1/model_servers/far", json=body)).status_code == 403
        assert (await person.get("agent/v1/model_servers")).json() == {"servers": []}
    assert files_with_the_key(server) == []


async def test_a_wrong_name_or_address_is_refused_without_repeating_the_key(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT, env=NO_KEYRING)
    async with server.client() as person:
        for name, url in (
            ("pull", "http://127.0.0.1:9/v1"),
            ("coder-0.5b", "http://127.0.0.1:9/v1"),
            ("mine", "file:///etc/passwd"),
            ("mine", f"http://ada:{KEY}@127.0.0.1:9/v1"),
        ):
            refused = await person.put(f"agent/v1/model_servers/{name}", json={"url": url, "key": KEY})
            assert refused.status_code == 400
            assert KEY not in refused.text
    assert files_with_the_key(server) == []


async def test_code_in_a_kernel_can_neither_add_a_server_nor_see_the_list(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT, env=NO_KEYRING)
    token = await server.kernel_token(await server.start_kernel("a.ipynb"))
    async with server.kernel_client(token) as kernel:
        body = {"url": "http://127.0.0.1:9/v1", "key": KEY}
        assert (await kernel.put("agent/v1/model_servers/mine", json=body)).status_code == 403
        assert (await kernel.post("agent/v1/model_servers/probe", json=body)).status_code == 403
        assert (await kernel.get("agent/v1/model_servers")).status_code == 403
