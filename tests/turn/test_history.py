"""Tests which history a turn continues: histories in requests, branches, input hooks and limits, through an agent."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest, StoreError
from agent_kernel.core.messages import Media, Message, ToolCall, assistant, system, tool_result, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions import history_merge, message_comparison
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.turn.agent import Agent, TurnRequest
from agent_kernel.turn.context import INSTRUCTIONS
from agent_kernel.turn.lost_variables import LOST
from tests.narrowing import not_none
from tests.scripted import python
from tests.turns import KEY, CancelledAt, Recorder, agent, stored

u1, a1, u2, a2 = user("u1"), assistant("a1"), user("u2"), assistant("a2")
OK = [{"text": "ok", "loop": True}]
TOOLS = [{"calls": [python("abc")], "when": "tool"}, {"text": "ok", "loop": True}]


def carrying(*messages: Message, prompt: str = "", **options: Any) -> TurnRequest:
    return TurnRequest(prompt, messages=messages, **options)


async def fill_store(store: SessionStore, *turns: Sequence[Message]) -> SessionStore:
    for number, said in enumerate(turns, 1):
        await store.add_turn(Turn(f"t{number}", KEY), said)
    return store


def model_texts(engine: ScriptedEngine, at: int = -1) -> list[str]:
    """Return what the model saw, without our instructions."""
    messages = engine.requests[at].messages
    return [message.text for message in messages[1:]]


async def texts(store: SessionStore, branch: str | None = None) -> list[str]:
    return [item.message.text for item in await store.latest(KEY, branch=branch)]


async def branches(store: SessionStore) -> list[tuple[str, int, bool]]:
    return [(branch.name, branch.head, branch.current) for branch in await store.branches(KEY)]


# ------------------------------------------------------------------------------------------- replay and append


async def test_a_client_that_resends_its_conversation_keeps_the_tools_that_ran_here() -> None:
    it, store, engine = agent([{"calls": [python("abc")]}, {"text": "It is ABC."}, *OK], [Recorder()])
    await it.run("shout")
    await it.run(carrying(user("shout"), assistant("It is ABC."), prompt="again"))
    assert model_texts(engine) == ["shout", "", "ABC", "It is ABC.", "again"]
    assert await texts(store) == ["shout", "", "ABC", "It is ABC.", "again", "ok"]
    assert await branches(store) == [("main", 6, True)]


async def test_a_conversation_had_elsewhere_becomes_turns_of_a_new_session() -> None:
    it, store, engine = agent(OK)
    calls = assistant("", [ToolCall("x", "f", {})])
    result = await it.run(carrying(u1, a1, u2, calls, tool_result(calls.calls[0], "2", "success"), a2, user("u3")))
    assert (result.state, result.saved) == ("committed", 2)
    assert model_texts(engine) == ["u1", "a1", "u2", "", "2", "a2", "u3"]
    assert [turn.since for turn in await store.turns(KEY)] == [0, 2, 6]
    assert (await store.fork(KEY, SessionKey("local", "fork"), 1)).head == 2


async def test_an_edit_and_a_retry_are_branches_and_nothing_is_lost() -> None:
    store = await fill_store(MemoryStore(), [u1, a1], [u2, a2])
    it, _, engine = agent(OK, store=store)
    await it.run(carrying(u1, a1, user("u2x")))
    assert model_texts(engine) == ["u1", "a1", "u2x"]
    assert await branches(store) == [("main", 4, False), ("branch-2", 6, True)]
    await it.run(carrying(u1, a1, user("u2x")))
    assert await branches(store) == [("main", 4, False), ("branch-2", 6, False), ("branch-3", 8, True)]
    assert await texts(store, "main") == ["u1", "a1", "u2", "a2"]
    assert [branch for _, branch in await store.siblings(KEY, "t2")] == ["main", "branch-2", "branch-3"]


async def test_a_client_that_goes_back_to_an_older_branch_goes_on_there() -> None:
    store = await fill_store(MemoryStore(), [u1, a1], [u2, a2])
    it, _, _ = agent(OK, store=store)
    await it.run(carrying(u1, a1, user("u2x")))
    await it.run(carrying(u1, a1, u2, a2, user("u3")))
    assert await branches(store) == [("main", 8, True), ("branch-2", 6, False)]
    assert await texts(store) == ["u1", "a1", "u2", "a2", "u3", "ok"]


async def test_a_branch_that_is_a_beginning_of_what_the_client_has_does_not_hide_the_one_that_has_it_all() -> None:
    store = await fill_store(MemoryStore(), [u1, a1], [u2, a2])
    await store.branch(KEY, before="t2")
    it, _, _ = agent(OK, store=store)
    await it.run(carrying(u1, a1, u2, a2, user("u3")))
    assert await branches(store) == [("main", 6, True), ("branch-2", 2, False)]


async def test_a_client_that_sends_only_what_is_new_with_its_instructions_keeps_the_history() -> None:
    store = await fill_store(MemoryStore(), [u1, a1])
    it, _, engine = agent(OK, store=store)
    await it.run(carrying(system("Be brief."), system("Speak French."), user("u2")))
    assert engine.requests[0].messages[0].text == "Be brief.\n\nSpeak French."
    assert model_texts(engine) == ["u1", "a1", "u2"]
    assert await texts(store) == ["u1", "a1", "u2", "ok"]


async def test_instructions_with_a_date_are_of_one_turn_and_double_nothing() -> None:
    it, store, engine = agent(OK)
    said: list[Message] = []
    for day in ("Monday", "Tuesday", "Wednesday"):
        said.append(user(f"It is {day}"))
        await it.run(carrying(system(f"Today is {day}."), *said))
        said.append(assistant("ok"))
    assert await texts(store) == [message.text for message in said]
    assert len(await store.branches(KEY)) == 1
    assert [request.messages[0].text for request in engine.requests] == [
        f"Today is {day}." for day in ("Monday", "Tuesday", "Wednesday")
    ]
    await it.run("and without")
    assert engine.requests[-1].messages[0].text == INSTRUCTIONS


async def test_a_request_may_say_what_its_messages_are() -> None:
    store = await fill_store(MemoryStore(), [u1, a1])
    it, _, engine = agent(OK, store=store)
    await it.run(carrying(user("example"), assistant("answer"), user("u2"), history="append"))
    assert model_texts(engine) == ["u1", "a1", "example", "answer", "u2"]
    await it.run(carrying(user("u1x"), history="replay"))
    assert model_texts(engine) == ["u1x"]
    assert await texts(store, "main") == ["u1", "a1", "example", "answer", "u2", "ok"]


async def test_a_prompt_comes_behind_the_messages() -> None:
    it, _, engine = agent(OK)
    await it.run(carrying(u1, a1, prompt="u2"))
    assert model_texts(engine) == ["u1", "a1", "u2"]


@pytest.mark.parametrize("request_", [TurnRequest(), carrying(u1, a1), carrying(system("s"))])
async def test_a_request_that_says_nothing_new_fails_and_stores_nothing(request_: TurnRequest) -> None:
    it, store, engine = agent(OK)
    result = await it.run(request_)
    assert isinstance(result.error, InvalidRequest)
    assert (engine.requests, await stored(store)) == ([], [])


async def test_a_new_picture_is_shown_beside_the_stored_ones() -> None:
    old, new = (Media.of("image/png", data) for data in (b"old", b"new"))
    it, store, _ = agent([])
    engine = ScriptedEngine(OK, vision=True)
    it = Agent(store, engine, KEY)
    await it.run(carrying(user("look", [old])))
    await it.run(carrying(user("look", [old]), assistant("ok"), user("and this", [new])))
    assert [medium.data for message in engine.requests[-1].messages for medium in message.media] == [b"old", b"new"]
    assert len(await stored(store)) == 4


async def test_a_key_that_was_taken_out_of_what_is_kept_does_not_make_a_branch() -> None:
    secret = "my key is sk-" + "a1b2c3d4" * 5
    it, store, engine = agent(OK)
    await it.run(secret)
    await it.run(carrying(user(secret), assistant("ok"), prompt=f"again: {secret}"))
    assert [name for name, _, _ in await branches(store)] == ["main"]
    assert all("sk-a1b2" not in text for text in await texts(store))
    assert model_texts(engine)[-1] == f"again: {secret}"


async def test_results_that_come_late_answer_their_call_on_a_branch() -> None:
    call = assistant("", [ToolCall("c", "f", {})])
    late = tool_result(call.calls[0], "late", "success")
    store = await fill_store(MemoryStore(), [u1, call, replace(late, status="interrupted"), a1])
    it, _, engine = agent(OK, store=store)
    await it.run(carrying(late))
    assert model_texts(engine) == ["u1", "", "late"]
    assert await branches(store) == [("main", 4, False), ("branch-2", 7, True)]


async def test_long_conversations_are_compared_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[str] = []
    real = asyncio.to_thread

    async def noted(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        beside.append(function.__name__)
        return await real(function, *args, **kwargs)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    said = [message for n in range(200) for message in (user(f"u{n}"), assistant(f"a{n}"))]
    store = await fill_store(MemoryStore(), said)
    it, _, _ = agent(OK, store=store)
    assert (await it.run(carrying(*said, user("more")))).state == "committed"
    assert (beside, len(await store.branches(KEY))) == (["plan_replay"], 1)


# ------------------------------------------------------------------------------------------- known outcomes


async def test_a_turn_that_fails_before_it_said_anything_leaves_no_branch() -> None:
    def hook(history: list[Message], new: list[Message]) -> list[Message]:
        raise LookupError("not today")

    store = await fill_store(MemoryStore(), [u1, a1], [u2, a2])
    it, _, _ = agent(OK, store=store, input_hook=hook)
    assert (await it.run(carrying(u1, a1, user("u2x")))).state == "failed"
    assert await branches(store) == [("main", 4, True)]


async def test_a_failed_edit_is_kept_on_its_branch_and_asked_again_beside_it() -> None:
    store = await fill_store(MemoryStore(), [u1, a1], [u2, a2])
    it, _, engine = agent([{"text": "half", "fault": "out of memory"}, *OK], store=store)
    edit = carrying(u1, a1, user("u2x"))
    assert (await it.run(edit)).state == "failed"
    assert await branches(store) == [("main", 4, False), ("branch-2", 6, True)]
    assert (await it.run(edit)).state == "committed"
    assert model_texts(engine) == ["u1", "a1", "u2x"]
    assert await branches(store) == [("main", 4, False), ("branch-2", 8, True)]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_edit_cancelled_at_any_await_leaves_no_empty_branch_and_no_open_turn(kind: str, tmp_path: Any) -> None:
    n = 0
    while True:
        n += 1
        store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / f"{n}.db")
        await fill_store(store, [u1, a1], [u2, a2])
        it, _, _ = agent([{"calls": [python("x")]}, {"text": "ok"}], [Recorder()], store=store)
        run = CancelledAt(it.run(carrying(u1, a1, user("u2x"))), n)
        task = asyncio.create_task(run.run())
        await asyncio.wait([task])
        made = [branch for branch in await store.branches(KEY) if branch.name != "main"]
        assert all(branch.head > branch.since for branch in made)
        assert await texts(store, "main") == ["u1", "a1", "u2", "a2"]
        assert all(turn.state != "open" for turn in await store.turns(KEY))
        for name in ("main", *(branch.name for branch in made)):
            said = [item.message for item in await store.latest(KEY, branch=name)]
            assert history_merge.drop_unpaired(said) == said
        assert (await it.run("u3")).error is None or n
        await store.aclose()
        if run.suspensions < n:
            return


async def test_a_store_that_refuses_the_items_keeps_its_branches() -> None:
    class Full(MemoryStore):
        async def append_at(self, *args: Any, **kwargs: Any) -> Any:
            raise StoreError("The disk is full.")

    store = await fill_store(Full(), [u1, a1], [u2, a2])
    it, _, _ = agent(OK, store=store)
    assert (await it.run(carrying(u1, a1, user("u2x")))).state == "failed"
    assert await branches(store) == [("main", 4, True)]


# ------------------------------------------------------------------------------------------- input hook


def one_of_history(history: list[Message], new: list[Message]) -> list[Message]:
    return [*history[:1], *history, *new]


async def test_b1_history_that_a_hook_repeats_is_stored_once() -> None:
    it, store, _ = agent([{"text": "a", "loop": True}], input_hook=one_of_history)
    for number in range(3):
        await it.run(f"user {number}")
    assert [text for text in await texts(store) if text != "a"] == ["user 0", "user 1", "user 2"]
    assert len(await texts(store)) == 6


async def test_b2_a_hook_may_keep_only_what_the_person_said() -> None:
    async def hook(history: list[Message], new: list[Message]) -> list[Message]:
        return [*(message for message in history if message.role == "user"), *new]

    store = await fill_store(MemoryStore(), [u1, a1])
    it, _, engine = agent(OK, store=store, input_hook=hook)
    await it.run("new")
    assert model_texts(engine) == ["u1", "new"]
    assert await texts(store) == ["u1", "a1", "new", "ok"]


async def test_b3_a_list_of_input_comes_behind_the_history() -> None:
    store = await fill_store(MemoryStore(), [u1, a1])
    it, _, engine = agent(OK, store=store)
    await it.run(carrying(user("one"), user("two")))
    assert model_texts(engine) == ["u1", "a1", "one", "two"]


async def test_b8_what_a_hook_leaves_out_is_not_stored_and_what_it_adds_is() -> None:
    def hook(history: list[Message], new: list[Message]) -> list[Message]:
        return [user("extra"), *copy.deepcopy(history), *new] if new[-1].text == "add" else history

    store = await fill_store(MemoryStore(), [u1, a1])
    it, _, engine = agent(OK, store=store, input_hook=hook)
    first = await it.run("drop")
    assert (model_texts(engine), first.saved) == (["u1", "a1"], 1)
    second = await it.run("add")
    assert (model_texts(engine), second.saved) == (["extra", "u1", "a1", "ok", "add"], 3)
    assert await texts(store) == ["u1", "a1", "ok", "extra", "add", "ok"]


async def test_b9_a_hook_that_returns_no_list_fails_the_turn_and_one_that_is_none_is_refused() -> None:
    it, store, _ = agent(OK, input_hook=lambda history, new: "text")
    result = await it.run("u1")
    assert (type(result.error), await stored(store)) == (InvalidRequest, [])
    with pytest.raises(InvalidRequest):
        agent(OK, input_hook="history[-2:]")


async def test_what_came_in_the_turn_is_stored_whatever_the_hook_hides() -> None:
    it, store, engine = agent(
        [{"calls": [python("abc")]}, {"text": "done"}], [Recorder()], input_hook=lambda history, new: new[-1:]
    )
    await fill_store(store, [u1, a1])
    result = await it.run("shout")
    assert model_texts(engine) == ["shout", "", "ABC"]
    assert (await texts(store), result.saved) == (["u1", "a1", "shout", "", "ABC", "done"], 4)


async def test_a_hook_may_not_take_a_call_from_its_result() -> None:
    call = assistant("", [ToolCall("c", "f", {})])
    hook = lambda history, new: [*(said for said in history if said.role != "tool"), *new]  # noqa: E731
    store = await fill_store(MemoryStore(), [u1, call, tool_result(call.calls[0], "2", "success"), a1])
    it, _, engine = agent(OK, store=store, input_hook=hook)
    await it.run("new")
    assert [(message.text, message.calls) for message in engine.requests[0].messages[1:]] == [
        ("u1", ()),
        ("a1", ()),
        ("new", ()),
    ]


async def test_a_hook_works_on_a_replay_and_its_branch_begins_with_the_first_item_that_is_kept() -> None:
    store = await fill_store(MemoryStore(), [u1, a1], [u2, a2])
    it, _, engine = agent(OK, store=store, input_hook=lambda history, new: history)
    await it.run(carrying(u1, a1, user("u2x")))
    assert model_texts(engine) == ["u1", "a1"]
    assert await branches(store) == [("main", 4, False), ("branch-2", 5, True)]


# ------------------------------------------------------------------------------------------- limits

SIX = [[user(f"Message {n}"), assistant(f"Response {n}")] for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("limit", "seen"),
    [(2, ["Message 3", "Response 3", "Message 4"]), (0, ["Message 4"]), (3, ["Response 2", "Message 3", "Response 3"])],
)
async def test_b4_a_limit_counts_the_newest_items_before_what_is_new(limit: int, seen: list[str]) -> None:
    store = await fill_store(MemoryStore(), *SIX)
    it, _, engine = agent(OK, store=store, history_limit=limit)
    await it.run("Message 4")
    assert model_texts(engine)[: len(seen)] == seen
    assert len(model_texts(engine)) == limit + 1


async def test_a8_a_request_has_its_own_limit_and_the_sessions_stays() -> None:
    store = await fill_store(MemoryStore(), *SIX)
    it, _, engine = agent(OK, store=store, history_limit=100)
    await it.run(TurnRequest("Message 4", history_limit=2))
    assert model_texts(engine) == ["Message 3", "Response 3", "Message 4"]
    await it.run("Message 5")
    assert len(model_texts(engine)) == 9


async def test_without_a_limit_all_of_it_is_seen() -> None:
    store = await fill_store(MemoryStore(), *SIX)
    it, _, engine = agent(OK, store=store)
    await it.run("Message 4")
    assert len(model_texts(engine)) == 7


async def test_b5_a_limit_does_not_take_a_result_from_its_call() -> None:
    call = assistant("", [ToolCall("c1", "f", {})])
    store = await fill_store(MemoryStore(), [u1, call, tool_result(call.calls[0], "output", "success"), a1])
    it, _, engine = agent(OK, store=store, history_limit=2)
    await it.run("new")
    assert model_texts(engine) == ["a1", "new"]


async def test_a_limit_holds_for_a_conversation_that_is_carried() -> None:
    it, _, engine = agent(OK)
    await it.run(carrying(u1, a1, u2, a2, prompt="u3", history_limit=1))
    assert model_texts(engine) == ["a2", "u3"]


async def test_a_hook_gets_the_history_within_the_limit() -> None:
    given_: list[int] = []

    def hook(history: list[Message], new: list[Message]) -> list[Message]:
        given_.append(len(history))
        return history + new

    it, _, _ = agent(OK, store=await fill_store(MemoryStore(), *SIX), history_limit=4, input_hook=hook)
    await it.run("Message 4")
    assert given_ == [4]


async def test_a_negative_limit_is_a_mistake() -> None:
    with pytest.raises(InvalidRequest):
        agent(OK, history_limit=-1)
    it, _, _ = agent(OK)
    assert isinstance((await it.run(TurnRequest("x", history_limit=-1))).error, InvalidRequest)


async def test_b6_a_result_without_its_call_is_refused() -> None:
    """Stated difference: the SDK keeps a lone result that is new; here no store could hold it."""
    it, store, engine = agent(OK)
    result = await it.run(carrying(tool_result(ToolCall("c", "f", {}), "alone", "success")))
    assert isinstance(result.error, InvalidRequest)
    assert (engine.requests, await stored(store)) == ([], [])


async def test_b7_of_two_results_of_one_call_the_new_one_is_seen() -> None:
    call = assistant("", [ToolCall("c", "f", {})])
    store = await fill_store(MemoryStore(), [u1, call, tool_result(call.calls[0], "history-output", "success")])
    it, _, engine = agent(OK, store=store)
    await it.run(carrying(tool_result(call.calls[0], "new-output", "success"), prompt="go on", history="append"))
    assert model_texts(engine) == ["u1", "", "new-output", "go on"]


# ------------------------------------------------------------------------------------------- stated differences


async def test_case_n_a_turn_that_fails_is_kept_marked_and_unseen() -> None:
    """Stated difference: mistral.rs forgets it."""
    store = await fill_store(MemoryStore(), [u1, a1])
    it, _, engine = agent([{"text": "half", "fault": "broken"}, *OK], store=store)
    await it.run(carrying(u1, a1, user("lost")))
    assert await texts(store) == ["u1", "a1", "lost", "half"]
    await it.run(carrying(u1, a1, user("next")))
    assert model_texts(engine) == ["u1", "a1", "next"]
    assert await branches(store) == [("main", 6, True)]


async def test_cases_h_and_i_sessions_stay_however_many_and_however_old() -> None:
    """Stated difference: mistral.rs keeps 128, for 30 minutes (the preset of that name)."""
    now = [1_000_000.0]
    store = MemoryStore(clock=lambda: now[0])
    for number in range(130):
        await store.create(SessionKey("local", f"s{number}"))
    now[0] += 90 * 24 * 3600
    assert len(await store.list("local", None)) == 130
    assert await store.info(SessionKey("local", "s0")) is not None


@pytest.mark.parametrize(("turns", "items"), [(0, 0), (1, 4), (9, 7)])
async def test_case_j_a_fork_has_as_many_turns_as_asked_for(turns: int, items: int) -> None:
    """Stated difference: a fork of 0 turns is empty; in mistral.rs it has all."""
    call = assistant("", [ToolCall("c", "f", {})])
    pair = [call, tool_result(call.calls[0], "1", "success")]
    store = await fill_store(MemoryStore(), [u1, *pair, a1], [u2, *pair])
    target = SessionKey("local", "fork")
    await store.fork(KEY, target, turns)
    assert len(await store.latest(target)) == items


async def test_case_k_a_session_that_leaves_and_comes_back_is_the_same() -> None:
    picture = Media.of("image/png", b"png")
    store = await fill_store(MemoryStore(), [user("look", [picture]), a1], [u2, a2])
    it, _, _ = agent(OK, store=store)
    await it.run(carrying(user("look", [picture]), a1, user("u2x")))
    first = not_none(await store.whole(KEY))
    other = MemoryStore()
    await other.restore(first, {picture.hash: b"png"})
    second = not_none(await other.whole(KEY))
    assert (second.items, second.tree, second.branches) == (first.items, first.tree, first.branches)
    again, _, _ = agent(OK, store=other)
    await again.run(carrying(user("look", [picture]), a1, u2, a2, user("u3")))
    assert [branch.current for branch in await other.branches(KEY)] == [True, False]


async def test_case_m_a_cap_of_two_is_two_executions_and_three_model_calls_in_a_replay_too() -> None:
    tool = Recorder()
    it, _, engine = agent([{"calls": [python("x")], "text": "end", "loop": True}], [tool], max_tool_rounds=2)
    await it.run(carrying(u1, a1, u2))
    assert (len(tool.ran), len(engine.requests)) == (2, 3)


async def test_case_o_events_of_a_replay_come_in_order() -> None:
    it, _, _ = agent([{"calls": [python("abc")]}, {"text": "done"}], [Recorder()])
    events = [event.body.type async for event in it.stream(carrying(u1, a1, u2))]
    wanted = ["turn.started", "context", "call.started", "call.finished", "context", "text.delta", "turn.finished"]
    assert [type_ for type_ in events if type_ in wanted] == wanted


async def test_case_p_an_unknown_id_is_kept() -> None:
    store = MemoryStore()
    key = SessionKey("local", "my own id")
    await Agent(store, ScriptedEngine(OK), key).run(carrying(u1, a1, u2))
    assert (await store.info(key)) is not None
    assert len(await store.latest(key)) == 4


async def test_hidden_context_of_earlier_turns_stays_where_it_was() -> None:
    it, store, engine = agent([{"calls": [python("x = 1")]}, *OK], [Recorder()])
    await it.run(TurnRequest("u1", epoch="kernel-1"))
    await it.run(carrying(user("u1"), assistant("ok"), prompt="u2", epoch="kernel-2"))
    await it.run(carrying(user("u1"), assistant("ok"), user("u2"), assistant("ok"), prompt="u3", epoch="kernel-2"))
    assert model_texts(engine) == ["u1", "", "X = 1", "ok", LOST, "u2", "ok", "u3"]
    assert len(await store.branches(KEY)) == 1


# ------------------------------------------------------------------------------------------- any sequence of requests

steps = st.lists(
    st.tuples(st.sampled_from(["replay", "append", "edit", "retry", "back"]), st.booleans(), st.integers(0, 9)),
    min_size=1,
    max_size=7,
)


@given(steps)
@settings(max_examples=30)
async def test_whatever_clients_do_nothing_is_doubled_lost_or_left_dangling(
    script: list[tuple[str, bool, int]],
) -> None:
    """A client keeps what it knows of each conversation it ever had; the store agrees with it after each turn."""
    store, tool, script_ = MemoryStore(), Recorder(), [{"calls": [python("x")], "when": "tool", "loop": True}]
    known: list[list[Message]] = [[]]
    said_in_all = 0
    for number, (step, with_tool, pick) in enumerate(script):
        it, _, engine = agent([{**script_[0], "loop": False}, *OK], [tool], store=store)
        prompt = user(f"{'tool' if with_tool else 'say'} {number}")
        carried = list(known[-1])
        if step == "back":
            carried = list(known[pick % len(known)])
        asked_at = [at for at, message in enumerate(carried) if message.role == "user"]
        if step in ("edit", "retry") and asked_at:
            at = asked_at[pick % len(asked_at)]
            prompt = carried[at] if step == "retry" else prompt
            carried = carried[:at]
        request = carrying(prompt) if step == "append" else carrying(*carried, prompt, history="replay")
        result = await it.run(request)
        assert result.state == "committed"
        said_in_all += result.saved
        known.append([*carried, prompt, assistant(result.text)])
        await _agrees(store, known[-1], said_in_all)
        assert history_merge.drop_unpaired(list(engine.requests[-1].messages)) == list(engine.requests[-1].messages)


async def _agrees(store: MemoryStore, client: list[Message], said_in_all: int) -> None:
    whole = not_none(await store.whole(KEY))
    assert len(whole.items) == said_in_all
    shown = {item.seq for branch in whole.branches for item in whole.select_branch(branch.name)[1]}
    assert shown == {item.seq for item in whole.items}
    for branch in whole.branches:
        said = [item.message for item in whole.select_branch(branch.name)[1]]
        assert history_merge.drop_unpaired(said) == said
    current = [item.message for item in whole.select_branch()[1]]
    visible = [message_comparison.comparison_form(current[at]) for at in message_comparison.visible_indices(current)]
    assert visible == [message_comparison.comparison_form(message) for message in client]
    assert await store.verify() == []
