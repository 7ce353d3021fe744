"""Sends the present state of a session or a kernel to a page that starts to watch it, so that the page knows the
changes that it has missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.push.notifications import Notify, WatchTarget, concerns, opened_message, waiting_message
from jupyter_ext.turns.turns import Turns


class WatchSnapshot:
    """Delays the notifications until the page has received the present state. The watch begins before the state is
    read, so that no change in between is lost."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._early: list[Mapping[str, Any]] | None = []

    def notify(self, message: Mapping[str, Any]) -> None:
        if self._early is None:
            self._notify(message)
        else:
            self._early.append(message)

    def release(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Send the notifications held back, without those that ``state`` contains, and pass on later ones directly."""
        early, self._early = self._early or [], None
        for message in early:
            if message not in state:
                self._notify(message)


async def read_watch_state(
    target: WatchTarget, runtime: Runtime, turns: Turns, notebooks: Notebooks
) -> list[Mapping[str, Any]]:
    """Return a ``watching`` message, a ``turn.opened`` for each running turn and an ``approval.waiting`` for each
    approval that waits."""
    first = await (_session(runtime.store, target) if target.kind == "session" else _kernel(notebooks, target))
    running = {turn.id: turn for turn in turns.running if concerns(turn, target)}
    questions = [question for question in runtime.approvals.waiting if question.question.turn in running]
    return [
        {"type": "watching", **first, "running": list(running)},
        *map(opened_message, running.values()),
        *(waiting_message(running[question.question.turn], question.required) for question in questions),
    ]


async def _session(store: SessionStore, target: WatchTarget) -> dict[str, Any]:
    """Describe the watched session. ``revision`` is None for a session that does not exist yet."""
    session = await store.info(SessionKey(target.namespace, target.id))
    revision, branch = (session.revision, session.branch) if session else (None, "")
    return {"session": target.id, "kernel": "", "revision": revision, "branch": branch}


async def _kernel(notebooks: Notebooks, target: WatchTarget) -> dict[str, Any]:
    key = await notebooks.bound_session(target.namespace, await notebooks.place(target.id))
    return {"session": key.id if key else None, "kernel": target.id, "revision": None, "branch": ""}
