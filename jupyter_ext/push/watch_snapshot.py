"""What a page hears first of what it begins to watch: how it stands, so that it knows what it has missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.turn.runtime import Runtime
from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.push.notifications import Target, Told, concerns, opened, waiting
from jupyter_ext.turns.turns import Turns


class Standing:
    """What one begins to watch, from the first moment on: news that come before the page knows how it stands wait
    until it does."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._early: list[Mapping[str, Any]] | None = []

    def hear(self, said: Mapping[str, Any]) -> None:
        if self._early is None:
            self._told(said)
        else:
            self._early.append(said)

    def known(self, state: Sequence[Mapping[str, Any]]) -> None:
        """The page was told that; the rest follows."""
        early, self._early = self._early or [], None
        for said in early:
            if said not in state:
                self._told(said)


async def state_of(target: Target, runtime: Runtime, turns: Turns, notebooks: Notebooks) -> list[Mapping[str, Any]]:
    """``watching``, then a ``turn.opened`` for each turn that runs and an ``approval.waiting`` for each question."""
    first = await (_session(runtime.store, target) if target.kind == "session" else _kernel(notebooks, target))
    running = {turn.id: turn for turn in turns.running if concerns(turn, target)}
    questions = [asked for asked in runtime.approvals.waiting if asked.question.turn in running]
    return [
        {"type": "watching", **first, "running": list(running)},
        *map(opened, running.values()),
        *(waiting(running[asked.question.turn], asked.required) for asked in questions),
    ]


async def _session(store: SessionStore, target: Target) -> dict[str, Any]:
    """``revision`` is null for a session that is not there (yet)."""
    session = await store.info(SessionKey(target.namespace, target.id))
    revision, branch = (session.revision, session.branch) if session else (None, "")
    return {"session": target.id, "kernel": "", "revision": revision, "branch": branch}


async def _kernel(notebooks: Notebooks, target: Target) -> dict[str, Any]:
    key = await notebooks.bound(target.namespace, await notebooks.place(target.id))
    return {"session": key.id if key else None, "kernel": target.id, "revision": None, "branch": ""}
