"""Tests that a user edits a call before approving it: what is allowed, what runs, and what is recorded."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from agent_kernel.core.errors import Conflict, InvalidRequest
from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, EventBody
from agent_kernel.core.messages import Message, ToolCall
from agent_kernel.core.protocols import Tool
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.permissions import Answer, Approvals, Gate
from agent_kernel.permissions.approval_answer import MAX_EDITED, hash_edit
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.sessions.stored_annotations import StoredAnnotations
from agent_kernel.turn.redacted_events import RedactedEvents
from agent_kernel.turn.tool_executor import RoundPosition, Toolbox
from tests.permissions.asking import LIVE, Asked, gate
from tests.scripted import python
from tests.turns import KEY, Recorder, agent

EDITABLE = replace(LIVE, editable="code")
SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


def editable(tool: Recorder) -> Recorder:
    tool.spec = replace(tool.spec, kind="python.live", editable="code")
    return tool


async def ran(tool: Tool, call: ToolCall, answer: Answer) -> tuple[Message, list[EventBody]]:
    toolbox = Toolbox([tool], Gate(Approvals(), ask=lambda question: answer))
    events: list[EventBody] = []
    async with aclosing(toolbox.run([call], RoundPosition(KEY, "t", 1), events.append)) as results:
        [result] = [result async for result in results]
        return result, events


async def test_the_edited_text_runs_is_recorded_and_is_told_to_the_model() -> None:
    tool = editable(Recorder())
    result, events = await ran(tool, ToolCall("c", "python", {"code": "drop()"}), Answer("approve", edited="keep()"))
    assert tool.ran == ["keep()"]
    assert "The person changed your text" in result.text
    assert "keep()" in result.text
    assert result.text.endswith("KEEP()")
    [question] = [body for body in events if isinstance(body, ApprovalRequired)]
    assert (question.code, question.editable) == ("drop()", "code")
    [resolved] = [body for body in events if isinstance(body, ApprovalResolved)]
    assert resolved.edited == "keep()"


async def test_a_text_that_was_not_changed_is_no_edit() -> None:
    tool = editable(Recorder())
    result, events = await ran(tool, ToolCall("c", "python", {"code": "x"}), Answer("approve", edited="x"))
    assert (tool.ran, result.text) == (["x"], "X")
    assert [body.edited for body in events if isinstance(body, ApprovalResolved)] == [None]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a = 1\u202e#", "U\\+202E"),
        ("a = 1\u200b", "U\\+200B"),
        ("a\r= 1", "U\\+000D"),
        (" \n", "empty"),
        ("x" * (MAX_EDITED + 1), "200,000"),
    ],
)
def test_a_text_that_a_person_cannot_see_or_read_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        Answer("approve", edited=text)


@pytest.mark.parametrize("how", [{"decision": "deny"}, {"decision": "approve", "remember": "session"}])
def test_an_edited_text_is_approved_for_one_call_only(how: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match='must be "once"'):
        Answer(**how, edited="x = 1")


async def test_a_call_without_an_editable_text_stays_as_it_is() -> None:
    asked = Asked(gate())
    question = await asked.question()
    assert question.editable == ""
    with pytest.raises(InvalidRequest, match="cannot be edited"):
        await asked.gate.approvals.answer("local", question.approval, Answer("approve", edited="x"))
    await asked.gate.approvals.answer("local", question.approval, Answer("approve"))
    assert (await asked.verdict()).edited is None


async def test_an_argument_that_is_no_text_cannot_be_edited() -> None:
    question = await Asked(gate(), EDITABLE, ToolCall("c", "python", {"code": 3})).question()
    assert question.editable == ""


async def test_the_first_text_counts_and_another_one_is_refused_also_after_the_turn() -> None:
    asked = Asked(gate(), EDITABLE)
    question = await asked.question()
    approvals = asked.gate.approvals
    first = Answer("approve", edited="df.tail()")
    for _ in range(2):
        await approvals.answer("local", question.approval, first)
        for other in (Answer("approve"), Answer("approve", edited="df.sum()")):
            with pytest.raises(Conflict, match="with another text"):
                await approvals.answer("local", question.approval, other)
        assert (await asked.verdict()).edited == "df.tail()"
    kept = await approvals.find("local", question.approval)
    assert kept.edited == hash_edit("df.tail()")


def test_a_key_in_an_edited_text_is_not_shown() -> None:
    shown: list[EventBody] = []
    RedactedEvents(Redactor(), shown.append)(ApprovalResolved("a", "c", "approve", "", f"key = '{SECRET}'"))
    assert SECRET not in str(shown)
    assert "key = " in str(shown)


async def test_a_stored_turn_has_the_edited_text() -> None:
    answers = iter([Answer("approve", edited="b = 2"), Answer("approve")])
    asking = Gate(Approvals(), ask=lambda question: next(answers))
    calls = ([python("a = 1")], [python("c = 3")])
    script: list[dict[str, Any]] = [*({"text": "", "calls": one} for one in calls), {"text": "done"}]
    session, store, _ = agent(script, [editable(Recorder())], gate=asking)
    await session.run(TurnRequest("go"))
    [turn] = await store.turns(KEY)
    [first, second] = [call.id for item in await store.latest(KEY) for call in item.message.calls]
    kept = StoredAnnotations(turn.record)
    assert (kept.take_edit(first), kept.take_edit(second)) == ("b = 2", None)
