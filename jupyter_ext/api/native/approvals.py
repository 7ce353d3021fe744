"""Routes that list the approval questions that wait for a person, take the answers, and list and revoke the decisions
stored for the rest of a session."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import Field

from agent_kernel.core.approval import ApprovalQuestion, Remember
from agent_kernel.core.errors import Forbidden, NotFound
from agent_kernel.core.session import SessionKey
from agent_kernel.permissions.approval_answer import MAX_EDITED, Answer
from agent_kernel.permissions.approvals import PendingQuestion
from agent_kernel.permissions.gate import to_json
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.request_schemas import Body
from jupyter_ext.api.schemas import sessions, turns
from jupyter_ext.api.schemas.errors import ApprovalError
from jupyter_ext.api.schemas.operation import Parameter, operation

KEPT = (
    "An approval applies once, for the session or for the folder; a denial can also apply to all later calls of the "
    "tool in the session (never)."
)


class ApprovalBody(Body):
    """The answer to an approval question. ``remember_for_session`` is another way to write ``remember: session``, and
    ``reason`` another name of ``message``. ``shown`` is the hash of what the user saw. ``edited`` is the text with
    which this one call runs, in place of the argument that the question names in ``editable``."""

    decision: Literal["approve", "deny"]
    remember: Remember = "once"
    remember_for_session: bool = False
    message: Annotated[str, Field(max_length=2_000)] = ""
    reason: Annotated[str, Field(max_length=2_000)] = ""
    shown: Annotated[str, Field(max_length=64)] = ""
    edited: Annotated[str, Field(max_length=MAX_EDITED)] | None = None

    def answer(self) -> Answer:
        """Return the answer. Raises InvalidRequest for fields that contradict each other."""
        remember = "session" if self.remember_for_session and self.remember == "once" else self.remember
        return Answer(self.decision, remember, self.message or self.reason, self.shown, self.edited)


def waiting_to_json(waiting: PendingQuestion) -> dict[str, Any]:
    """Return the fields of the event that asks the question, with the session, the turn and the time."""
    question = waiting.question
    place = {"session": question.key.id, "turn": question.turn, "asked": round(question.asked, 3)}
    return {**dataclasses.asdict(waiting.required), **place}


class QuestionHandler(AgentHandler):
    async def question(self, approval: str) -> ApprovalQuestion:
        """Return the open question with the id ``approval`` if the caller may answer it. A caller with the token of a
        kernel, or with a token of the API, may answer only questions of turns that it started. Raises NotFound."""
        pending = await self.services.runtime.approvals.find(self.caller.namespace, approval)
        if not await self.may_answer(pending):
            raise NotFound("There is no approval question with this id, or you may not answer it.")
        return pending

    async def may_answer(self, question: ApprovalQuestion) -> bool:
        if question.key.namespace != self.caller.namespace:
            return False
        if not self.caller.started_by:
            return True
        turn = self.services.turns.get(question.turn)
        turn = turn or await self.services.remote_turns.find(question.key.namespace, question.turn)
        return turn is not None and turn.spec.started_by == self.caller.started_by


class ApprovalsHandler(QuestionHandler):
    @guard("read")
    @operation(turns.Approvals)
    async def get(self) -> None:
        """List the approval questions that wait for an answer.

        The oldest question comes first.
        """
        waiting = self.services.runtime.approvals.waiting
        pending = [question for question in waiting if await self.may_answer(question.question)]
        self.reply({"approvals": [waiting_to_json(question) for question in pending]})


class ApprovalHandler(QuestionHandler):
    error_shape = ApprovalError

    @guard("read")
    @operation(turns.Question, errors=(404,))
    async def get(self, approval: str) -> None:
        """Get an approval question and its outcome."""
        question = await self.question(approval)
        body = dataclasses.asdict(question) | {"session": question.key.id}
        self.reply({name: value for name, value in body.items() if name != "key"})

    @guard("execute")
    @operation(turns.Resolved, body=ApprovalBody, errors=(404, 409, 507), conditions=KEPT)
    async def post(self, approval: str) -> None:
        """Answer an approval question."""
        answer = self.parse(ApprovalBody).answer()
        if self.caller.kernel is not None and answer.remember != "once":
            raise Forbidden(
                "A kernel can answer for one call only; a decision for a session needs a person in the browser."
            )
        if self.caller.kernel is not None and answer.edited is not None:
            raise Forbidden("A kernel cannot edit a call; that needs a person in the browser.")
        try:
            await self.question(approval)
        except NotFound as error:
            self.reply({"status": "not_found", "error": {**error.to_json(), "request_id": self.request_id}}, 404)
            return
        decision = await self.services.turn_control.approve(self.caller.namespace, approval, answer)
        outcome = {"decision": decision.decision, "remember": decision.remember, "message": decision.message}
        self.reply({"status": "resolved", **outcome})


class PolicyHandler(AgentHandler):
    """The server's permission policy, by kind of call and by name of tool."""

    def policy(self) -> dict[str, Any]:
        runtime = self.services.runtime
        return {
            "policy": {name: to_json(ruling) for name, ruling in runtime.policy.table()},
            "approval_timeout_s": runtime.settings.approval_timeout_s,
            "effort": runtime.settings.effort,
            "instructions": bool(runtime.settings.instructions.strip()),
            "web": runtime.settings.has_web_search,
        }

    @guard("read")
    @operation(sessions.Policy)
    async def get(self) -> None:
        """Get the server's permission policy."""
        self.reply(self.policy())


class PermissionsHandler(PolicyHandler):
    """The route ``sessions/{id}/permissions``: the policy, and the decisions stored in this session."""

    @guard("read")
    @operation(sessions.Permissions, errors=(404,))
    async def get(self, session_id: str) -> None:  # type: ignore[override]  # tornado gives what the path names
        """Get the permission policy and the decisions stored in a session."""
        session = await self.services.access.session(self.caller, session_id)
        grants = await self.services.runtime.approvals.grants.grants(session.key)
        self.reply({"session": session_id, "grants": [dataclasses.asdict(grant) for grant in grants], **self.policy()})

    @guard("execute")
    @operation(
        sessions.Revoked,
        query=(
            Parameter("kind", "Only decisions about this kind of call."),
            Parameter("tool", "Only decisions about this tool."),
        ),
        errors=(404,),
    )
    async def delete(self, session_id: str) -> None:
        """Revoke decisions stored in a session.

        Revokes those for ``kind`` and ``tool``, or without these parameters all of them.
        """
        session = await self.services.access.session(self.caller, session_id)
        kind, tool = self.get_argument("kind", None), self.get_argument("tool", None)
        self.reply({"revoked": await self._revoke(session.key, kind, tool)})

    async def _revoke(self, key: SessionKey, kind: str | None, tool: str | None) -> int:
        """Revoke decisions. A kernel may revoke an approval but not a denial, which would permit more than before."""
        grants = self.services.runtime.approvals.grants
        if self.caller.kernel is None:
            return await grants.revoke(key, kind, tool)
        revocable = [grant for grant in await grants.grants(key) if grant.decision == "approve"]
        revocable = [grant for grant in revocable if kind in (None, grant.kind) and tool in (None, grant.tool)]
        return sum([await grants.revoke(key, grant.kind, grant.tool) for grant in revocable])
