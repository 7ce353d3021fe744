"""Finds out whether the variables of a session's sandbox are lost, and restores them by running the successful code of
the current branch again, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.core.messages import Status
from agent_kernel.core.protocols import Work
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Item, SessionKey, Turn
from agent_kernel.sessions.stored_annotations import StoredAnnotations
from agent_kernel.tools.base.effect_analysis import Effect, effects
from agent_kernel.tools.code.python import RESET, SANDBOXED

ELSEWHERE = (
    "The earlier Python code of this conversation ran elsewhere (the conversation is a copy, or another server ran it):"
    " its variables and the files in its work directory are not here. Run the code again that makes them."
)
MAX_ITEMS = 400
"""Number of newest messages in which ``find_lost`` looks for code that ran elsewhere."""


@dataclass(frozen=True, slots=True)
class RebuildStep:
    """One successful ``python`` call in the sandbox; ``seconds`` is how long the turn waited for it."""

    turn: str
    call: str
    code: str
    seconds: float
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class RebuildResult:
    """The result of a rebuild: how many steps ran again and, if a step failed, its ``error``."""

    ran: int
    status: Status
    error: str = ""


async def find_lost(sandbox: Sandbox, store: SessionStore, key: SessionKey) -> str:
    """Return why the variables of the session's code are not in its sandbox, until code runs there; empty if they are,
    or if there are none. The sandbox itself does not know of code that ran in another one."""
    if sandbox.has_run(key):
        return sandbox.lost(key)
    return ELSEWHERE if await find_rebuild_steps(store, key, MAX_ITEMS) else ""


async def find_rebuild_steps(store: SessionStore, key: SessionKey, limit: int | None = None) -> list[RebuildStep]:
    """Return the steps that the current branch has run since the model last reset Python, oldest first. With ``limit``,
    only this number of the newest messages and turns is read."""
    turns = {turn.id: turn for turn in await store.turns(key, limit) if turn.where == "sandbox"}
    return _pieces([item for item in await store.latest(key, limit) if item.turn in turns], turns)


async def rebuild(
    sandbox: Sandbox, key: SessionKey, steps: Sequence[RebuildStep], *, timeout_s: float, read: Sequence[Path] = ()
) -> RebuildResult:
    """Run the steps ``steps`` in a fresh Python process of the session and stop at the first step that fails. Each step
    may take ``timeout_s`` seconds; ``read`` are the paths that the code may read.

    Files are not restored, but code that writes files writes them again. Raises SandboxUnavailable.
    """
    await sandbox.reset(key)
    for number, piece in enumerate(steps):
        result = await sandbox.run(key, Work(piece.code, timeout_s=timeout_s), read=read)
        if result.status != "success":
            return RebuildResult(number, result.status, result.error or f"It ended with the status {result.status}.")
    return RebuildResult(len(steps), "success")


def _pieces(items: Sequence[Item], turns: Mapping[str, Turn]) -> list[RebuildStep]:
    annotations = {id: StoredAnnotations(turn.record) for id, turn in turns.items()}
    calls: dict[tuple[str, str], tuple[str, str, float]] = {}
    steps: list[RebuildStep] = []
    for item in items:
        message = item.message
        for call in message.calls:
            calls[item.turn, call.id] = (call.name, str(call.arguments.get("code", "")), item.time)
        if message.role != "tool":
            continue
        edited = annotations[item.turn].take_edit(message.call_id or "")
        if message.status != "success":
            continue
        name, code, since = calls.get((item.turn, message.call_id or ""), ("", "", 0.0))
        code = edited if edited is not None else code  # the code that ran, not the code that the model proposed
        if name == RESET.name:
            steps.clear()
        elif name == SANDBOXED.name and code.strip():
            seconds = round(max(0.0, item.time - since), 3)
            steps.append(RebuildStep(item.turn, message.call_id or "", code, seconds, effects(code)))
    return steps
