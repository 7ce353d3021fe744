"""Tests files over HTTP: uploaded, listed, read in parts, deleted, and visible only to callers with access."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_kernel.core.files import File
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.jupyter_ext.conftest import ServerFactory
from tests.server import AgentServer, followed, start_turn
from tests.waiting import until

TEXT = b"hello, file\n" * 3


async def send_file(
    client: httpx.AsyncClient, data: bytes = TEXT, name: str = "a.txt", **fields: str
) -> httpx.Response:
    form = {"purpose": "user_data", **fields}
    return await client.post("agent/v1/files", files={"file": (name, data)}, data=form)


async def file_ids(client: httpx.AsyncClient, **query: str) -> list[str]:
    return [file["id"] for file in (await client.get("agent/v1/files", params=query)).json()["data"]]


def incoming_files(server: AgentServer) -> list[Path]:
    return list((server.directory / "data" / "incoming").glob("*"))


async def test_a_file_is_brought_described_read_and_removed(server: AgentServer) -> None:
    async with server.client() as client:
        reply = await send_file(client, session="brought")
        made = reply.json()
        assert reply.status_code == 200
        assert {name: made[name] for name in ("object", "bytes", "filename", "purpose", "format", "mime_type")} == {
            "object": "file",
            "bytes": len(TEXT),
            "filename": "a.txt",
            "purpose": "user_data",
            "format": "txt",
            "mime_type": "text/plain",
        }
        assert made["source"] == {"tool": "user_upload", "round": 0, "turn": 0}
        at = f"agent/v1/files/{made['id']}"
        assert (await client.get(at)).json() == made
        assert await file_ids(client, session="brought") == [made["id"]]
        assert made["id"] in await file_ids(client)
        content = await client.get(f"{at}/content")
        assert content.content == TEXT
        assert content.headers["Content-Length"] == str(len(TEXT))
        assert content.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert content.headers["Content-Security-Policy"].startswith("sandbox")
        container = (await client.get("agent/v1/containers/brought/files")).json()["data"]
        assert [(file["id"], file["object"]) for file in container] == [(made["id"], "container.file")]
        in_container = await client.get(f"agent/v1/containers/brought/files/{made['id']}/content")
        assert in_container.content == TEXT
        assert (await client.delete(at)).json() == {"id": made["id"], "object": "file", "deleted": True}
        for path in (at, f"{at}/content"):
            gone = await client.get(path)
            assert (gone.status_code, gone.json()["error"]["code"]) == (404, "file_not_found")
        assert (await client.delete(at)).status_code == 404
    assert incoming_files(server) == []


async def test_parts_of_a_file_are_sent_as_asked_for(api: httpx.AsyncClient) -> None:
    data = os.urandom(1 << 20)
    at = f"agent/v1/files/{(await send_file(api, data, 'a.bin')).json()['id']}/content"
    whole = await api.get(at)
    assert whole.content == data
    part = await api.get(at, headers={"Range": "bytes=100-70000"})
    assert (part.status_code, part.content) == (206, data[100:70001])
    assert part.headers["Content-Range"] == f"bytes 100-70000/{len(data)}"
    stale = await api.get(at, headers={"Range": "bytes=100-", "If-Range": '"other"'})
    assert (stale.status_code, len(stale.content)) == (200, len(data))
    beyond = await api.get(at, headers={"Range": f"bytes={len(data)}-"})
    assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, f"bytes */{len(data)}")
    same = await api.get(at, headers={"If-None-Match": whole.headers["ETag"]})
    assert (same.status_code, same.content) == (304, b"")


async def test_what_is_wrong_with_an_upload_is_said_and_leaves_nothing(agent_server: ServerFactory) -> None:
    server = await agent_server(traits={"upload_mb": 1})
    async with server.client() as client:
        large = await send_file(client, bytes((1 << 20) + 1))
        assert (large.status_code, large.json()["error"]["code"]) == (413, "file_too_large")
        huge = await send_file(client, bytes(8 << 20))
        assert (huge.status_code, huge.json()["error"]["code"]) == (413, "file_too_large")
        assert (await send_file(client, bytes(1 << 20))).status_code == 200
        for request in (
            {"files": {"file": ("a", b"x")}},
            {"data": {"purpose": "p"}},
            {"json": {"file": "a"}},
            {"files": {"file": ("a", b"x")}, "data": {"purpose": " "}},
            {"files": {"file": ("a", b"x")}, "data": {"purpose": "whatever"}},
            {"files": {"file": ("a", b"x")}, "data": {"purpose": "user_data", "expires_after[seconds]": "3600"}},
        ):
            reply = await client.post("agent/v1/files", **request)
            assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_request"), request
        empty = await send_file(client, b"")
        assert (await client.get(f"agent/v1/files/{empty.json()['id']}/content")).content == b""
    async with server.client("wrong") as stranger:
        assert (await send_file(stranger, bytes(1000))).status_code == 401
    assert incoming_files(server) == []


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(server: AgentServer) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + bytes(3 << 20)
        await until(lambda: incoming_files(server))
        raise ConnectionError("the client leaves")

    async with server.client() as client:
        with pytest.raises(ConnectionError):
            await client.post(
                "agent/v1/files", content=body(), headers={"Content-Type": "multipart/form-data; boundary=b"}
            )
    await until(lambda: not incoming_files(server), 20)


async def test_a_notebook_sees_files_of_its_own_sessions_only(server: AgentServer, api: httpx.AsyncClient) -> None:
    token = await server.kernel_token(await server.start_kernel("files.ipynb"))
    theirs = (await send_file(api, session="a user's files")).json()
    async with server.kernel_client(token) as kernel:
        mine = (await send_file(kernel, b"mine")).json()
        assert await file_ids(kernel) == [mine["id"]]
        assert (await kernel.get(f"agent/v1/files/{theirs['id']}")).status_code == 404
        assert (await kernel.get(f"agent/v1/files/{mine['id']}/content")).content == b"mine"
        assert (await send_file(kernel, session="a user's files")).status_code == 403
        refused = await kernel.post("agent/v1/turns", json={"prompt": "read", "inputs": [theirs["id"]]})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "file_not_found")
    assert {theirs["id"], mine["id"]} <= set(await file_ids(api))


async def test_a_file_without_a_session_is_attached_to_the_turn_that_names_it(api: httpx.AsyncClient) -> None:
    file = (await send_file(api)).json()
    assert file["session"] == "uploads"
    turn = await start_turn(api, "look", session="with inputs", inputs=[file["id"]])
    await followed(api, turn["turn"])
    assert await file_ids(api, session="with inputs") == [file["id"]]
    await api.delete("agent/v1/sessions/uploads")
    assert (await api.get(f"agent/v1/files/{file['id']}/content")).content == TEXT


async def test_a_turn_that_is_refused_attaches_no_file(api: httpx.AsyncClient) -> None:
    file = (await send_file(api)).json()
    await followed(api, (await start_turn(api, "look", session="refused"))["turn"])
    body = {"prompt": "again", "session": "refused", "inputs": [file["id"]], "replaces": "turn_unknown"}
    assert (await api.post("agent/v1/turns", json=body)).status_code == 404
    assert await file_ids(api, session="refused") == []


async def test_files_are_there_after_a_restart(agent_server: ServerFactory) -> None:
    server = await agent_server()
    async with server.client() as client:
        file = (await send_file(client, bytes(100_000), "a.bin", session="s")).json()
    await server.kill()
    await server.start()
    async with server.client() as client:
        assert (await client.get(f"agent/v1/files/{file['id']}")).json() == file
        assert (await client.get(f"agent/v1/files/{file['id']}/content")).content == bytes(100_000)


async def test_what_was_asked_for_and_not_made_is_a_file_that_says_so(api: httpx.AsyncClient) -> None:
    turn = await start_turn(api, "make it", session="wanting", outputs=[{"name": "deck.pptx"}])
    events: list[Any] = await followed(api, turn["turn"])
    (event,) = [event for event in events if event["type"] == "file.produced"]
    assert event["data"]["file"]["code"] == "not_produced"
    reply = await api.get(f"agent/v1/files/{event['data']['file']['id']}/content")
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "file_not_produced")


async def test_what_code_makes_of_a_file_it_was_given_is_kept_shown_and_told_again(agent_server: ServerFactory) -> None:
    code = "text = open('my_data.csv').read()\nopen('out.csv', 'w').write(text.upper())\nimport os; os.getcwd()"
    call = {"name": "python", "arguments": {"code": code}}
    server = await agent_server([{"text": "", "calls": [call]}, {"text": "Done."}])
    async with server.client() as client:
        file = (await send_file(client, b"a,b\n", "my data.csv")).json()
        turn = await start_turn(client, "upper case", session="s", inputs=[file["id"]], where="sandbox")
        events: list[Any] = await followed(client, turn["turn"])
        (event,) = [event for event in events if event["type"] == "file.produced"]
        made = event["data"]["file"]
        assert (made["name"], made["text"], made["source"]["tool"]) == ("out.csv", "A,B\n", "python")
        (finished,) = [event["data"] for event in events if event["type"] == "call.finished"]
        assert finished["files"] == [made["id"]]
        assert f"- out.csv (text/csv, 4 bytes, id {made['id']})\n    A,B" in finished["text"]
        assert (await client.get(f"agent/v1/files/{made['id']}/content")).content == b"A,B\n"
        assert await file_ids(client, session="s") == [file["id"], made["id"]]
        forked = (await client.post("agent/v1/sessions/s/fork", json={})).json()["id"]
        assert await file_ids(client, session=forked) == [file["id"], made["id"]]
    await server.stop()
    await server.start()
    async with server.client() as client:
        again: list[Any] = await followed(client, turn["turn"])
        assert [event["data"]["file"]["id"] for event in again if event["type"] == "file.produced"] == [made["id"]]
        await client.delete("agent/v1/sessions/s")
        assert (await client.get(f"agent/v1/files/{made['id']}/content")).content == b"A,B\n"
        await client.delete(f"agent/v1/sessions/{forked}")
        assert (await client.get(f"agent/v1/files/{made['id']}/content")).status_code == 404


async def test_a_file_of_the_largest_size_takes_no_memory_of_the_server(
    server: AgentServer, api: httpx.AsyncClient
) -> None:
    def most() -> int:
        status = Path(f"/proc/{server.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    await send_file(api)
    before = most()
    file = (await send_file(api, bytes(64 << 20), "large.bin")).json()
    size = 0
    async with api.stream("GET", f"agent/v1/files/{file['id']}/content") as reply:
        async for chunk in reply.aiter_bytes():
            size += len(chunk)
    assert size == 64 << 20
    assert most() - before < 32 << 20
    await api.delete(f"agent/v1/files/{file['id']}")


async def test_all_files_are_reached_page_by_page_however_many_there_are(agent_server: ServerFactory) -> None:
    server = await agent_server()
    store, key = SqliteStore(server.directory / "data" / "sessions.db"), SessionKey("local", "many")
    await store.create(key)
    digest = hashlib.sha256(b"x").hexdigest()
    kinds = ["rare"] * 3 + ["user_data"] * 1_002
    files = [
        File(f"file_{at}", f"{at}.txt", "text/plain", 1, float(at), purpose=one, hash=digest)
        for at, one in enumerate(kinds)
    ]
    await store.add_files(key, [(file, b"x") for file in files])
    await store.aclose()
    async with server.client() as client:
        assert await file_ids(client, purpose="rare") == ["file_2", "file_1", "file_0"]
        found: list[str] = []
        more, after = True, dict[str, str]()
        while more:
            page = (await client.get("agent/v1/files", params=after)).raise_for_status().json()
            found += [file["id"] for file in page["data"]]
            more, after = page["has_more"], {"after": page["last_id"]}
        assert found == [file.id for file in reversed(files)]
        for at in ("agent/v1/files", "agent/v1/containers/many/files"):
            refused = await client.get(at, params={"after": "file_unknown"})
            assert refused.status_code == 400
            assert "file_unknown" in refused.json()["error"]["message"]
