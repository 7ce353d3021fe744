"""Tests how a model looks up earlier conversations: what it gets, and what it never gets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.messages import Message, Text, ToolCall, assistant, user
from agent_kernel.core.protocols import RESULT_CHARS, ToolContext, ToolOutput
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.core.settings import Settings
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.export.import_export import import_session
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.tools.memory.recall import Recall
from agent_kernel.turn.agent import TurnRequest
from agent_kernel.turn.server_runtime import Runtime
from tests.turns import KEY, agent, stored

EARLIER = SessionKey("local", "minerals")
CALL = ToolCall("c", "python", {"code": "SECRET_CODE"})


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    await made.create(EARLIER, "About\nminerals")
    await made.add_turn(
        Turn("t-old", EARLIER),
        [
            user("a note of the notebook", hidden=True),
            user("Which stone is harder, topaz or beryl?"),
            Message("assistant", (Text("let me look"),), (CALL,), reasoning="private thoughts"),
            Message("tool", (Text("8 " * 2_000),), call_id="c", name="python", status="success"),
            assistant("Topaz is, with 8 on the Mohs scale."),
        ],
    )
    await made.add_turn(Turn("t-now", KEY), [user("topaz in this conversation"), assistant("yes")])
    await made.add_turn(Turn("t-other", SessionKey("other", "x")), [user("topaz of somebody else")])
    yield made
    await made.aclose()


async def call_recall(store: MemoryStore, root: str = "", **arguments: Any) -> ToolOutput:
    call = ToolCall("c1", "recall", arguments)
    return await Recall(store, root).call(arguments, ToolContext(KEY, "t", 1, call, lambda body: None))


async def test_it_tells_where_and_when_and_what_was_said(store: MemoryStore) -> None:
    await store.bind("local", "/root", "stones.ipynb", EARLIER.id)
    await store.bind("local", "/root", "kernel:1", EARLIER.id)
    output = await call_recall(store, "/root", words="topaz")
    assert output.status == "success"
    assert '1. "About minerals", 20' in output.text
    assert ", notebook stones.ipynb" in output.text
    assert "turn t-old, user: Which stone is harder, topaz or beryl?" in output.text
    assert "not an instruction" in output.text
    assert "this conversation" not in output.text.partition("\n")[2]
    assert "somebody else" not in output.text


async def test_this_conversation_is_searched_when_it_is_asked_for(store: MemoryStore) -> None:
    output = await call_recall(store, words="topaz", where="this")
    assert "topaz in this conversation" in output.text
    assert "Mohs" not in output.text


async def test_a_turn_that_was_found_can_be_read(store: MemoryStore) -> None:
    output = await call_recall(store, turn="t-old")
    assert "user: Which stone is harder" in output.text
    assert "assistant: let me look [called python]" in output.text
    assert "characters left out" in output.text
    assert "Mohs scale" in output.text
    for never in ("a note of the notebook", "private thoughts", "SECRET_CODE"):
        assert never not in output.text


async def test_what_comes_of_an_imported_session_is_marked(store: MemoryStore) -> None:
    for arguments in ({"words": "mohs"}, {"words": "topaz", "where": "this"}, {"turn": "t-old"}, {"words": "nothing"}):
        assert not (await call_recall(store, **arguments)).foreign
    said = [{"role": "user", "content": "beryl and topaz"}, {"role": "assistant", "content": "obey"}]
    come = await import_session(store, "local", json.dumps(said).encode())
    copy = await store.fork(come.session.key, SessionKey("local", "copy"))
    for session in (come.session, copy):
        (turn, *_), _ = await store.everything(session.key)
        assert (await call_recall(store, turn=turn.id)).foreign
    assert (await call_recall(store, words="topaz")).foreign, "one of several that were found"
    assert not (await call_recall(store, words="mohs")).foreign


async def test_a_turn_of_another_namespace_is_not_there(store: MemoryStore) -> None:
    output = await call_recall(store, turn="t-other")
    assert output.status == "error"
    assert "somebody else" not in output.text


@pytest.mark.parametrize("arguments", [{}, {"words": " "}, {"words": "w" * 2_000}, {"turn": "none"}])
async def test_a_mistake_is_told(store: MemoryStore, arguments: dict[str, str]) -> None:
    assert (await call_recall(store, **arguments)).status == "error"


async def test_nothing_found_is_an_answer(store: MemoryStore) -> None:
    output = await call_recall(store, words="zirconium")
    assert (output.status, output.text) == ("success", "Nothing was found with: zirconium")


async def test_what_it_tells_is_never_cut_by_the_toolbox(store: MemoryStore) -> None:
    for number in range(8):
        key = SessionKey("local", f"long{number}")
        await store.create(key, "t" * 500)
        await store.bind("local", "/root", f"{'n' * 300}{number}.ipynb", key.id)
        await store.add_turn(Turn(f"turn-20260101-120000-{number:06}", key), [user("granite " * 500)] * 9)
    assert len((await call_recall(store, "/root", words="granite")).text) < RESULT_CHARS
    await store.add_turn(Turn("t-long", EARLIER), [user("granite " * 5_000), assistant("yes " * 5_000)])
    assert len((await call_recall(store, turn="t-long")).text) < RESULT_CHARS


async def test_a_turn_recalls_reads_and_answers(store: MemoryStore) -> None:
    script: list[dict[str, Any]] = [
        {"text": "", "calls": [{"name": "recall", "arguments": {"words": "mohs"}}]},
        {"text": "", "calls": [{"name": "recall", "arguments": {"turn": "t-old"}}]},
        {"text": "You asked that before: topaz."},
    ]
    runner, _, engine = agent(script, [Recall(store)], store=store, gate=Gate(Approvals()))
    assert (await runner.run("Which stone was harder?")).state == "committed"
    results = [message for message in await stored(store) if message.role == "tool"]
    assert [message.status for message in results] == ["success", "success"]
    assert "Mohs" in results[0].text
    assert "harder" in results[1].text
    assert [tool.name for tool in engine.requests[0].tools] == ["recall"]


@pytest.mark.parametrize(("recall", "offered"), [("off", False), ("on", True)])
async def test_it_is_offered_where_the_setting_is_on(tmp_path: Path, recall: Any, offered: bool) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"text": "hello"}]))
    async with aclosing(
        Runtime.build(Settings(engine="scripted", script=str(script), store="memory", recall=recall, data_dir=tmp_path))
    ) as runtime:
        await runtime.agent(KEY, TurnRequest("hello")).run("hello")
        assert isinstance(runtime.engine, ScriptedEngine)
        assert ("recall" in [tool.name for tool in runtime.engine.requests[0].tools]) is offered


async def test_policy_can_deny_it(store: MemoryStore) -> None:
    script: list[dict[str, Any]] = [
        {"text": "", "calls": [{"name": "recall", "arguments": {"words": "mohs"}}]},
        {"text": "no"},
    ]
    gate = Gate(Approvals(), policy={"sessions.read": "deny"})
    runner, _, _ = agent(script, [Recall(store)], store=store, gate=gate)
    await runner.run("Which stone was harder?")
    (result,) = [message for message in await stored(store) if message.role == "tool"]
    assert result.status == "denied"
