"""Contract of runs that guardrails, approvals and retries stop or restart, of several tenants, and of
compacted runs.
"""

from __future__ import annotations

import asyncio
import json
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
    RunContextWrapper,
    RunState,
    retry_policies,
)
from agents.memory import OpenAIResponsesCompactionSession
from agents.run_internal.session_persistence import (
    rewind_session_items,
    save_result_to_session,
    wait_for_session_cleanup,
)
from agents.testing import ModelStep, assistant_message
from openai.types.responses import ResponseReasoningItem

from agent_kernel.sessions.adapters.openai_agents import AgentsSession
from tests.peers.agents_sdk.scripts import STREAMED, THREE, agent, calling, guarded, one, run, said, short, stored, tool

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
    assert (await run(streamed, bot, state, session=session)).final_output == "end"
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


async def test_the_cleanup_after_a_rewind_waits_for_nothing(
    session: AgentsSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    await session.add_items([one("user", "left")])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await wait_for_session_cleanup(session, [json.dumps(one("user", "gone"), sort_keys=True)])
    assert waits == []
    await wait_for_session_cleanup(session, [json.dumps(one("user", "left"), sort_keys=True)], max_attempts=2)
    assert waits == [0.1, 0.2]


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
    """A stand-in for the one route of the service that compaction calls."""

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
