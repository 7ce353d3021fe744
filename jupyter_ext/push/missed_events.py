"""What happened in a session while nobody looked: one card's worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.tools.code.rebuild_variables import pieces
from agent_kernel.turn.history import LOST
from jupyter_ext.notebooks.kernels import Kernel
from jupyter_ext.push.notifications import Target, concerns, waiting

if TYPE_CHECKING:
    from jupyter_ext.app import AgentKernel

LOOKED_AT = 50
"""The newest turns of the current branch."""
PROMPT_CHARS = 200


async def meanwhile(app: AgentKernel, key: SessionKey, since: float, kernel: Kernel | None) -> dict[str, Any]:
    """Turns that ended after ``since`` (seconds since the epoch; ``more``: there may be others before), questions that
    wait now, variables that are gone now, and what is wrong with the files of its notebooks."""
    newest = await app.runtime.store.turns(key, LOOKED_AT)
    ended = [turn for turn in newest if turn.closed is not None and turn.closed > since and turn.state != "open"]
    running = {turn.id: turn for turn in app.turns.running if concerns(turn, Target(key.namespace, "session", key.id))}
    asked = [asked for asked in app.runtime.approvals.waiting if asked.question.turn in running]
    problems = [app.sidecars.problem(key.namespace, path) for path in await app.notebooks.paths(key)]
    return {
        "session": key.id,
        "since": since,
        "turns": [await _ended(app, turn) for turn in ended],
        "more": len(ended) == LOOKED_AT,
        "running": list(running),
        "approvals": [waiting(running[one.question.turn], one.required) for one in asked],
        "lost": await _lost(app, key, newest, kernel),
        "problems": [problem for problem in problems if problem],
    }


async def _ended(app: AgentKernel, turn: Turn) -> dict[str, Any]:
    said = await app.versions.said(turn)
    asked = next((message.text for message in said if message.role == "user" and not message.hidden), "")
    facts = {"turn": turn.id, "cell": turn.cell, "state": turn.state, "reason": turn.reason, "closed": turn.closed}
    return {**facts, "prompt": asked[:PROMPT_CHARS]}


async def _lost(app: AgentKernel, key: SessionKey, newest: list[Turn], kernel: Kernel | None) -> dict[str, Any]:
    """Why variables are gone, empty where they are not; ``pieces`` of code would make those of the sandbox again. A
    kernel's own are made again by its notebook alone."""
    reason = app.runtime.sandbox.lost(key)
    found = await pieces(app.runtime.store, key) if reason else []
    epochs = [turn.epoch for turn in newest if turn.epoch and turn.state != "open"]
    gone = kernel is not None and bool(epochs) and epochs[-1] != kernel.epoch
    return {"sandbox": reason, "pieces": len(found), "kernel": LOST if gone else ""}
