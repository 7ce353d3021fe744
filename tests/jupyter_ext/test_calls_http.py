"""Tests how calls of a dialect find their conversation: by its id, by its messages, or not at all."""

from __future__ import annotations

import asyncio
import base64
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from agent_kernel.core.session import UNLISTED
from tests.server import AgentServer, Json

SCRIPT = [
    {"when": "slowly", "text": "word " * 20, "deltas": 20, "gate": "go", "loop": True},
    {"when": "set x", "text": "", "calls": [{"name": "python", "arguments": {"code": "x = 41"}}]},
    {"when": "set x", "text": "It is set.", "loop": True},
    {"when": "read x", "text": "", "calls": [{"name": "python", "arguments": {"code": "x + 1"}}]},
    {"when": "read x", "text": "It is 42.", "loop": True},
    {"when": "set y", "text": "", "calls": [{"name": "python", "arguments": {"code": "y = 41; print(y)"}}]},
    {"when": "set y", "text": "It is set.", "loop": True},
    {"text": "Hello.", "loop": True},
]


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


async def ask(server: AgentServer, *messages: Json, model: str = "agent/default", **fields: Any) -> Json:
    async with server.client() as client:
        body = {"model": model, "messages": list(messages), **fields}
        answer = await client.post("agent/v1/chat/completions", json=body)
        found: Json = answer.raise_for_status().json()
        return found


async def gauge(server: AgentServer, name: str) -> float:
    async with server.client() as client:
        metrics = (await client.get("agent/v1/metrics")).raise_for_status().text
    (line,) = re.findall(rf"^\w*{name}(?:{{.*}})? (\S+)$", metrics, re.MULTILINE)
    return float(line)


@asynccontextmanager
async def held_answers(server: AgentServer) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Hold the answers to ``slowly`` at their middle until the block ends. Yield a function that waits until so many
    turns run.
    """
    gate = server.directory / "go"
    gate.unlink(missing_ok=True)

    async def until_running(count: int) -> None:
        async with asyncio.timeout(60):
            while await gauge(server, "turns_running") < count:
                await asyncio.sleep(0.02)

    try:
        yield until_running
    finally:
        gate.touch()


async def session_ids(server: AgentServer) -> set[str]:
    async with server.client() as client:
        sessions = (await client.get("agent/v1/sessions")).raise_for_status().json()["sessions"]
        return {session["id"] for session in sessions}


async def test_a_conversation_that_its_client_carries_goes_on_with_its_variables(server: AgentServer) -> None:
    first = await ask(server, user("set x"))
    said = first["choices"][0]["message"]["content"]
    second = await ask(server, user("set x"), assistant(said), user("read x"))
    assert second["session_id"] == first["session_id"]
    [call] = second["agentic_tool_calls"]
    assert "42" in call["result_content"]
    assert first["session_id"] not in await session_ids(server), "nobody asked for it to be kept"


async def test_another_conversation_or_model_or_instruction_is_another_session(server: AgentServer) -> None:
    said = (user("one"), assistant("Hello."), user("two"))
    first = await ask(server, user("one"))
    sessions = [
        (await ask(server, *said))["session_id"],
        (await ask(server, {"role": "system", "content": "Be brief."}, *said))["session_id"],
        (await ask(server, *said, model="agent/scripted"))["session_id"],
        (await ask(server, user("other"), assistant("Hello."), user("two")))["session_id"],
    ]
    assert sessions[0] == first["session_id"]
    assert len(set(sessions)) >= 3


async def test_a_plain_completion_leaves_no_session(server: AgentServer) -> None:
    before = await session_ids(server)
    answer = await ask(server, user("one"), model="default")
    assert not answer.get("session_id")
    assert await session_ids(server) == before


async def test_who_names_a_session_has_it_in_the_list_and_sends_only_what_is_new(server: AgentServer) -> None:
    await ask(server, user("one"), session_id="named")
    await ask(server, user("two"), session_id="named")
    assert "named" in await session_ids(server)
    async with server.client() as client:
        items = (await client.get("agent/v1/sessions/named/items")).raise_for_status().json()["items"]
    assert [item["message"]["content"] for item in items] == ["one", "Hello.", "two", "Hello."]


async def test_an_unlisted_session_may_be_named_as_long_as_it_is_there(server: AgentServer) -> None:
    first = await ask(server, user("begin"))
    second = await ask(server, user("more"), session_id=first["session_id"])
    assert second["session_id"] == first["session_id"]
    assert first["session_id"] not in await session_ids(server)


async def test_two_that_continue_the_same_conversation_at_once_both_get_answers(server: AgentServer) -> None:
    first = await ask(server, user("begin twice"))
    said = first["choices"][0]["message"]["content"]
    asked = (user("begin twice"), assistant(said), user("slowly"))
    async with held_answers(server) as until_running:
        asking = asyncio.gather(ask(server, *asked), ask(server, *asked))
        await until_running(2)
    both = await asking
    assert len({answer["session_id"] for answer in both}) == 2
    assert all(answer["choices"][0]["message"]["content"].startswith("word") for answer in both)


async def until_busy(server: AgentServer, session: str) -> None:
    async with server.client() as client, asyncio.timeout(60):
        while True:
            reply = await client.get(f"agent/v1/sessions/{session}/turns")
            if reply.is_success and reply.json()["turns"][-1:] and reply.json()["turns"][-1]["state"] == "open":
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_named_session_that_is_busy_is_told(server: AgentServer, is_listed: bool) -> None:
    session = "busy" if is_listed else (await ask(server, user("begin it")))["session_id"]
    async with held_answers(server), server.client() as client:
        running = asyncio.create_task(ask(server, user("slowly"), session_id=session))
        await until_busy(server, session)
        body = {"model": "agent/default", "messages": [user("now")], "session_id": session}
        refused = await client.post("agent/v1/chat/completions", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_busy")
    assert (await running)["session_id"] == session


async def test_two_that_continue_the_same_conversation_at_once_both_have_its_files(server: AgentServer) -> None:
    first = await ask(server, user("begin with a file"))
    said = first["choices"][0]["message"]["content"]

    async def goes_on(text: str, file: str) -> tuple[str, set[str]]:
        """Continue the conversation. Return its session and the names of its files."""
        part = {"type": "file", "file": {"filename": file, "file_data": base64.b64encode(b"words").decode()}}
        more = {"role": "user", "content": [{"type": "text", "text": text}, part]}
        session = (await ask(server, user("begin with a file"), assistant(said), more))["session_id"]
        async with server.client() as client:
            files = (await client.get("agent/v1/files", params={"session": session})).raise_for_status().json()["data"]
        return session, {file["filename"] for file in files}

    async with held_answers(server) as until_running:
        earlier = asyncio.create_task(goes_on("slowly", "a.txt"))
        await until_running(1)
        later = asyncio.create_task(goes_on("slowly", "b.txt"))
        await until_running(2)
    (one, first_files), (other, other_files) = await earlier, await later
    assert one != other
    assert (first_files, other_files) == ({"a.txt"}, {"b.txt"})
    async with held_answers(server) as until_running:
        going_on = asyncio.gather(goes_on("now slowly", "c.txt"), goes_on("now slowly", "c.txt"))
        await until_running(2)
    at_once = await going_on
    assert len({session for session, _ in at_once}) == 2
    assert all("c.txt" in files for _, files in at_once)


async def test_two_that_continue_the_same_conversation_at_once_both_have_what_its_tools_said(
    server: AgentServer,
) -> None:
    async def told(*messages: Json) -> Json:
        async with server.client() as client:
            body = {"model": "agent/default", "max_tokens": 100, "messages": list(messages)}
            answer: Json = (await client.post("agent/v1/messages", json=body)).raise_for_status().json()
            return answer

    first = await told(user("set y"))
    assert "server_tool_use" in [block["type"] for block in first["content"]]
    asked = (user("set y"), {"role": "assistant", "content": first["content"]}, user("slowly"))
    async with held_answers(server) as until_running:
        asking = asyncio.gather(told(*asked), told(*asked))
        await until_running(2)
    both = await asking
    sessions = {answer["session_id"] for answer in both}
    assert len(sessions) == 2
    async with server.client() as client:
        for session in sessions:
            items = (await client.get(f"agent/v1/sessions/{session}/items")).raise_for_status().json()["items"]
            roles = [item["message"]["role"] for item in items]
            assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_a_call_that_is_refused_leaves_no_session(server: AgentServer) -> None:
    part = {"type": "file", "file": {"file_id": "file_unknown"}}
    message = {"role": "user", "content": [{"type": "text", "text": "hi"}, part]}
    async with server.client() as client:
        await client.post("agent/v1/sessions", json={"id": "was there"})
        for session in ("refused", "was there"):
            body = {"model": "default", "messages": [message], "session_id": session}
            assert (await client.post("agent/v1/chat/completions", json=body)).status_code == 404
        stored = {"model": "default", "input": [{"role": "user", "content": [FILE]}]}
        assert (await client.post("agent/v1/responses", json=stored)).status_code == 404
    there = await session_ids(server)
    assert "refused" not in there
    assert "was there" in there
    assert [id for id in every_session(server) if id.startswith(UNLISTED)] == []


async def test_a_session_that_was_begun_anew_for_a_call_that_is_refused_is_forgotten(server: AgentServer) -> None:
    first = await ask(server, user("begin anew"))
    said = (user("begin anew"), assistant(first["choices"][0]["message"]["content"]))
    before = await gauge(server, "private_sessions")
    part = {"type": "file", "file": {"file_id": "file_unknown"}}
    more = {"role": "user", "content": [{"type": "text", "text": "slowly"}, part]}
    async with held_answers(server), server.client() as client:
        running = asyncio.create_task(ask(server, *said, user("slowly")))
        await until_busy(server, first["session_id"])
        refused = await client.post(
            "agent/v1/chat/completions", json={"model": "agent/default", "messages": [*said, more]}
        )
    assert refused.status_code == 404
    assert (await running)["session_id"] == first["session_id"]
    assert await gauge(server, "private_sessions") == before


FILE = {"type": "input_file", "file_id": "file_unknown"}


def every_session(server: AgentServer) -> list[str]:
    with closing(sqlite3.connect(server.directory / "data" / "sessions.db", timeout=30)) as db:
        return [id for (id,) in db.execute("SELECT id FROM sessions")]
