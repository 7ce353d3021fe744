"""Notifies pages about the sessions and kernels that they watch: turns that start, wait for a person and end, and
sessions that change. The events of the turn itself are in the turn's event log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, EventBody
from agent_kernel.core.session import SessionKey
from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.turns.turns import LiveTurn

Notify: TypeAlias = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class WatchTarget:
    """A session or a kernel (``kind``) of one namespace."""

    namespace: str
    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class WatchListener:
    page: object
    notify: Notify


@dataclass(slots=True)
class Notifications:
    """Sends notifications to the listeners of sessions and kernels.

    Belongs to one event loop. A listener must neither block nor raise. A page that watches both a session and its
    kernel is notified of a turn once.
    """

    _listeners: dict[WatchTarget, list[WatchListener]] = field(default_factory=dict)

    def watch(self, target: WatchTarget, page: object, notify: Notify) -> Callable[[], None]:
        """Call ``notify`` with each notification about ``target`` and return a function that ends this. ``page``
        identifies the page, which is notified of a turn once, even if it watches both the session and its kernel."""
        listener = WatchListener(page, notify)
        self._listeners.setdefault(target, []).append(listener)

        def end() -> None:
            remaining = [other for other in self._listeners.get(target, ()) if other is not listener]
            if remaining:
                self._listeners[target] = remaining
            else:
                self._listeners.pop(target, None)

        return end

    def watched_kernels(self, namespace: str) -> list[str]:
        """Return the ids of the kernels that are watched."""
        return [seen.id for seen in self._listeners if (seen.namespace, seen.kind) == (namespace, "kernel")]

    def on_turn_begin(self, turn: LiveTurn) -> None:
        self._notify(turn, opened_message(turn))

    def on_turn_end(self, turn: LiveTurn) -> None:
        self._notify(turn, {**opened_message(turn), "type": "turn.closed", "state": turn.state})

    def on_turn_body(self, turn: LiveTurn, body: EventBody) -> None:
        """Send a notification about an approval that is required or resolved. Ignore all other events of the turn."""
        if isinstance(body, ApprovalRequired):
            self._notify(turn, waiting_message(turn, body))
        elif isinstance(body, ApprovalResolved):
            resolved = {"approval": body.approval, "call": body.call, "decision": body.decision}
            self._notify(turn, {**_turn_place(turn), "type": "approval.resolved", **resolved})

    def on_session_changed(self, key: SessionKey, kind: str) -> None:
        """Notify that a session has changed. ``kind`` is the kind of change: title, described, branch, undone, cleared,
        outputs, compacted or deleted."""
        message = {"type": "session.changed", "session": key.id, "what": kind}
        for listener in self._listeners.get(WatchTarget(key.namespace, "session", key.id), ()):
            listener.notify(message)

    def on_bound(self, namespace: str, kernel: str, session: str | None) -> None:
        """Notify that the notebook of a kernel is bound to another session, or to none."""
        for listener in self._listeners.get(WatchTarget(namespace, "kernel", kernel), ()):
            listener.notify({"type": "binding.changed", "kernel": kernel, "session": session})

    def _notify(self, turn: LiveTurn, message: Mapping[str, Any]) -> None:
        for listener in {listener.page: listener for listener in _listeners_of(self._listeners, turn)}.values():
            listener.notify(message)


def _listeners_of(listeners: Mapping[WatchTarget, list[WatchListener]], turn: LiveTurn) -> Iterator[WatchListener]:
    key = turn.spec.key
    yield from listeners.get(WatchTarget(key.namespace, "session", key.id), ())
    if turn.spec.kernel:
        yield from listeners.get(WatchTarget(key.namespace, "kernel", turn.spec.kernel), ())


def concerns(turn: LiveTurn, target: WatchTarget) -> bool:
    key = turn.spec.key
    place = key.id if target.kind == "session" else turn.spec.kernel
    return (key.namespace, place) == (target.namespace, target.id)


def opened_message(turn: LiveTurn) -> dict[str, Any]:
    return {"type": "turn.opened", **_turn_place(turn), "cell": turn.spec.request.cell}


def waiting_message(turn: LiveTurn, request: ApprovalRequired) -> dict[str, Any]:
    """Return the notification that an approval waits, without its details: the complete question is an event of the
    turn."""
    names = ("approval", "call", "name", "kind", "label", "target", "until")
    return {"type": "approval.waiting", **_turn_place(turn), **{name: getattr(request, name) for name in names}}


def _turn_place(turn: LiveTurn) -> dict[str, str]:
    return {"turn": turn.id, "session": turn.spec.key.id, "kernel": turn.spec.kernel}


async def announce_binding(notifications: Notifications, notebooks: Notebooks, namespace: str, place: str) -> None:
    """Tell the pages that watch a kernel of the notebook which session the notebook has now."""
    kernels = [kernel for kernel in notifications.watched_kernels(namespace) if await notebooks.place(kernel) == place]
    if kernels:
        key = await notebooks.bound_session(namespace, place)
        for kernel in kernels:
            notifications.on_bound(namespace, kernel, key.id if key else None)
