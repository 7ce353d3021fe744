import asyncio

import pytest

from agent_kernel.errors import NotFound
from agent_kernel.events import ApprovalRequired, ApprovalResolved, Body, Emit
from agent_kernel.messages import ToolCall
from agent_kernel.permissions import Approvals, Gate, strictest
from agent_kernel.protocols import ToolContext, ToolSpec
from agent_kernel.sessions.model import SessionKey

LIVE = ToolSpec("python", "", {}, kind="python.live", where="live")
SANDBOX = ToolSpec("python", "", {}, kind="python.sandbox", where="sandbox")
UNHEARD = ToolSpec("rocket", "", {}, kind="rocket.launch")
CALL = ToolCall("c1", "python", {"code": "df.head()\n"})


def asked_by(emit: Emit) -> ToolContext:
    return ToolContext(SessionKey("local", "s"), "t", 1, CALL, emit)


async def test_sandboxed_code_runs_without_a_question() -> None:
    verdict = await Gate(Approvals()).decide(SANDBOX, asked_by(lambda body: None))
    assert verdict.allowed


async def test_live_code_nobody_can_answer_for_is_denied_at_once_with_that_reason() -> None:
    events: list[Body] = []
    verdict = await Gate(Approvals()).decide(LIVE, asked_by(events.append))
    assert not verdict.allowed
    assert "nobody can answer" in verdict.reason
    assert events == []


async def test_a_kind_the_gate_has_never_heard_of_asks() -> None:
    verdict = await Gate(Approvals()).decide(UNHEARD, asked_by(lambda body: None))
    assert not verdict.allowed


@pytest.mark.parametrize(("decision", "allowed"), [("approve", True), ("deny", False)])
async def test_an_ask_shows_the_exact_code_and_waits_for_the_answer(decision: str, allowed: bool) -> None:
    approvals, events = Approvals(), list[Body]()
    gate = Gate(approvals, answers=frozenset({"python.live"}))
    asked = asyncio.create_task(gate.decide(LIVE, asked_by(events.append)))
    await asyncio.sleep(0)
    question = events[0]
    assert isinstance(question, ApprovalRequired)
    assert (question.code, question.target) == ("df.head()\n", "live")
    approvals.resolve(question.approval, decision)  # type: ignore[arg-type]  # parametrised with the two literals
    assert (await asked).allowed is allowed
    assert isinstance(events[1], ApprovalResolved)


async def test_an_approval_is_answered_once() -> None:
    approvals, events = Approvals(), list[Body]()
    asked = asyncio.create_task(Gate(approvals, answers=frozenset("*")).decide(LIVE, asked_by(events.append)))
    await asyncio.sleep(0)
    question = events[0]
    assert isinstance(question, ApprovalRequired)
    approvals.resolve(question.approval, "deny", "not now")
    with pytest.raises(NotFound):
        approvals.resolve(question.approval, "approve")
    assert (await asked).reason == "not now"
    with pytest.raises(NotFound):
        approvals.turn_of(question.approval)


async def test_a_stopped_turn_takes_its_question_back() -> None:
    approvals, events = Approvals(), list[Body]()
    asked = asyncio.create_task(Gate(approvals, answers=frozenset("*")).decide(LIVE, asked_by(events.append)))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert approvals.pending == {}
    assert isinstance(events[-1], ApprovalResolved)


@pytest.mark.parametrize(
    ("server", "request_permission", "allowed"),
    [("auto", "auto", True), ("deny", "auto", False), ("auto", "deny", False), ("ask", "auto", False)],
)
async def test_the_stricter_of_server_and_request_wins(server: str, request_permission: str, allowed: bool) -> None:
    gate = Gate(Approvals(), server=server, request=request_permission)  # type: ignore[arg-type]  # as above
    assert (await gate.decide(SANDBOX, asked_by(lambda body: None))).allowed is allowed


def test_strictness_is_auto_then_ask_then_deny() -> None:
    assert strictest("auto", "deny", "ask") == "deny"
    assert strictest("auto", "ask") == "ask"
