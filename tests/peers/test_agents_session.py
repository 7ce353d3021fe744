"""Tests a session that openai-agents and our own agent share, without the SDK itself."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest, SessionBusy
from agent_kernel.core.messages import Media, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import Owner, SessionKey, SessionQuery, Turn
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.adapters.open_stores import FILES
from agent_kernel.sessions.adapters.openai_agents import AgentsSession
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent, TurnRequest

KEY = SessionKey("local", "s")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 2
CALL: dict[str, Any] = {"type": "function_call", "id": "fc", "call_id": "c9", "name": "look", "arguments": '{"at": 1}'}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "c9", "output": "a cat"}
RUN: list[Any] = [
    {"role": "user", "content": "what is there?"},
    {"type": "reasoning", "id": "rs", "summary": []},
    CALL,
    OUTPUT,
    {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "A cat is there.", "annotations": []}],
    },
]


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    yield made
    await made.aclose()


@pytest.fixture
def session(store: MemoryStore) -> AgentsSession:
    return AgentsSession("s", store)


async def test_our_agent_goes_on_with_what_the_sdk_said(store: MemoryStore, session: AgentsSession) -> None:
    await session.add_items([*RUN, {**CALL, "call_id": "waits"}])
    engine = ScriptedEngine([{"text": "Still a cat."}])
    await Agent(store, engine, KEY).run("and now?")
    seen = [message for message in engine.requests[0].messages if message.role != "system"]
    assert [(message.role, message.text, [call.name for call in message.calls]) for message in seen] == [
        ("user", "what is there?", []),
        ("assistant", "", ["look"]),
        ("tool", "a cat", []),
        ("assistant", "A cat is there.", []),
        ("user", "and now?", []),
    ]
    assert not any(message.extra or message.hidden for message in seen)


async def test_the_sdk_goes_on_with_what_our_agent_said(store: MemoryStore, session: AgentsSession) -> None:
    owner, picture = Owner.here(), Media.of("image/png", PNG)
    for n in (1, 2):
        turn = await store.open_turn(Turn(f"t{n}", (await store.create(KEY)).key), owner)
        call = ToolCall("call_0", "python", {"code": f"{n}"})
        said = [user("the variables are gone", hidden=True), user("look", [picture]), assistant("I run it.", [call])]
        head = (n - 1) * 5
        await store.append(turn, owner, [*said, tool_result(call, f"={n}", "success"), assistant("Done.")], head)
        await store.close_turn(turn, owner, "committed")
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    one, two = (
        [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "image_url": url, "detail": "auto"},
                ],
            },
            {"role": "assistant", "content": "I run it."},
            {"type": "function_call", "call_id": f"call_{at}_0", "name": "python", "arguments": f'{{"code": "{n}"}}'},
            {"type": "function_call_output", "call_id": f"call_{at}_0", "output": f"={n}"},
            {"role": "assistant", "content": "Done."},
        ]
        for n, at in ((1, 3), (2, 8))
    )
    assert await session.get_items() == [*one, *two]
    for limit in range(1, 11):
        assert await session.get_items(limit) == [*one, *two][-limit:]


async def test_popping_what_our_agent_said_leaves_the_rest_of_its_pairs(
    store: MemoryStore, session: AgentsSession
) -> None:
    calls = [ToolCall("a", "f", {}), ToolCall("b", "f", {})]
    results = [tool_result(call, call.id, "success") for call in calls]
    await store.add_turn(Turn("t", KEY), [user("go"), assistant("both", calls), *results])
    items = await session.get_items()
    assert [await session.pop_item() for _ in items] == items[::-1]
    assert await session.pop_item() is None


async def test_a_user_message_begins_a_turn_and_the_rest_continues_it(
    store: MemoryStore, session: AgentsSession
) -> None:
    await session.add_items([RUN[4], RUN[0], RUN[2]])
    await session.add_items([RUN[3]])
    await session.add_items([RUN[0], RUN[4]])
    turns, items = await store.everything(KEY)
    ids = [turn.id for turn in turns]
    assert [ids.index(item.turn) for item in items] == [0, 1, 1, 1, 2, 2]
    assert {(turn.state, turn.record["by"]) for turn in turns} == {("committed", "openai-agents")}


async def test_what_the_sdk_said_is_found_but_not_what_its_tools_did(
    store: MemoryStore, session: AgentsSession
) -> None:
    await session.add_items([{**OUTPUT, "output": "unfindable"}, *RUN])
    assert [hit.session.key for hit in await store.search("local", SessionQuery("CAT"))] == [KEY]
    assert await store.search("local", SessionQuery("unfindable")) == []


async def test_pictures_are_kept_once_by_hash_and_come_back_as_they_were(
    store: MemoryStore, session: AgentsSession
) -> None:
    url = "data:image/png;base64," + base64.b64encode(PNG).decode()
    look = {"role": "user", "content": [{"type": "input_image", "image_url": url, "detail": "low"}]}
    shot = {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": url}}
    odd = {"role": "user", "content": [{"type": "input_image", "image_url": url.rstrip("=") + "=A"}]}
    items: list[Any] = [look, shot, odd, {"role": "user", "content": url}]
    await session.add_items(items)
    assert await session.get_items() == items
    kept = [item.message for item in await store.latest(KEY)]
    assert {medium.hash for message in kept for medium in message.media} == {Media.of("image/png", PNG).hash}
    assert url not in str(kept[0].extra)
    assert [await session.pop_item() for _ in items] == items[::-1]


async def test_while_our_agent_is_at_a_turn_the_sdk_is_told(store: MemoryStore, session: AgentsSession) -> None:
    await store.create(KEY)
    await store.open_turn(Turn("t", KEY), Owner.here())
    with pytest.raises(SessionBusy):
        await session.add_items(RUN)


async def test_secrets_can_be_taken_out_of_what_is_kept(store: MemoryStore) -> None:
    session = AgentsSession("s", store, clean=Redactor().message)
    secret = "sk-" + "a1B2" * 12
    await session.add_items([{"role": "user", "content": f"key {secret}"}, {**OUTPUT, "output": f"key {secret}"}])
    assert secret not in str(await session.get_items())


async def test_limits_are_numbers_from_0(session: AgentsSession) -> None:
    with pytest.raises(InvalidRequest):
        await session.get_items(-1)


def test_sessions_on_one_file_share_a_store_until_the_last_is_closed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    one, two = AgentsSession("1", tmp_path / "s.db"), AgentsSession("2", str(tmp_path / "link" / "s.db"))
    place = (os.getpid(), (tmp_path / "s.db").resolve())
    assert FILES._open[place].users == 2
    one.close()
    one.close()
    assert FILES._open[place].users == 1
    two.close()
    assert place not in FILES._open


WRITER = """
import asyncio, sys
from agent_kernel.sessions.adapters.openai_agents import AgentsSession

async def main(path, name):
    async with AgentsSession("s", path) as session:
        for n in range(50):
            pair = [{"role": "user", "content": f"{name}.{n}"}, {"role": "assistant", "content": f"{name}.{n}"}]
            await session.add_items(pair)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_four_processes_on_one_file_lose_and_tear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(n)]) for n in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    async with AgentsSession("s", path) as session:
        said = [item["content"] for item in await session.get_items()]
    assert said[::2] == said[1::2]
    assert sorted(said[::2]) == sorted(f"{n}.{k}" for n in range(4) for k in range(50))


def test_a_forked_process_opens_the_file_again(tmp_path: Path) -> None:
    code = """
import asyncio, os, sys
from agent_kernel.sessions.adapters.openai_agents import AgentsSession
session = AgentsSession("s", sys.argv[1])
add = lambda text: asyncio.run(session.add_items([{"role": "user", "content": text}]))
add("parent")
if os.fork() == 0:
    add("child")
    os._exit(0)
assert os.wait()[1] == 0
assert [item["content"] for item in asyncio.run(session.get_items())] == ["parent", "child"]
session.close()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "s.db")], check=True, timeout=60)


async def test_a_run_of_our_agent_is_read_by_its_request(store: MemoryStore, session: AgentsSession) -> None:
    await Agent(store, ScriptedEngine([{"text": "Hello."}]), KEY).run(TurnRequest("Hi"))
    assert await session.get_items() == [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
