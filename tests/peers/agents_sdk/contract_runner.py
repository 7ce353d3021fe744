"""Runs of the real Runner, streamed and not, with a session of this store."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    ModelRetryAdvice,
    ModelRetrySettings,
    ModelSettings,
    OutputGuardrail,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunState,
    SQLiteSession,
    UserError,
    function_tool,
    retry_policies,
)
from agents.memory import OpenAIResponsesCompactionSession, SessionSettings
from agents.run_internal.session_persistence import (
    rewind_session_items,
    save_result_to_session,
    wait_for_session_cleanup,
)
from agents.testing import ModelStep, assistant_message
from openai.types.responses import ResponseReasoningItem

from agent_kernel.peers.openai_agents import AgentsSession
from tests.peers.agents_sdk.scripts import agent, calling, run, said, short, stored

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["run", "streamed"])
"""Of every run."""
THREE: list[Any] = [
    {"role": role, "content": f"{what} {n}"}
    for n in (1, 2, 3)
    for role, what in (("user", "Message"), ("assistant", "Response"))
]


@function_tool
def tool() -> str:
    return "42"


@function_tool(needs_approval=True)
def guarded() -> str:
    return "done"


def one(role: str, text: str) -> Any:
    return {"role": role, "content": text}


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
        await asyncio.wait_for(read(), 5)


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


def _summarised(history: list[Any], new: list[Any]) -> list[Any]:
    history[0] = one("user", "summary")
    return [*history, *new]


def _moved(history: list[Any], new: list[Any]) -> list[Any]:
    new.insert(0, history.pop())
    return [*history, *new]


CALLBACKS: list[tuple[str, Callable[[list[Any], list[Any]], list[Any]], int, list[str]]] = [
    ("drops what is new", lambda history, new: history, 1, []),
    ("reorders", _keep_reordered, 2, ["user new 1", "user new 0"]),
    ("adds", lambda history, new: [*history, one("user", "extra"), *new], 1, ["user extra", "user new 0"]),
    ("copies", lambda history, new: copy.deepcopy([*history, *new]), 1, ["user new 0"]),
    ("repeats the history", lambda history, new: [history[0], history[0], *new], 1, ["user new 0"]),
    ("moves history to the new", _moved, 1, ["user new 0"]),
    ("replaces history", _summarised, 1, ["user new 0"]),
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


# ------------------------------------------------------------------------------------------------------ guardrails


async def _trip(*_: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


async def _late_trip(*_: Any) -> GuardrailFunctionOutput:
    await asyncio.sleep(0.02)
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


async def _crash(*_: Any) -> GuardrailFunctionOutput:
    raise ValueError("guardrail broke")


@STREAMED
@pytest.mark.parametrize("parallel", [False, True])
async def test_an_input_guardrail_keeps_the_question_only(
    session: AgentsSession, streamed: bool, parallel: bool
) -> None:
    guard = InputGuardrail(guardrail_function=_late_trip if parallel else _trip, run_in_parallel=parallel)
    bot, _ = agent(*said("secret"), input_guardrails=[guard])
    with pytest.raises(InputGuardrailTripwireTriggered):
        await run(streamed, bot, "question", session=session)
    assert await stored(session) == ["user question"]


@STREAMED
async def test_an_output_guardrail_keeps_what_tools_did_and_not_the_answer(
    session: AgentsSession, streamed: bool
) -> None:
    bot, _ = agent(
        calling("tool", "c1"), *said("secret"), tools=[tool], output_guardrails=[OutputGuardrail(_trip, name="g")]
    )
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await run(streamed, bot, "question", session=session)
    assert await stored(session) == ["user question", "call c1", "output c1"]


@STREAMED
async def test_an_output_guardrail_that_breaks_keeps_the_answer(session: AgentsSession, streamed: bool) -> None:
    bot, _ = agent(*said("answer"), output_guardrails=[OutputGuardrail(_crash, name="g")])
    with pytest.raises(ValueError, match="guardrail broke"):
        await run(streamed, bot, "question", session=session)
    assert await stored(session) == ["user question", "assistant answer"]


# ------------------------------------------------------------------------------------- approvals, resuming, rewinding


@STREAMED
@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("serialised", [True, False], ids=["from JSON", "in memory"])
async def test_a_run_that_waits_for_an_approval_goes_on_without_duplicates(
    session: AgentsSession, streamed: bool, approved: bool, serialised: bool
) -> None:
    bot, model = agent(calling("guarded", "c1"), *said("end"), tools=[guarded])
    first = await run(streamed, bot, "go", session=session)
    assert len(first.interruptions) == 1
    assert (await stored(session))[:1] == ["user go"]
    state = first.to_state()
    if serialised:
        state = await RunState.from_string(bot, state.to_string())
    waiting = state.get_interruptions()[0]
    state.approve(waiting) if approved else state.reject(waiting)
    resumed = await run(streamed, bot, state, session=session)
    assert resumed.final_output == "end"
    assert await stored(session) == ["user go", "call c1", "output c1", "assistant end"]
    assert short(model.calls[1].input) == ["user go", "call c1", "output c1"]


@STREAMED
async def test_a_run_may_be_resumed_by_another_object_on_the_file(tmp_path: Path, streamed: bool) -> None:
    before = AgentsSession("s", tmp_path / "s.db")
    bot, _ = agent(calling("guarded", "c1"), *said("end"), tools=[guarded])
    state = (await run(streamed, bot, "go", session=before)).to_state().to_string()
    before.close()
    after = AgentsSession("s", tmp_path / "s.db")
    again = await RunState.from_string(bot, state)
    again.approve(again.get_interruptions()[0])
    await run(streamed, bot, again, session=after)
    assert await stored(after) == ["user go", "call c1", "output c1", "assistant end"]
    after.close()


async def test_a_retried_request_writes_its_input_once_and_takes_nothing_back(
    session: AgentsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    pops = 0
    pop = session.pop_item

    async def counted(*, wrapper: Any = None) -> Any:
        nonlocal pops
        pops += 1
        return await pop(wrapper=wrapper)

    monkeypatch.setattr(session, "pop_item", counted)
    await session.add_items([one("user", "previous")])
    retry = ModelRetrySettings(max_retries=1, policy=retry_policies.provider_suggested(), backoff={"initial_delay": 0})
    gone = ModelStep.raise_error(
        ConnectionError("gone"), retry_advice=ModelRetryAdvice(suggested=True, replay_safety="safe")
    )
    bot, _ = agent(gone, *said("reply"), model_settings=ModelSettings(retry=retry))
    await run(False, bot, "test", session=session)
    assert (await stored(session), pops) == (["user previous", "user test", "assistant reply"], 0)


async def test_a_rewind_takes_its_own_tail_and_nothing_else(session: AgentsSession) -> None:
    own = [one("user", "target"), one("assistant", "reply")]
    await session.add_items([one("user", "keep"), *own])
    await rewind_session_items(session, own)
    assert await stored(session) == ["user keep"]
    await session.add_items([own[0], one("user", "unrelated")])
    await rewind_session_items(session, own[:1])
    assert await stored(session) == ["user keep", "user target", "user unrelated"]


async def test_what_a_rewind_took_is_put_back_when_it_can_not_end(
    session: AgentsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [one("user", "a"), one("assistant", "b")]
    await session.add_items(own)
    before = await session.get_items()
    pop, count = session.pop_item, iter((True, False))

    async def fails_second(*, wrapper: Any = None) -> Any:
        if not next(count):
            raise OSError("disk")
        return await pop(wrapper=wrapper)

    monkeypatch.setattr(session, "pop_item", fails_second)
    await rewind_session_items(session, own)
    assert await session.get_items() == before


async def test_the_cleanup_after_a_rewind_ends_at_once(session: AgentsSession) -> None:
    await session.add_items([one("user", "left")])
    await asyncio.wait_for(wait_for_session_cleanup(session, [json.dumps(one("user", "gone"))]), 0.05)


async def test_a_placeholder_of_an_approval_is_not_counted(session: AgentsSession) -> None:
    bot, _ = agent(calling("guarded", "c1"), *said("end"), tools=[guarded])
    first = await run(False, bot, "go", session=session)
    before = await stored(session)
    waiting = first.to_state().get_interruptions()
    assert await save_result_to_session(session, [], list(waiting), None) == 0
    assert await stored(session) == before


# ------------------------------------------------------------------------------------------- tenants and compaction


@dataclass
class Tenant:
    name: str
    key: str = "sk-live-must-never-be-stored"


@STREAMED
async def test_a_tenant_of_the_runs_context_sees_only_its_own(tmp_path: Path, streamed: bool) -> None:
    def tenant(wrapper: RunContextWrapper[Tenant] | None) -> str:
        return wrapper.context.name if wrapper else "nobody"

    session = AgentsSession("s", tmp_path / "s.db", namespace=tenant)
    for name in ("acme", "evil"):
        bot, model = agent(*said(name))
        await run(streamed, bot, f"I am {name}", context=Tenant(name), session=session)
        assert short(model.calls[0].input) == [f"user I am {name}"]
    assert await session.get_items() == []
    wrapper = RunContextWrapper(Tenant("acme"))
    await rewind_session_items(session, (await session.get_items(wrapper=wrapper))[-1:], wrapper=wrapper)
    assert short(await session.get_items(wrapper=wrapper)) == ["user I am acme"]
    assert await session.pop_item() is None
    await session.clear_session(wrapper=wrapper)
    assert short(await session.get_items(wrapper=RunContextWrapper(Tenant("evil")))) == [
        "user I am evil",
        "assistant evil",
    ]
    session.close()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"sk-live" not in written


class Compactor:
    """The one route of the service that compaction calls."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.responses = SimpleNamespace(compact=self.compact)

    async def compact(self, *, model: str, input: list[Any]) -> Any:
        self.asked.append(short(input))
        kept = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "kept"}]}
        summary = {"type": "compaction", "id": "cmp", "encrypted_content": "abc"}
        return SimpleNamespace(output=[kept, summary], usage=None)


async def test_the_sdks_compaction_replaces_the_history(session: AgentsSession) -> None:
    client = Compactor()
    wrapped = OpenAIResponsesCompactionSession(
        "s", session, client=client, compaction_mode="input", should_trigger_compaction=lambda facts: True
    )
    bot, model = agent(*said("one", "two"))
    await run(False, bot, "a", session=wrapped)
    assert client.asked == [["user a", "assistant one"]]
    assert await stored(session) == ["user kept", "compaction"]
    await run(False, bot, "b", session=wrapped)
    assert short(model.calls[1].input) == ["user kept", "compaction", "user b"]


async def test_a_history_that_could_not_be_replaced_is_as_it_was(
    session: AgentsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session.add_items(THREE)
    wrapped = OpenAIResponsesCompactionSession("s", session, client=Compactor(), compaction_mode="input")
    add, broken = session.add_items, iter((True, False))

    async def breaks_once(items: Any, *, wrapper: Any = None) -> None:
        if next(broken):
            raise OSError("disk")
        await add(items, wrapper=wrapper)

    monkeypatch.setattr(session, "add_items", breaks_once)
    with pytest.raises(OSError, match="disk"):
        await wrapped.run_compaction({"force": True})
    assert await session.get_items() == THREE


async def test_an_answer_with_reasoning_is_kept_whole(session: AgentsSession) -> None:
    """What a provider sends with an answer goes back to it unchanged."""
    thought = ResponseReasoningItem(id="rs1", summary=[], type="reasoning", encrypted_content="opaque")
    bot, model = agent([thought, assistant_message("yes", item_id="m1")], *said("more"))
    await run(False, bot, "a", session=session)
    await run(False, bot, "b", session=session)
    kinds = [item.get("type", "message") for item in model.calls[1].input]
    assert kinds == ["message", "reasoning", "message", "message"]
    assert model.calls[1].input[1]["encrypted_content"] == "opaque"
