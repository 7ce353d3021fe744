"""Tests notebooks that are saved, renamed, copied and deleted through Jupyter, and how their conversations follow."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.jupyter_ext.conftest import HELLO, ServerFactory
from tests.server import AgentServer, followed, start_turn
from tests.waiting import until

SETTLE_S = 60.0


async def converse(server: AgentServer, client: httpx.AsyncClient, notebook: str) -> str:
    """Run a turn of the notebook's kernel and wait until its sidecar is written. Return the session."""
    kernel = await server.start_kernel(notebook)
    started = await start_turn(client, "hello", kernel=kernel)
    await followed(client, started["turn"])
    await until(sidecar(server, notebook).exists)
    return str(started["session"])


def sidecar(server: AgentServer, notebook: str) -> Path:
    return server.root / f"{notebook.removesuffix('.ipynb')}.agent.json"


async def bound(client: httpx.AsyncClient, path: str) -> str | None:
    session = (await client.get("agent/v1/binding", params={"path": path})).json()["session"]
    return session["id"] if session else None


async def test_a_rename_moves_the_binding_and_the_sidecar(server: AgentServer, api: httpx.AsyncClient) -> None:
    session = await converse(server, api, "old.ipynb")
    (await api.patch("api/contents/old.ipynb", json={"path": "new.ipynb"})).raise_for_status()
    await until(sidecar(server, "new.ipynb").exists)
    assert not sidecar(server, "old.ipynb").exists()
    assert await bound(api, "new.ipynb") == session
    assert await bound(api, "old.ipynb") is None
    assert (await api.get(f"agent/v1/sessions/{session}")).json()["title"] == "new"
    kernel = (await api.get("api/sessions")).json()[0]["kernel"]["id"]
    again = await start_turn(api, "hello", kernel=kernel)
    assert (again["session"], again["notebook"]) == (session, "new.ipynb"), "before the client has told Jupyter"


async def test_a_renamed_directory_takes_bindings_and_sidecars_along(
    server: AgentServer, api: httpx.AsyncClient
) -> None:
    (await api.put("api/contents/folder", json={"type": "directory"})).raise_for_status()
    session = await converse(server, api, "folder/inside.ipynb")
    (await api.patch("api/contents/folder", json={"path": "moved"})).raise_for_status()
    assert await bound(api, "moved/inside.ipynb") == session
    assert sidecar(server, "moved/inside.ipynb").exists()


async def test_a_copy_goes_on_with_a_copy_of_the_conversation(server: AgentServer, api: httpx.AsyncClient) -> None:
    session = await converse(server, api, "original.ipynb")
    reply = await api.post("api/contents", json={"copy_from": "original.ipynb"})
    copy = reply.json()["path"]
    async with asyncio.timeout(SETTLE_S):
        while (other := await bound(api, copy)) is None:
            await asyncio.sleep(0.05)
    assert other != session
    kept, copied = [(await api.get(f"agent/v1/sessions/{id}/items")).json()["items"] for id in (session, other)]
    assert [item["message"] for item in copied] == [item["message"] for item in kept]
    assert {item["turn"] for item in copied}.isdisjoint(item["turn"] for item in kept)
    kernel = await server.start_kernel(copy)
    assert (await start_turn(api, "hello", kernel=kernel))["session"] == other
    assert await bound(api, "original.ipynb") == session


async def test_a_copy_made_outside_jupyter_goes_on_with_a_copy_and_a_move_with_the_conversation_itself(
    server: AgentServer,
    api: httpx.AsyncClient,
) -> None:
    session = await converse(server, api, "here.ipynb")
    for suffix in (".ipynb", ".agent.json"):
        shutil.copy(server.root / f"here{suffix}", server.root / f"twin{suffix}")
    (note,) = (await api.get("agent/v1/binding", params={"path": "twin.ipynb"})).json()["notes"]
    assert "a copy of the conversation" in note
    twin = await start_turn(api, "hello", kernel=await server.start_kernel("twin.ipynb"))
    await followed(api, twin["turn"])
    assert twin["session"] != session
    kept = (await api.get(f"agent/v1/sessions/{session}/items")).json()["items"]
    copied = (await api.get(f"agent/v1/sessions/{twin['session']}/items")).json()["items"]
    assert [item["message"] for item in copied][: len(kept)] == [item["message"] for item in kept]
    for suffix in (".ipynb", ".agent.json"):
        os.rename(server.root / f"here{suffix}", server.root / f"there{suffix}")
    moved = await start_turn(api, "hello", kernel=await server.start_kernel("there.ipynb"))
    await followed(api, moved["turn"])
    assert moved["session"] == session


async def test_a_sidecar_that_only_names_a_session_does_not_get_it(server: AgentServer, api: httpx.AsyncClient) -> None:
    session = await converse(server, api, "mine.ipynb")
    document = json.loads(sidecar(server, "mine.ipynb").read_bytes())
    document["messages"][0]["content"] = "words that nobody said"
    os.unlink(server.root / "mine.ipynb")
    sidecar(server, "thief.ipynb").write_text(json.dumps(document))
    (server.root / "thief.ipynb").write_bytes(b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    kernel = await server.start_kernel("thief.ipynb")
    assert (await start_turn(api, "hello", kernel=kernel))["session"] != session


async def test_a_deleted_notebook_takes_its_sidecar_along_and_the_next_of_that_name_begins_anew(
    server: AgentServer,
    api: httpx.AsyncClient,
) -> None:
    session = await converse(server, api, "gone.ipynb")
    (await api.delete("api/contents/gone.ipynb")).raise_for_status()
    await until(lambda: not sidecar(server, "gone.ipynb").exists())
    await server.save_notebook("gone.ipynb")
    assert await bound(api, "gone.ipynb") is None
    assert (await api.get(f"agent/v1/sessions/{session}")).json()["notebooks"] == []


async def test_saving_writes_the_sidecar_of_a_session_that_was_bound_later(
    server: AgentServer, api: httpx.AsyncClient
) -> None:
    started = await start_turn(api, "hello", session="by hand")
    await followed(api, started["turn"])
    await server.save_notebook("late.ipynb")
    assert (await api.put("agent/v1/binding?path=late.ipynb", json={"session": "by hand"})).status_code == 200
    await server.save_notebook("late.ipynb")
    await until(sidecar(server, "late.ipynb").exists)
    document = json.loads(sidecar(server, "late.ipynb").read_bytes())
    assert document["agent_kernel"]["session"]["id"] == "by hand"
    assert [message["content"] for message in document["messages"]] == ["hello", "Hello."]


async def test_a_binding_names_a_notebook_below_the_root(api: httpx.AsyncClient) -> None:
    for path in ("../outside.ipynb", "notes.txt", "kernel:1"):
        reply = await api.put("agent/v1/binding", params={"path": path}, json={"session": "s"})
        assert reply.status_code == 400, path


async def test_a_full_disk_costs_the_sidecar_only_and_the_next_save_brings_it(agent_server: ServerFactory) -> None:
    server = await agent_server([{"text": "x" * 30_000}, HELLO])
    disk = server.root / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        async with server.client() as client:
            await server.save_notebook("disk/a.ipynb")
            (disk / "filler").write_bytes(b"x" * 40 * 1024)
            kernel = await server.start_kernel("disk/a.ipynb")
            first = await start_turn(client, "hello", kernel=kernel)
            assert (await followed(client, first["turn"]))[-1]["data"]["state"] == "committed"
            await until(lambda: "was not saved" in server.log.read_text())
            assert sorted(path.name for path in disk.glob("[!.]*")) == ["a.ipynb", "filler"]
            assert list(disk.glob(".*agent*")) == []
            (disk / "filler").unlink()
            second = await start_turn(client, "again", kernel=kernel)
            notices = [event for event in await followed(client, second["turn"]) if event["type"] == "notice"]
            assert "No space left" in notices[0]["data"]["text"]
            await until(sidecar(server, "disk/a.ipynb").exists)
            third = await followed(client, (await start_turn(client, "more", kernel=kernel))["turn"])
            assert "notice" not in [event["type"] for event in third]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


async def test_without_titles_the_conversation_of_a_notebook_has_none(agent_server: ServerFactory) -> None:
    server = await agent_server(traits={"titles": "off"})
    async with server.client() as client:
        session = await converse(server, client, "old.ipynb")
        assert (await client.get(f"agent/v1/sessions/{session}")).json()["title"] == ""
        (await client.patch("api/contents/old.ipynb", json={"path": "new.ipynb"})).raise_for_status()
        copied = (await client.post("api/contents", json={"copy_from": "new.ipynb"})).json()["path"]
        for name in ("new.ipynb", copied):
            assert (await client.get(f"agent/v1/sessions/{await bound(client, name)}")).json()["title"] == ""
