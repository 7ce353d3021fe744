from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent_kernel.core.approval import ApprovalQuestion, Grant
from agent_kernel.core.errors import Conflict, InvalidRequest, NotFound, StoreFull
from agent_kernel.core.events import ApprovalRequired, EventBody
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.settings import Permission
from agent_kernel.permissions import AdminPolicy, Answer, Approvals, Gate, strictest
from agent_kernel.permissions.admin_policy import AdminFile
from agent_kernel.permissions.approvals import MemoryGrants
from tests.permissions.asking import CALL, KEY, LIVE, SANDBOX, SEARCH, UNHEARD, Asked, context, gate

SESSION = Answer("approve", "session")


async def test_sandboxed_code_runs_without_a_question() -> None:
    assert (await Gate(Approvals()).decide(SANDBOX, context())).allowed


async def test_live_code_nobody_can_answer_for_is_denied_at_once_with_that_reason() -> None:
    events: list[EventBody] = []
    verdict = await Gate(Approvals()).decide(LIVE, context(events.append))
    assert not verdict.allowed
    assert "nobody can answer" in verdict.reason
    assert events == []


async def test_a_kind_the_gate_has_never_heard_of_asks() -> None:
    assert not (await Gate(Approvals()).decide(UNHEARD, context())).allowed


@pytest.mark.parametrize(("decision", "allowed"), [("approve", True), ("deny", False)])
async def test_an_ask_shows_the_exact_code_and_waits_for_the_answer(decision: str, allowed: bool) -> None:
    asked = Asked(gate(answers=frozenset({"python.live"})))
    question = await asked.question()
    assert (question.code, question.target) == ("df.head()\n", "live")
    await asked.gate.approvals.answer("local", question.approval, Answer(decision))  # type: ignore[arg-type]
    assert (await asked.verdict()).allowed is allowed
    assert [body.decision for body in asked.resolved] == [decision]


async def test_a_denial_with_words_tells_the_model_the_words() -> None:
    verdict = await Asked(gate()).answered(Answer("deny", message="use the sandbox"))
    assert verdict.reason == "denied: use the sandbox"


async def test_the_same_answer_again_is_the_same_and_another_one_is_refused() -> None:
    asked = Asked(gate())
    question = await asked.question()
    approvals = asked.gate.approvals
    first = await approvals.answer("local", question.approval, Answer("deny", message="not now"))
    assert not (await asked.verdict()).allowed
    assert await approvals.answer("local", question.approval, Answer("deny")) == first
    with pytest.raises(Conflict, match="not now"):
        await approvals.answer("local", question.approval, Answer("approve"))
    with pytest.raises(NotFound):
        await approvals.answer("local", "appr_none", Answer("approve"))
    with pytest.raises(NotFound):
        await approvals.answer("other", question.approval, Answer("deny"))


async def test_of_many_answers_at_once_one_counts() -> None:
    asked = Asked(gate())
    question = await asked.question()
    answers = [Answer("approve" if n % 2 else "deny", message=str(n)) for n in range(20)]
    said = await asyncio.gather(
        *(asked.gate.approvals.answer("local", question.approval, answer) for answer in answers),
        return_exceptions=True,
    )
    first = next(answer for answer in said if isinstance(answer, Answer))
    assert {type(outcome) for outcome in said} == {Answer, Conflict}
    assert all(outcome == first for outcome in said if isinstance(outcome, Answer))
    assert (await asked.verdict()).allowed is (first.decision == "approve")


async def test_an_answer_for_what_was_not_shown_is_refused_and_the_call_still_waits() -> None:
    asked = Asked(gate())
    question = await asked.question()
    with pytest.raises(Conflict, match="a different call"):
        await asked.gate.approvals.answer("local", question.approval, Answer("approve", shown="0" * 64))
    await asked.gate.approvals.answer("local", question.approval, Answer("approve", shown=question.shown))
    assert (await asked.verdict()).allowed


async def test_what_is_shown_is_the_name_the_target_and_the_arguments() -> None:
    calls = [CALL, ToolCall("c9", "python", {"code": "df.head()\n"}), ToolCall("c1", "python", {"code": "df.tail()\n"})]
    same, again, code = [(await Asked(gate(), call=call).question()).shown for call in calls]
    elsewhere = (await Asked(gate(), replace(LIVE, where="client")).question()).shown
    named = (await Asked(gate(), replace(LIVE, name="run")).question()).shown
    assert same == again
    assert len({same, code, elsewhere, named}) == 4


async def test_what_is_allowed_for_the_session_is_not_asked_again_and_nothing_else_is_allowed_with_it() -> None:
    held = gate()
    assert (await Asked(held).answered(SESSION)).allowed
    assert (await held.decide(LIVE, context(turn="t2"))).allowed
    await Asked(held, replace(LIVE, name="other")).question()
    await Asked(held, SEARCH).question()
    elsewhere = replace(context(), key=replace(KEY, id="another"))
    assert not (await replace(held, answers=frozenset()).decide(LIVE, elsewhere)).allowed


async def test_what_is_denied_for_good_is_not_asked_again_even_where_it_would_be_free() -> None:
    held = gate()
    assert not (await Asked(held).answered(Answer("deny", "never"))).allowed
    verdict = await held.decide(LIVE, context())
    assert (verdict.allowed, "asked for it again" in verdict.reason) == (False, True)
    assert not (await replace(held, policy={"python.live": "auto"}).decide(LIVE, context())).allowed


def test_never_is_no_approval_and_a_denial_that_is_remembered_is_never() -> None:
    with pytest.raises(InvalidRequest):
        Answer("approve", "never")
    assert Answer("deny", "session").remember == "never"


async def test_a_turn_can_leave_out_what_was_remembered() -> None:
    held = gate()
    await Asked(held).answered(SESSION)
    assert not (await replace(held, answers=frozenset(), remembered=False).decide(LIVE, context())).allowed


async def test_a_denial_counts_also_where_what_was_remembered_does_not() -> None:
    held = gate()
    await Asked(held).answered(Answer("deny", "never"))
    assert not (await replace(held, remembered=False).decide(LIVE, context())).allowed


async def test_after_words_of_strangers_live_code_is_asked_for_again_and_only_a_person_can_answer() -> None:
    held = gate()
    await Asked(held).answered(SESSION)
    assert (await held.decide(LIVE, context())).allowed
    question = await Asked(held, foreign="fetch_page brought text").question()
    assert question.again == "fetch_page brought text"
    assert question.remember == ("never",)
    headless = replace(held, answers=frozenset({"python.live"}))
    verdict = await headless.decide(LIVE, context(foreign="fetch_page brought text"))
    assert (verdict.allowed, "fetch_page" in verdict.reason) == (False, True)
    assert (await headless.decide(SANDBOX, context(foreign="fetch_page brought text"))).allowed


async def test_an_answer_that_can_not_be_remembered_is_refused() -> None:
    asked = Asked(gate(admin=admin(live="ask")))
    question = await asked.question()
    with pytest.raises(InvalidRequest, match="'remember' cannot be"):
        await asked.gate.approvals.answer("local", question.approval, SESSION)
    await asked.gate.approvals.answer("local", question.approval, Answer("approve"))
    assert (await asked.verdict()).allowed


def admin(permission: Permission = "auto", live: Permission = "auto") -> AdminPolicy:
    return AdminPolicy((AdminFile(Path("/etc/policy.toml"), permission, {"python.live": live}, binding=True),))


async def test_no_grant_weakens_what_the_administrator_wants_asked() -> None:
    held = gate()
    await held.approvals.grants.grant(KEY, Grant("python.live", "python", "approve"))
    assert (await held.decide(LIVE, context())).allowed
    await Asked(replace(held, admin=admin(live="ask"))).question()
    await Asked(replace(held, admin=admin(permission="ask"))).question()


async def test_a_stopped_turn_takes_its_question_back() -> None:
    asked = Asked(gate())
    await asked.question()
    assert asked.task is not None
    asked.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked.task
    assert asked.gate.approvals.waiting == []
    assert [body.decision for body in asked.resolved] == ["cancelled"]
    assert not asked.gate.approvals.was_interrupted("t")


async def test_a_server_that_stops_leaves_the_question_unanswered() -> None:
    asked = Asked(gate())
    await asked.question()
    assert asked.task is not None
    asked.gate.approvals.stop()
    asked.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked.task
    assert [body.decision for body in asked.resolved] == ["interrupted"]
    assert asked.gate.approvals.was_interrupted("t")


async def test_silence_is_no_where_nobody_is_waited_for() -> None:
    held = Gate(Approvals(), answers=frozenset({"python.live"}), timeout_s=0.05)
    asked = Asked(held)
    question = await asked.question()
    assert question.until is not None
    verdict = await asked.verdict()
    assert (verdict.allowed, verdict.reason) == (False, "denied: nobody answered within 0 s")
    with pytest.raises(Conflict, match="nobody answered"):
        await held.approvals.answer("local", question.approval, Answer("approve"))
    assert (
        await held.approvals.answer("local", question.approval, Answer("deny"))
    ).message == "nobody answered within 0 s"


async def test_a_person_is_waited_for_as_long_as_it_takes() -> None:
    assert (await Asked(gate(timeout_s=0.01)).question()).until is None


async def test_a_handler_in_this_process_answers() -> None:
    seen: list[ApprovalRequired] = []

    async def later(question: ApprovalRequired) -> Answer:
        seen.append(question)
        return Answer("approve", "session")

    held = gate(ask=later, answers=frozenset())
    assert (await held.decide(LIVE, context())).allowed
    assert (await held.decide(LIVE, context())).allowed
    assert [question.code for question in seen] == ["df.head()\n"]
    assert (await gate(ask=lambda question: True).decide(LIVE, context())).allowed
    assert not (await gate(ask=lambda question: False).decide(LIVE, context())).allowed


async def test_a_handler_that_fails_has_said_no() -> None:
    def broken(question: ApprovalRequired) -> bool:
        raise RuntimeError("no display")

    verdict = await gate(ask=broken).decide(LIVE, context())
    assert verdict.reason == "denied: the function that answers approval requests failed (RuntimeError)"
    verdict = await gate(ask=lambda question: Answer("approve", "folder")).decide(LIVE, context())
    assert verdict.reason == "denied: the function that answers approval requests failed (InvalidRequest)"


class FullGrants(MemoryGrants):
    """A store whose disk is full from the n-th write on."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.left = writes

    async def ask(self, question: ApprovalQuestion) -> None:
        self._write()
        await super().ask(question)

    async def answer(self, question: ApprovalQuestion, grant: Grant | None = None) -> ApprovalQuestion:
        self._write()
        return await super().answer(question, grant)

    def _write(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreFull("No space left.")


async def test_a_question_that_can_not_be_kept_is_no() -> None:
    verdict = await Gate(Approvals(FullGrants(0)), answers=frozenset("*")).decide(LIVE, context())
    assert verdict.reason == "denied: the question to a person could not be stored (No space left.)"


async def test_an_answer_that_can_not_be_kept_leaves_the_question_waiting() -> None:
    grants = FullGrants(1)
    asked = Asked(Gate(Approvals(grants), answers=frozenset("*")))
    question = await asked.question()
    with pytest.raises(StoreFull):
        await asked.gate.approvals.answer("local", question.approval, SESSION)
    grants.left = 1
    await asked.gate.approvals.answer("local", question.approval, SESSION)
    assert (await asked.verdict()).allowed


class SlowGrants(MemoryGrants):
    """A store that saves an answer but delays its first reply."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = asyncio.Event()

    async def answer(self, question: ApprovalQuestion, grant: Grant | None = None) -> ApprovalQuestion:
        kept = await super().answer(question, grant)
        if not self.kept.is_set():
            self.kept.set()
            await asyncio.Event().wait()
        return kept


async def test_who_left_while_the_answer_was_kept_has_answered() -> None:
    grants = SlowGrants()
    asked = Asked(Gate(Approvals(grants), answers=frozenset("*")))
    question = await asked.question()
    approvals = asked.gate.approvals
    first = asyncio.create_task(approvals.answer("local", question.approval, Answer("deny")))
    await grants.kept.wait()
    first.cancel()
    with pytest.raises(Conflict):
        await approvals.answer("local", question.approval, Answer("approve"))
    assert not (await asked.verdict()).allowed


@pytest.mark.parametrize(
    ("server", "request_permission", "allowed"),
    [("auto", "auto", True), ("deny", "auto", False), ("auto", "deny", False), ("ask", "auto", False)],
)
async def test_the_stricter_of_server_and_request_wins(server: str, request_permission: str, allowed: bool) -> None:
    held = Gate(Approvals(), server=server, request=request_permission)  # type: ignore[arg-type]  # as above
    assert (await held.decide(SANDBOX, context())).allowed is allowed


def test_strictness_is_auto_then_ask_then_deny() -> None:
    assert strictest("auto", "deny", "ask") == "deny"
    assert strictest("auto", "ask") == "ask"
