import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from agent_kernel.core.errors import EngineError, LeaseLost, SessionBusy, TurnStopped
from agent_kernel.core.events import CallFinished, CallOutput, EventBody, Notice, StateLost, TextDelta, TurnFinished
from agent_kernel.core.messages import Usage, user
from agent_kernel.core.protocols import Chunk, EndChunk, EngineRequest, TextChunk, ToolContext, ToolOutput
from agent_kernel.core.session import Owner
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.turn.agent import Agent, Note, TurnRequest, TurnResult
from agent_kernel.turn.agent_options import TurnServices
from agent_kernel.turn.lost_variables import LOST
from agent_kernel.turn.observers import SessionObserver
from agent_kernel.turn.turn_writer import TurnWriter
from tests.scripted import python
from tests.turns import KEY, CancelledAt, Recorder, agent, stored, types


async def test_an_answer_without_tools_is_saved_and_returned() -> None:
    it, store, _ = agent([{"text": "Hello!"}])
    result = await it.run("hi")
    assert (result.state, result.text, result.rounds) == ("committed", "Hello!", 0)
    assert [(m.role, m.text) for m in await stored(store)] == [("user", "hi"), ("assistant", "Hello!")]


async def test_a_call_runs_and_the_model_answers_from_its_result() -> None:
    tool = Recorder()
    it, store, engine = agent([{"calls": [python("abc")]}, {"text": "It is ABC."}], [tool])
    result = await it.run("shout")
    assert (result.text, result.rounds, tool.ran) == ("It is ABC.", 1, ["abc"])
    assert [message.role for message in await stored(store)] == ["user", "assistant", "tool", "assistant"]
    assert engine.requests[1].messages[-1].text == "ABC"


async def test_every_call_of_a_round_is_answered() -> None:
    it, store, _ = agent(
        [{"calls": [python("a"), python("b"), {"name": "none", "arguments": {}}]}, {"text": "ok"}], [Recorder()]
    )
    await it.run("go")
    messages = await stored(store)
    assert {m.call_id for m in messages if m.role == "tool"} == {call.id for m in messages for call in m.calls}
    assert [m.status for m in messages if m.role == "tool"] == ["success", "success", "error"]


async def test_at_the_cap_the_model_must_close_with_an_answer() -> None:
    tool = Recorder()
    it, _, engine = agent([{"calls": [python("x")], "text": "end", "loop": True}], [tool], max_tool_rounds=2)
    result = await it.run("go")
    assert (len(tool.ran), len(engine.requests), result.text, result.rounds) == (2, 3, "end", 2)
    assert engine.requests[-1].tools == ()


async def test_no_tool_rounds_means_no_tools() -> None:
    it, _, engine = agent([{"calls": [python("x")], "text": "plain"}], [Recorder()], max_tool_rounds=0)
    assert (await it.run("go")).text == "plain"
    assert engine.requests[0].tools == ()


async def test_a_request_can_lower_the_cap_and_not_raise_it() -> None:
    tool = Recorder()
    it, _, _ = agent([{"calls": [python("x")], "text": "end", "loop": True}], [tool], max_tool_rounds=2)
    await it.run(TurnRequest("go", max_tool_rounds=1))
    assert len(tool.ran) == 1
    await it.run(TurnRequest("go", max_tool_rounds=9))
    assert len(tool.ran) == 3


async def test_the_same_failing_call_twice_ends_the_loop() -> None:
    def fail(code: str) -> str:
        raise ValueError(code)

    tool = Recorder(fail)
    it, _, engine = agent([{"calls": [python("x")], "text": "I give up.", "loop": True}], [tool])
    result = await it.run("go")
    assert (len(tool.ran), len(engine.requests), result.text) == (2, 3, "I give up.")


async def test_a_tool_that_raises_is_a_result_the_model_can_read() -> None:
    def fail(code: str) -> str:
        raise ZeroDivisionError("division by zero")

    it, store, _ = agent([{"calls": [python("1/0")]}, {"text": "It failed."}], [Recorder(fail)])
    assert (await it.run("go")).state == "committed"
    result = (await stored(store))[2]
    assert (result.status, result.text) == ("error", "ZeroDivisionError: division by zero")


async def test_a_denied_call_did_not_run_and_the_turn_goes_on() -> None:
    tool = Recorder(kind="python.live")
    it, store, _ = agent([{"calls": [python("x")]}, {"text": "As you wish."}], [tool], gate=Gate(Approvals()))
    assert (await it.run("go")).text == "As you wish."
    assert tool.ran == []
    assert (await stored(store))[2].status == "denied"


async def test_a_failing_model_ends_the_turn_as_failed_and_the_next_turn_does_not_see_it() -> None:
    it, store, engine = agent([{"text": "half", "fault": "out of memory"}, {"text": "fine"}])
    failed = await it.run("one")
    assert (failed.state, failed.error and failed.error.message) == ("failed", "out of memory")
    assert [m.text for m in await stored(store)] == ["one", "half"]
    await it.run("two")
    assert [m.text for m in engine.requests[1].messages if m.role == "user"] == ["two"]


async def test_a_fault_of_ours_fails_the_turn_and_not_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(ScriptedEngine):
        async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
            yield TextChunk("x")
            raise RuntimeError("bug")

    result = await Agent(MemoryStore(), Broken([]), KEY).run("go")
    assert result.state == "failed"
    assert "RuntimeError: bug" in str(result.error)
    assert "a turn failed" in caplog.text


async def test_a_stopped_turn_keeps_its_partial_answer_labelled() -> None:
    it, store, _ = agent([{"text": "one two three", "fault": "hang"}])
    events: list[EventBody] = []
    task = asyncio.create_task(it.turn(TurnRequest("go"), events.append))
    while "text.delta" not in types(events):
        await asyncio.sleep(0)
    task.cancel("stopped by the person")
    with pytest.raises(asyncio.CancelledError):
        await task
    last = (await stored(store))[-1]
    assert (last.text, last.status) == ("one two three", "interrupted")
    assert isinstance(events[-1], TurnFinished)
    assert (events[-1].state, events[-1].reason) == ("cancelled", "stopped by the person")


async def test_a_stopped_call_keeps_what_it_has_printed() -> None:
    class Printing(Recorder):
        async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
            context.emit(CallOutput(context.call.id, "step 1\n"))
            context.emit(CallOutput(context.call.id, "step 2\n"))
            return await asyncio.Future()

    it, store, engine = agent([{"calls": [python("long"), python("next")]}, {"text": "ok"}], [Printing()])
    events: list[EventBody] = []
    task = asyncio.create_task(it.turn(TurnRequest("go"), events.append))
    while "call.output" not in types(events):
        await asyncio.sleep(0)
    task.cancel("stopped by the person")
    await asyncio.wait([task])
    long, unstarted = (await stored(store))[-2:]
    assert (long.text, long.status) == ("step 1\nstep 2\n[stopped by the person]", "interrupted")
    assert (unstarted.text, unstarted.status) == ("stopped by the person", "interrupted")
    await it.run("two")
    assert any("step 2" in message.text for message in engine.requests[1].messages)


async def test_the_next_turn_is_told_that_the_last_answer_was_stopped() -> None:
    it, store, engine = agent([{"text": "half", "fault": "hang"}, {"text": "ok"}])
    task = asyncio.create_task(it.run("one"))
    while not engine.requests or len(await stored(store)) < 1:
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    await it.run("two")
    assert "half\n(stopped here)" in [message.text for message in engine.requests[1].messages]


async def test_a_turn_that_is_stopped_while_tools_are_gathered_keeps_what_was_asked() -> None:
    gathering = asyncio.Event()

    class Slow:
        async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
            gathering.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

        async def aclose(self) -> None: ...

    it, store, _ = agent([{"text": "never"}], services=TurnServices(sources=[Slow()]))
    task = asyncio.create_task(it.run("how much rain?"))
    await gathering.wait()
    task.cancel("stopped by you")
    with pytest.raises(asyncio.CancelledError):
        await task
    [turn] = await store.turns(KEY)
    assert (turn.state, turn.reason) == ("cancelled", "stopped by you")
    assert [(m.role, m.text) for m in await stored(store)] == [("user", "how much rain?")]


@pytest.mark.parametrize("store_kind", ["memory", "sqlite"])
async def test_cancelled_at_any_await_a_turn_is_closed_and_leaves_no_unanswered_call(
    store_kind: str, tmp_path: object
) -> None:
    step = 0
    while True:
        step += 1
        store = MemoryStore() if store_kind == "memory" else SqliteStore(tmp_path / f"{step}.db")  # type: ignore[operator]
        script: list[dict[str, Any]] = [
            {"text": "let me see", "calls": [python("a"), python("b")]},
            {"text": "done", "deltas": 3},
        ]
        it, _, _ = agent(script, [Recorder()], store=store)
        events: list[EventBody] = []
        stepper = CancelledAt(it.turn(TurnRequest("go"), events.append), step)
        task = asyncio.create_task(stepper.run())
        await asyncio.wait([task])
        finished = not task.cancelled()
        states = [turn.state for turn in await store.turns(KEY)]
        assert set(states) <= {"committed", "cancelled"}, step
        messages = await stored(store) if await store.info(KEY) else []
        answered = [message.call_id or "" for message in messages if message.role == "tool"]
        assert sorted(answered) == sorted(call.id for message in messages for call in message.calls), step
        if events:
            assert isinstance(events[-1], TurnFinished), step
            assert [events[-1].state] == states, step
        await store.aclose()
        if finished and step > stepper.suspensions:
            break
    assert step > 8


async def test_a_second_turn_of_a_busy_session_is_refused_before_anything_is_announced() -> None:
    it, store, _ = agent([{"fault": "hang"}, {"text": "ok"}])
    first = asyncio.create_task(it.run("one"))
    while not await store.turns(KEY):
        await asyncio.sleep(0)
    events: list[EventBody] = []
    with pytest.raises(SessionBusy):
        await it.turn(TurnRequest("two"), events.append)
    assert events == []
    first.cancel()
    await asyncio.wait([first])


async def test_a_turn_whose_lease_is_lost_writes_nothing_more_and_fails() -> None:
    store = MemoryStore()
    turn_writer = TurnWriter(store, heartbeat_s=0.01)
    it = Agent(store, ScriptedEngine([{"text": "a", "fault": "hang"}]), KEY, services=TurnServices(turn_writer))
    task = asyncio.create_task(it.run("go"))
    while not await stored(store) if await store.info(KEY) else True:
        await asyncio.sleep(0)
    turn = (await store.turns(KEY))[0]
    await store.close_turn(turn, turn_writer.owner, "interrupted", "taken over")
    result = await task
    assert result.state == "failed"
    assert isinstance(result.error, LeaseLost)
    assert (await store.turns(KEY))[0].state == "interrupted"
    assert [message.text for message in await stored(store)] == ["go"]


async def test_hidden_notes_come_before_the_prompt_and_stay_in_the_history() -> None:
    it, store, engine = agent([{"text": "ok"}, {"text": "ok"}])
    await it.run(TurnRequest("sum df", notes=(Note("df", "a DataFrame of 3 rows"),)))
    await it.run("again")
    assert [(m.text, m.hidden) for m in (await stored(store))[:2]] == [
        ("df: a DataFrame of 3 rows", True),
        ("sum df", False),
    ]
    assert engine.requests[1].messages[:3] == engine.requests[0].messages


async def test_a_restarted_kernel_is_told_to_the_person_and_the_model_once() -> None:
    it, _, engine = agent([{"calls": [python("x = 1")]}, {"text": "ok", "loop": True}], [Recorder()])
    seen: list[list[EventBody]] = []
    for epoch in ("k1", "k1", "k2", "k2"):
        seen.append([])
        await it.turn(TurnRequest("go", epoch=epoch), seen[-1].append)
    assert [any(isinstance(body, StateLost) for body in bodies) for bodies in seen] == [False, False, True, False]
    assert user(LOST, hidden=True) in engine.requests[3].messages


async def test_usage_is_summed_over_rounds_and_stored_with_the_turn() -> None:
    it, store, _ = agent([{"calls": [python("x")]}, {"text": "two words"}], [Recorder()])
    result = await it.run("go")
    assert result.usage.completion_tokens == 2
    assert result.usage.reused_tokens > 0
    assert (await store.turns(KEY))[0].usage == result.usage.to_json()


async def test_an_answer_cut_at_the_token_limit_is_announced() -> None:
    class Cut(ScriptedEngine):
        async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
            yield TextChunk("The answer is")
            yield EndChunk("length", Usage())

    events: list[EventBody] = []
    await Agent(MemoryStore(), Cut([]), KEY).turn(TurnRequest("go"), events.append)
    assert any(isinstance(body, Notice) and "token limit" in body.text for body in events)


async def test_events_tell_the_turn_in_order() -> None:
    it, _, _ = agent([{"text": "hm", "calls": [python("x")]}, {"text": "done"}], [Recorder()])
    events = [event async for event in it.stream("go")]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert types([event.body for event in events]) == [
        "turn.started",
        "context",
        "text.delta",
        "call.started",
        "call.finished",
        "context",
        "text.delta",
        "turn.finished",
    ]


async def test_closing_the_stream_stops_the_turn() -> None:
    it, store, _ = agent([{"text": "endless", "fault": "hang"}])
    stream = it.stream("go")
    async for event in stream:
        if event.body.type == "text.delta":
            break
    await stream.aclose()
    assert [(turn.state, turn.reason) for turn in await store.turns(KEY)] == [
        ("cancelled", "stopped by the program that asked")
    ]


async def test_what_the_model_reads_of_a_result_is_limited_and_says_so() -> None:
    it, store, _ = agent([{"calls": [python("x")]}, {"text": "ok"}], [Recorder(lambda code: "y" * 100_000)])
    events: list[EventBody] = []
    await it.turn(TurnRequest("go"), events.append)
    result = (await stored(store))[2].text
    assert len(result) < 7_000
    assert "94000 characters left out" in result
    assert next(body.text for body in events if isinstance(body, CallFinished)) == result


async def test_an_owner_can_be_given_and_is_what_the_lease_names() -> None:
    store = MemoryStore()
    owner = Owner.here()
    assert (
        await Agent(store, ScriptedEngine([{"text": "ok"}]), KEY, services=TurnServices(TurnWriter(store, owner))).run(
            "go"
        )
    ).state == "committed"


class Diary(SessionObserver):
    def __init__(self) -> None:
        self.entries: list[tuple[object, ...]] = []

    def on_session_load(self, run_id: str, session_id: str, message_count: int) -> None:
        self.entries.append(("load", run_id, session_id, message_count))

    async def on_session_save(self, run_id: str, session_id: str, message_count: int) -> None:
        self.entries.append(("save", run_id, session_id, message_count))

    def on_conflict(self, session_id: str, error: Exception) -> None:
        self.entries.append(("conflict", session_id, type(error).__name__))


async def test_an_observer_hears_what_was_read_and_what_was_kept() -> None:
    diary = Diary()
    it, _, _ = agent([{"text": "ok", "loop": True}], observers=[diary])
    first, second = await it.run("one"), await it.run("two")
    assert diary.entries == [
        ("load", first.turn, "s1", 0),
        ("save", first.turn, "s1", 2),
        ("load", second.turn, "s1", 2),
        ("save", second.turn, "s1", 2),
    ]


async def test_an_observer_hears_that_the_turn_was_taken_over() -> None:
    diary, store = Diary(), MemoryStore()

    class Taken(Recorder):
        async def call(self, arguments: Any, context: Any) -> Any:
            [turn] = [turn for turn in await store.turns(KEY) if turn.state == "open"]
            await store.close_turn(turn, turn_writer.owner, "interrupted", "taken over")
            return await super().call(arguments, context)

    turn_writer = TurnWriter(store)
    it, _, _ = agent(
        [{"calls": [python("x")]}, {"text": "ok"}],
        [Taken()],
        store=store,
        services=TurnServices(turn_writer),
        observers=[diary],
    )
    assert (await it.run("go")).state == "failed"
    assert ("conflict", "s1", "LeaseLost") in diary.entries


async def test_an_observer_that_fails_harms_no_turn() -> None:
    class Rude(SessionObserver):
        def on_session_load(self, run_id: str, session_id: str, message_count: int) -> None:
            raise ValueError("no")

    it, _, _ = agent([{"text": "ok"}], observers=[Rude()])
    assert (await it.run("go")).state == "committed"


async def test_a_key_reaches_the_model_of_this_turn_and_neither_store_nor_events() -> None:
    key = "sk-" + "proj-abcdEFGH0123ijklMNOP"
    tool = Recorder(lambda code: f"{key} works")
    bodies: list[EventBody] = []
    it, store, engine = agent([{"calls": [python(f"login('{key}')")]}, {"text": f"{key} it is", "loop": True}], [tool])
    await it.turn(TurnRequest(f"use {key}"), bodies.append)
    assert tool.ran == [f"login('{key}')"]
    assert [message.text for message in engine.requests[1].messages if key in message.text] == [
        f"use {key}",
        f"{key} works",
    ]
    assert key not in str(await store.everything(KEY))
    assert key not in str(bodies)
    await it.run("again")
    assert key not in str(engine.requests[2])


class EndlessEngine(ScriptedEngine):
    """An engine that stops without an EndChunk, as when a connection is closed cleanly."""

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        async for chunk in super().stream(request):
            if not isinstance(chunk, EndChunk):
                yield chunk


async def test_an_engine_that_stops_without_an_end_fails_the_turn_and_its_text_is_stored_as_interrupted() -> None:
    store = MemoryStore()
    it = Agent(store, EndlessEngine([{"text": "The answer is"}]), KEY)
    result = await it.run("what is it?")
    assert (result.state, type(result.error)) == ("failed", EngineError)
    assert [(m.text, m.status) for m in await stored(store)][1:] == [("The answer is", "interrupted")]
    assert result.usage.completion_tokens > 0
    assert result.usage.estimated


async def test_the_result_of_a_failed_turn_raises_its_error_when_it_is_asked_to() -> None:
    it, _, _ = agent([{"text": "x", "fault": "error"}, {"text": "fine"}])
    failed = await it.run("break")
    assert failed.error is not None
    with pytest.raises(type(failed.error), match=re.escape(failed.error.message)):
        failed.raise_for_state()
    answered = await it.run("again")
    assert answered.raise_for_state() is answered
    with pytest.raises(TurnStopped, match="interrupted"):
        TurnResult("t", "interrupted", "", Usage(), 0).raise_for_state()


async def test_a_cancelled_turn_reports_the_tokens_of_what_the_model_had_said() -> None:
    it, store, _ = agent([{"calls": [python("x")]}, {"text": "It begins", "fault": "hang"}], [Recorder()])
    bodies: list[EventBody] = []
    begun = asyncio.Event()

    def emit(body: EventBody) -> None:
        bodies.append(body)
        if isinstance(body, TextDelta):
            begun.set()

    task = asyncio.create_task(it.turn(TurnRequest("go"), emit))
    await begun.wait()
    task.cancel("stop")
    await asyncio.wait([task])
    end = bodies[-1]
    assert isinstance(end, TurnFinished)
    assert end.state == "cancelled"
    usage = Usage.from_json(end.usage)
    assert usage.estimated
    assert usage.completion_tokens >= 3
    assert usage.prompt_tokens > len("go") / 3
    turn = (await store.turns(KEY))[-1]
    assert Usage.from_json(turn.usage) == usage
