"""Contract of runs of the real Runner, streamed and not, with a session of this store."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import (
    RunConfig,
    Runner,
    SQLiteSession,
    UserError,
)
from agents.memory import SessionSettings

from agent_kernel.sessions.adapters.openai_agents import AgentsSession
from tests.peers.agents_sdk.scripts import STREAMED, THREE, agent, calling, one, run, said, short, stored, tool

# -------------------------------------------------------------------------------------------------- what a run keeps


@STREAMED
async def test_the_next_run_is_shown_what_the_last_one_said(session: AgentsSession, streamed: bool) -> None:
    bot, model = agent(*said("San Francisco", "California"))
    await run(streamed, bot, "Where is the Golden Gate Bridge?", session=session)
    await run(streamed, bot, "In which state?", session=session)
    assert short(model.calls[1].input) == [
        "user Where is the Golden Gate Bridge?",
        "assistant San Francisco",
        "user In which state?",
    ]
    assert await stored(session) == [*short(model.calls[1].input), "assistant California"]


@STREAMED
async def test_calls_and_outputs_are_kept_in_order_and_shown_again(session: AgentsSession, streamed: bool) -> None:
    bot, model = agent(calling("tool", "c1"), *said("42", "again"), tools=[tool])
    await run(streamed, bot, "compute", session=session)
    assert await stored(session) == ["user compute", "call c1", "output c1", "assistant 42"]
    await run(streamed, bot, "more", session=session)
    assert short(model.calls[2].input) == ["user compute", "call c1", "output c1", "assistant 42", "user more"]


async def test_a_run_without_a_loop_of_its_own_works_with_the_same_session(session: AgentsSession) -> None:
    bot, _ = agent(*said("one", "two"))
    await run(False, bot, "a", session=session)

    def in_a_thread() -> None:
        with asyncio.Runner() as loop:  # run_sync leaves the loop that it finds open, and one that it makes too
            asyncio.set_event_loop(loop.get_loop())
            Runner.run_sync(bot, "b", session=session)

    await asyncio.to_thread(in_a_thread)
    assert await stored(session) == ["user a", "assistant one", "user b", "assistant two"]


@STREAMED
async def test_a_list_is_appended_to_the_history(session: AgentsSession, streamed: bool) -> None:
    history = [one("user", "Earlier"), one("assistant", "Saved")]
    await session.add_items(history)
    bot, model = agent(*said("ok"))
    await run(streamed, bot, [one("user", "Now")], session=session)
    assert model.calls[0].input == [*history, one("user", "Now")]


@STREAMED
async def test_what_was_done_before_a_crash_is_kept(session: AgentsSession, streamed: bool) -> None:
    bot, _ = agent(calling("tool", "c1"), calling("tool", "c2"), RuntimeError("broken"), tools=[tool])
    with pytest.raises(RuntimeError, match="broken"):
        await run(streamed, bot, "go", session=session)
    assert await stored(session) == ["user go", "call c1", "output c1", "call c2", "output c2"]


async def test_a_run_of_three_turns_writes_after_each(session: AgentsSession, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[list[str]] = []
    add = session.add_items

    async def noted(items: Any, *, wrapper: Any = None) -> None:
        batches.append(short(items))
        await add(items, wrapper=wrapper)

    monkeypatch.setattr(session, "add_items", noted)
    bot, _ = agent(calling("tool", "c1"), calling("tool", "c2"), *said("end"), tools=[tool])
    await run(False, bot, "go", session=session)
    assert [batch for batch in batches if batch] == [
        ["user go"],
        ["call c1", "output c1"],
        ["call c2", "output c2"],
        ["assistant end"],
    ]


async def test_an_error_of_the_store_reaches_who_reads_the_stream(session: AgentsSession) -> None:
    bot, _ = agent(*said("x"))
    result = Runner.run_streamed(bot, "go", session=session)
    session.close()

    async def read() -> None:
        async for _ in result.stream_events():
            pass

    with pytest.raises(RuntimeError, match="closed"):
        await asyncio.wait_for(read(), 30)


async def test_a_session_and_a_conversation_of_the_server_exclude_each_other(session: AgentsSession) -> None:
    bot, model = agent(*said("x"))
    for option in ({"conversation_id": "conv"}, {"previous_response_id": "resp"}):
        with pytest.raises(UserError):
            await run(False, bot, "go", session=session, **option)
    assert model.calls == ()
    assert await stored(session) == []


# ---------------------------------------------------------------------------------------------------------- limits


@STREAMED
@pytest.mark.parametrize(
    ("limit", "sees"), [(2, ["user Message 3", "assistant Response 3"]), (0, []), (None, short(THREE))]
)
async def test_a_limit_of_the_run(session: AgentsSession, streamed: bool, limit: int | None, sees: list[str]) -> None:
    await session.add_items(THREE)
    bot, model = agent(*said("ok"))
    config = RunConfig(session_settings=SessionSettings(limit=limit))
    await run(streamed, bot, "Message 4", session=session, run_config=config)
    assert short(model.calls[0].input) == [*sees, "user Message 4"]


async def test_a_limit_of_the_run_wins_over_that_of_the_session(tmp_path: Path) -> None:
    session = AgentsSession("s", tmp_path / "s.db", session_settings=SessionSettings(limit=100))
    await session.add_items(THREE)
    bot, model = agent(*said("ok"))
    config = RunConfig(session_settings=SessionSettings(limit=2))
    await run(False, bot, "new", session=session, run_config=config)
    assert short(model.calls[0].input) == ["user Message 3", "assistant Response 3", "user new"]
    session.close()


async def test_half_a_pair_at_the_edge_of_a_limit_is_read_but_not_shown_to_the_model(session: AgentsSession) -> None:
    bot, model = agent(calling("tool", "c1"), *said("42", "ok"), tools=[tool])
    await run(False, bot, "compute", session=session)
    assert short(await session.get_items(2)) == ["output c1", "assistant 42"]
    config = RunConfig(session_settings=SessionSettings(limit=2))
    await run(False, bot, "new", session=session, run_config=config)
    assert short(model.calls[2].input) == ["assistant 42", "user new"]


async def test_of_two_outputs_of_a_call_the_new_one_counts(session: AgentsSession) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "tool", "arguments": "{}"}
    old, new = ({"type": "function_call_output", "call_id": "c", "output": text} for text in ("old", "new"))
    await session.add_items([one("user", "u"), call, old])
    bot, model = agent(*said("ok"), tools=[tool])
    await run(False, bot, [new], session=session)
    outputs = [item["output"] for item in model.calls[0].input if item.get("type") == "function_call_output"]
    assert outputs == ["new"]


# ------------------------------------------------------------------------------------------------- input callbacks


def _keep_reordered(history: list[Any], new: list[Any]) -> list[Any]:
    return [new[1], history[0], new[0]]


def summarise_history(history: list[Any], new: list[Any]) -> list[Any]:
    history[0] = one("user", "summary")
    return [*history, *new]


def move_history(history: list[Any], new: list[Any]) -> list[Any]:
    new.insert(0, history.pop())
    return [*history, *new]


CALLBACKS: list[tuple[str, Callable[[list[Any], list[Any]], list[Any]], int, list[str]]] = [
    ("drops what is new", lambda history, new: history, 1, []),
    ("reorders", _keep_reordered, 2, ["user new 1", "user new 0"]),
    ("adds", lambda history, new: [*history, one("user", "extra"), *new], 1, ["user extra", "user new 0"]),
    ("copies", lambda history, new: copy.deepcopy([*history, *new]), 1, ["user new 0"]),
    ("repeats the history", lambda history, new: [history[0], history[0], *new], 1, ["user new 0"]),
    ("moves history to the new", move_history, 1, ["user new 0"]),
    ("replaces history", summarise_history, 1, ["user new 0"]),
    (
        "rebuilds a copy of the history",
        lambda history, new: [history[0], copy.deepcopy(history[0]), *new],
        1,
        ["user history", "user new 0"],
    ),
]


@STREAMED
@pytest.mark.parametrize(("callback", "news", "kept"), [case[1:] for case in CALLBACKS], ids=[c[0] for c in CALLBACKS])
async def test_what_an_input_callback_makes_of_it_is_stored_as_with_a_session_of_the_sdk(
    session: AgentsSession, streamed: bool, callback: Any, news: int, kept: list[str]
) -> None:
    theirs = SQLiteSession("s")
    seen = []
    for each in (session, theirs):
        await each.add_items([one("user", "history")])
        bot, model = agent(*said("ok"))
        config = RunConfig(session_input_callback=callback)
        new = [one("user", f"new {n}") for n in range(news)]
        await run(streamed, bot, new, session=each, run_config=config)
        seen.append((model.calls[0].input, await each.get_items()))
    theirs.close()
    assert seen[0] == seen[1]
    assert short(seen[0][1]) == ["user history", *kept, "assistant ok"]


@STREAMED
async def test_a_callback_that_repeats_history_in_three_turns_stores_every_message_once(
    session: AgentsSession, streamed: bool
) -> None:
    bot, _ = agent(*said("a", "b", "c"))
    config = RunConfig(session_input_callback=lambda history, new: [*history[:1], *history, *new])
    for n in range(3):
        await run(streamed, bot, f"user {n}", session=session, run_config=config)
    assert await stored(session) == [
        line for n, text in enumerate("abc") for line in (f"user user {n}", f"assistant {text}")
    ]


async def test_a_callback_sees_copies(session: AgentsSession) -> None:
    await session.add_items(THREE)

    def spoil(history: list[Any], new: list[Any]) -> list[Any]:
        history[0]["content"] = "spoiled"
        return [*history, *new]

    bot, model = agent(*said("ok"))
    await run(False, bot, "new", session=session, run_config=RunConfig(session_input_callback=spoil))
    assert short(model.calls[0].input)[0] == "user spoiled"
    assert (await stored(session))[0] == "user Message 1"


@pytest.mark.parametrize("callback", ["text", lambda history, new: "text"], ids=["no function", "no list"])
async def test_a_callback_that_makes_no_sense_is_refused(session: AgentsSession, callback: Any) -> None:
    bot, model = agent(*said("ok"))
    with pytest.raises(UserError):
        await run(False, bot, "new", session=session, run_config=RunConfig(session_input_callback=callback))
    assert model.calls == ()
