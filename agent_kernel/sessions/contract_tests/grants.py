"""Tests of ``Grants``: questions, their answers, and grants for a session.

Not part of the contract of every session store. Needs the fixtures ``store``, ``clock`` and ``owner`` of ``suite``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent_kernel.core.approval import UNANSWERED, ApprovalQuestion, Grant
from agent_kernel.core.errors import InvalidRequest, SessionNotFound
from agent_kernel.core.messages import user
from agent_kernel.core.seams.session_store import PersistentStore
from agent_kernel.core.session import Owner, SessionKey
from agent_kernel.sessions.contract_tests.fixtures import KEY, Talk, assert_raises, calls, result, snapshot

OTHER = SessionKey("local", "other")
LIVE = Grant("python.live", "python", "approve", 1.0)
SHELL = Grant("shell", "shell", "deny", 2.0)
QUESTION = ApprovalQuestion("appr_1", KEY, "t", "c1", "python.live", "python", "5" * 64, asked=1.0)


async def test_grants_are_of_one_session_kind_and_tool(store: PersistentStore) -> None:
    for key in (KEY, OTHER):
        await store.create(key)
    await store.grant(KEY, SHELL)
    await store.grant(KEY, LIVE)
    await store.grant(OTHER, replace(LIVE, tool="run"))
    assert await store.grants(KEY) == [LIVE, SHELL]
    await store.grant(KEY, replace(LIVE, decision="deny"))
    assert await store.grants(KEY) == [replace(LIVE, decision="deny"), SHELL]
    assert await store.grants(SessionKey("ann", KEY.id)) == []


async def test_grants_are_taken_back_by_kind_by_tool_or_all(store: PersistentStore) -> None:
    await store.create(KEY)
    for grant in (LIVE, replace(LIVE, tool="run"), SHELL):
        await store.grant(KEY, grant)
    assert await store.revoke(KEY, "python.live", "run") == 1
    assert await store.revoke(KEY, "mcp") == 0
    assert await store.revoke(KEY, "shell") == 1
    assert await store.grants(KEY) == [LIVE]
    assert await store.revoke(KEY) == 1
    assert await store.revoke(KEY) == 0


async def test_nothing_is_granted_in_a_session_that_is_not_there(store: PersistentStore) -> None:
    await assert_raises(SessionNotFound, store.grant(KEY, LIVE))
    await assert_raises(SessionNotFound, store.ask(QUESTION))


@pytest.mark.parametrize("ends", ["delete", "clear"])
async def test_grants_and_questions_go_with_their_session(store: PersistentStore, ends: str) -> None:
    await store.create(KEY)
    await store.grant(KEY, LIVE)
    await store.ask(QUESTION)
    await getattr(store, ends)(KEY)
    await store.create(KEY)
    assert await store.grants(KEY) == []
    assert await store.question("local", QUESTION.id) is None


async def test_neither_a_fork_nor_a_copy_has_the_grants(store: PersistentStore) -> None:
    await store.create(KEY)
    await store.grant(KEY, LIVE)
    await store.fork(KEY, OTHER)
    whole = await snapshot(store)
    third = SessionKey("local", "third")
    await store.restore(replace(whole, session=replace(whole.session, key=third)), {})
    assert await store.grants(OTHER) == await store.grants(third) == []


async def test_the_first_answer_to_a_question_counts(store: PersistentStore) -> None:
    await store.create(KEY)
    await store.ask(QUESTION)
    assert await store.question("local", QUESTION.id) == QUESTION
    assert await store.question("ann", QUESTION.id) is None
    yes = replace(QUESTION, outcome="approve", remember="session", message="go on", answered=3.0, edited="e" * 64)
    assert await store.answer(yes, LIVE) == yes
    no = replace(QUESTION, outcome="deny", remember="never", answered=4.0)
    assert await store.answer(no, replace(LIVE, decision="deny")) == yes
    assert await store.question("local", QUESTION.id) == yes
    assert await store.grants(KEY) == [LIVE]


async def test_words_that_utf_8_can_not_hold_are_refused_and_the_question_waits(store: PersistentStore) -> None:
    await store.create(KEY)
    await store.ask(QUESTION)
    await assert_raises(InvalidRequest, store.answer(replace(QUESTION, outcome="deny", message="\ud800")))
    assert await store.question("local", QUESTION.id) == QUESTION


async def open_question(store: PersistentStore, owner: Owner) -> Talk:
    """Open a turn with three calls, and return it as a Talk: c0 has its result, c1 waits for an answer of the user,
    and c2 is running."""
    talk = await Talk.begin(store, owner)
    await talk.say(user("hi"), calls("c0", "c1", "c2"), result("c0"))
    await store.ask(replace(QUESTION, turn=talk.turn.id))
    done = replace(QUESTION, id="appr_0", turn=talk.turn.id, call="c2")
    await store.ask(done)
    await store.answer(replace(done, outcome="approve", answered=2.0))
    return talk


async def test_a_turn_that_is_interrupted_says_which_call_was_never_answered_for(
    store: PersistentStore, owner: Owner
) -> None:
    talk = await open_question(store, owner)
    assert await talk.close("interrupted", "the server was stopped")
    assert (await talk.texts())[-2:] == [UNANSWERED, "the server was stopped"]
    assert await _outcomes(store) == {"appr_0": "approve", "appr_1": "interrupted"}


async def test_a_turn_that_is_stopped_takes_its_questions_with_it(store: PersistentStore, owner: Owner) -> None:
    talk = await open_question(store, owner)
    assert await talk.close("cancelled", "stopped by the person")
    assert (await talk.texts())[-2:] == ["stopped by the person", "stopped by the person"]
    assert await _outcomes(store) == {"appr_0": "approve", "appr_1": "cancelled"}


async def _outcomes(store: PersistentStore) -> dict[str, Any]:
    questions = {id: await store.question("local", id) for id in ("appr_0", "appr_1")}
    return {id: question.outcome for id, question in questions.items() if question}
