"""What a program decides of a call that waits for a person, and how it is asked."""

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
from agent_kernel.notebook.server_client import quote_segment

log = logging.getLogger(__name__)
FAILED = "The program that was to decide failed."


@dataclass(frozen=True, slots=True)
class Decision:
    """``remember``: once, or for the rest of the ``session`` (of a path also ``folder``; ``never`` of a no), where the
    approval offers it. The model reads ``message``."""

    decision: Literal["approve", "deny"]
    message: str = ""
    remember: str = "once"

    @classmethod
    def approve(cls, remember: str = "once") -> Decision:
        return cls("approve", remember=remember)

    @classmethod
    def deny(cls, message: str = "", remember: str = "once") -> Decision:
        return cls("deny", message, remember)


Said: TypeAlias = Decision | bool | str
"""A text is a no with that message."""
Approve: TypeAlias = Callable[[ApprovalRequired], Said | Awaitable[Said]]


def decision_of(said: object) -> Decision:
    """Raises InvalidRequest for what is no decision: nothing is approved by accident."""
    if isinstance(said, Decision):
        return said
    if isinstance(said, bool):
        return Decision("approve" if said else "deny")
    if isinstance(said, str):
        return Decision.deny(said)
    raise InvalidRequest(f"A {type(said).__name__} is no decision.", hint="True, False, a reason, or a Decision.")


async def decide(connection: ServerConnection, asked: ApprovalRequired, decision: Decision) -> bool:
    """Tells the server; it counts for what was shown and nothing else. False: nothing waits for it any more."""
    body: dict[str, Any] = {
        "decision": decision.decision,
        "remember": decision.remember,
        "message": decision.message,
        "shown": asked.shown,
    }
    try:  # what was said first counts, so it may be said again
        await connection.call("POST", f"agent/approvals/{quote_segment(asked.approval)}", body, kept=True)
    except NotFound:
        return False
    return True


async def ask(connection: ServerConnection, asked: ApprovalRequired, approve: Approve) -> None:
    """Asks ``approve``, sync (in a thread of its own) or async. Who fails to decide denies. A yes that may not be
    remembered counts once; a decision that the server does not take is a no, so that nothing waits for ever."""
    try:
        decision = decision_of(await _said(approve, asked))
    except Exception:
        log.exception("a callback for approvals failed")
        decision = Decision.deny(FAILED)
    for said in dict.fromkeys((decision, replace(decision, remember="once"), Decision.deny(FAILED))):
        try:
            await decide(connection, asked, said)
            return
        except ServerUnreachable as error:
            log.warning("a decision could not be told: %s", error)
            return
        except AgentKernelError as error:
            log.warning("a decision was not taken: %s", error)


async def _said(approve: Approve, asked: ApprovalRequired) -> object:
    if inspect.iscoroutinefunction(approve):
        return await approve(asked)
    said = await run_in_own_thread(lambda: approve(asked), "approval")
    return await said if inspect.isawaitable(said) else said
