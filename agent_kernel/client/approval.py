"""Sends a program's decisions about calls that wait for approval."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from agent_kernel.client.http import ServerConnection
from agent_kernel.core.errors import AgentKernelError, InvalidRequest, NotFound, ServerUnreachable
from agent_kernel.core.events import ApprovalRequired
from agent_kernel.core.thread_offload import run_in_own_thread
from agent_kernel.notebook.server_client import route

log = logging.getLogger(__name__)
FAILED = "The program that had to decide about this call failed."


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about one call. ``message`` is for the model.

    ``remember`` says how long the decision applies: ``once``, or ``session`` for the rest of the session. An approval
    of a path can also be ``folder`` (the whole folder for the rest of the session). A denial can also be ``never``
    (such calls are denied for the rest of the session). The server accepts only those values that the approval request
    offers. ``edited`` is a new value for the argument that the approval request names in ``editable``; None leaves the
    call unchanged.
    """

    decision: Literal["approve", "deny"]
    message: str = ""
    remember: str = "once"
    edited: str | None = None

    @classmethod
    def approve(cls, remember: str = "once", *, edited: str | None = None) -> Decision:
        return cls("approve", remember=remember, edited=edited)

    @classmethod
    def deny(cls, message: str = "", remember: str = "once") -> Decision:
        return cls("deny", message, remember)


Said: TypeAlias = Decision | bool | str
"""The values that a callback ``approve`` may return. True approves, False denies. A string denies the call, and the
model reads the string as the reason."""
Approve: TypeAlias = Callable[[ApprovalRequired], Said | Awaitable[Said]]


def decision_of(answer: object) -> Decision:
    """Convert the return value of ``approve``. Raises InvalidRequest for any other value, so that nothing is approved
    by accident."""
    if isinstance(answer, Decision):
        return answer
    if isinstance(answer, bool):
        return Decision("approve" if answer else "deny")
    if isinstance(answer, str):
        return Decision.deny(answer)
    raise InvalidRequest(
        f"A {type(answer).__name__} is not a decision about a call.",
        hint="Return True, False, a string with the reason for a denial, or a Decision.",
    )


async def decide(connection: ServerConnection, request: ApprovalRequired, decision: Decision) -> bool:
    """Send the decision. The server applies it only to the call exactly as it was shown. Returns False if the call no
    longer waits for a decision."""
    body: dict[str, Any] = {
        "decision": decision.decision,
        "remember": decision.remember,
        "message": decision.message,
        "shown": request.shown,
    }
    if decision.edited is not None:
        body["edited"] = decision.edited
    try:  # the first decision counts, so the request may be repeated
        await connection.call("POST", route("agent", "approvals", request.approval), body, repeatable=True)
    except NotFound:
        return False
    return True


async def ask(connection: ServerConnection, request: ApprovalRequired, approve: Approve) -> None:
    """Call ``approve`` and send the decision that it returns. A synchronous callback runs in a thread of its own.

    If the callback raises an exception, the call is denied. If an approval cannot be remembered, it applies once. If
    the server rejects a decision, the call is denied, so that it does not wait forever.
    """
    try:
        decision = decision_of(await _call_approve(approve, request))
    except Exception:  # the callback is code of the caller and may raise anything
        log.exception("the callback approve raised an exception, so the call is denied")
        decision = Decision.deny(FAILED)
    for attempt in dict.fromkeys((decision, replace(decision, remember="once"), Decision.deny(FAILED))):
        try:
            await decide(connection, request, attempt)
            return
        except ServerUnreachable as error:
            log.warning("the decision about a call could not be sent to the server: %s", error)
            return
        except AgentKernelError as error:
            log.warning("the server refused the decision about a call: %s", error)


async def _call_approve(approve: Approve, request: ApprovalRequired) -> object:
    if inspect.iscoroutinefunction(approve):
        return await approve(request)
    answer = await run_in_own_thread(lambda: approve(request), "approval")
    return await answer if inspect.isawaitable(answer) else answer
