"""Summarizes what happened in a session while no page was open, for one card in the panel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.tools.code.rebuild_variables import find_lost, find_rebuild_steps
from agent_kernel.turn.lost_variables import LOST, has_lost_variables
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.notebooks.kernels import Kernel
from jupyter_ext.notebooks.sidecar_writer import Sidecars
from jupyter_ext.push.notifications import WatchTarget, concerns, waiting_message
from jupyter_ext.turns.turn_versions import TurnVersions
from jupyter_ext.turns.turns import Turns

LOOKED_AT = 50
"""Number of newest turns of the current branch that the summary considers."""
PROMPT_CHARS = 200


@dataclass(frozen=True, slots=True)
class AwaySummary:
    """Summarizes what happened in sessions of one server while no page was open."""

    runtime: Runtime
    turns: Turns
    turn_versions: TurnVersions
    notebooks: Notebooks
    sidecars: Sidecars

    async def since(self, key: SessionKey, since: float, kernel: Kernel | None) -> dict[str, Any]:
        """Return a JSON summary of what happened after ``since`` (seconds since the epoch): the turns that ended, the
        approvals that wait now, the variables that are lost, and the problems with the files of the session's
        notebooks. ``more`` in the summary means that there may be earlier turns."""
        newest = await self.runtime.store.turns(key, LOOKED_AT)
        ended = [turn for turn in newest if turn.closed is not None and turn.closed > since and turn.state != "open"]
        target = WatchTarget(key.namespace, "session", key.id)
        running = {turn.id: turn for turn in self.turns.running if concerns(turn, target)}
        waiting = [waiting for waiting in self.runtime.approvals.waiting if waiting.question.turn in running]
        problems = [self.sidecars.problem(key.namespace, path) for path in await self.notebooks.paths(key)]
        return {
            "session": key.id,
            "since": since,
            "turns": [await self._describe_ended(turn) for turn in ended],
            "more": len(ended) == LOOKED_AT,
            "running": list(running),
            "approvals": [waiting_message(running[question.question.turn], question.required) for question in waiting],
            "lost": await self._describe_lost(key, kernel),
            "problems": [problem for problem in problems if problem],
        }

    async def _describe_ended(self, turn: Turn) -> dict[str, Any]:
        messages = await self.turn_versions.messages(turn)
        prompt = next((message.text for message in messages if message.role == "user" and not message.hidden), "")
        facts = {"turn": turn.id, "cell": turn.cell, "state": turn.state, "reason": turn.reason, "closed": turn.closed}
        return {**facts, "prompt": prompt[:PROMPT_CHARS]}

    async def _describe_lost(self, key: SessionKey, kernel: Kernel | None) -> dict[str, Any]:
        """Return why variables of the sandbox and of the kernel are lost; the reasons are empty if none are lost.
        ``pieces`` is the number of code pieces that would rebuild the variables of the sandbox. Those of a kernel can
        only be rebuilt by running its notebook."""
        reason = await find_lost(self.runtime.sandbox, self.runtime.store, key)
        steps = await find_rebuild_steps(self.runtime.store, key) if reason else []
        gone = kernel is not None and await has_lost_variables(self.runtime.store, key, kernel.epoch)
        return {"sandbox": reason, "pieces": len(steps), "kernel": LOST if gone else ""}
