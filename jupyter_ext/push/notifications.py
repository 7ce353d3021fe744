"""What happens in sessions and with kernels, told to the pages that watch them: turns that run, begin, wait for a
person and end, sessions that change. The events of a turn itself are in its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent_kernel.core.events import ApprovalRequired, ApprovalResolved, EventBody
from agent_kernel.core.session import SessionKey
from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.turns.turns import LiveTurn

Told: TypeAlias = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Target:
    """A session or a kernel, of one namespace."""

    namespace: str
    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class Listener:
    page: object
    told: Told


@dataclass(slots=True)
class News:
    """Belongs to one event loop. A listener must not block and not raise. A page that watches a session and the kernel
    that it belongs to hears of a turn once."""

    _listeners: dict[Target, list[Listener]] = field(default_factory=dict)

    def watch(self, target: Target, page: object, told: Told) -> Callable[[], None]:
        """Returns what ends it."""
        listener = Listener(page, told)
        self._listeners.setdefault(target, []).append(listener)

        def end() -> None:
            left = [other for other in self._listeners.get(target, ()) if other is not listener]
            if left:
                self._listeners[target] = left
            else:
                self._listeners.pop(target, None)

        return end

    def kernels(self, namespace: str) -> list[str]:
        """Those that are watched."""
        return [seen.id for seen in self._listeners if (seen.namespace, seen.kind) == (namespace, "kernel")]

    def began(self, turn: LiveTurn) -> None:
        self._tell(turn, opened(turn))

    def ended(self, turn: LiveTurn) -> None:
        self._tell(turn, {**opened(turn), "type": "turn.closed", "state": turn.state})

    def said(self, turn: LiveTurn, body: EventBody) -> None:
        """Of what a turn announces only that somebody is waited for."""
        if isinstance(body, ApprovalRequired):
            self._tell(turn, waiting(turn, body))
        elif isinstance(body, ApprovalResolved):
            resolved = {"approval": body.approval, "call": body.call, "decision": body.decision}
            self._tell(turn, {**_place(turn), "type": "approval.resolved", **resolved})

    def changed(self, key: SessionKey, what: str) -> None:
        """``what``: title, described, branch, undone, cleared, outputs, compacted, deleted."""
        told = {"type": "session.changed", "session": key.id, "what": what}
        for listener in self._listeners.get(Target(key.namespace, "session", key.id), ()):
            listener.told(told)

    def bound(self, namespace: str, kernel: str, session: str | None) -> None:
        """The notebook of a kernel has another session now, or none."""
        for listener in self._listeners.get(Target(namespace, "kernel", kernel), ()):
            listener.told({"type": "binding.changed", "kernel": kernel, "session": session})

    def _tell(self, turn: LiveTurn, told: Mapping[str, Any]) -> None:
        for listener in {listener.page: listener for listener in _of(self._listeners, turn)}.values():
            listener.told(told)


def _of(listeners: Mapping[Target, list[Listener]], turn: LiveTurn) -> Iterator[Listener]:
    key = turn.order.key
    yield from listeners.get(Target(key.namespace, "session", key.id), ())
    if turn.order.kernel:
        yield from listeners.get(Target(key.namespace, "kernel", turn.order.kernel), ())


def concerns(turn: LiveTurn, target: Target) -> bool:
    key = turn.order.key
    place = key.id if target.kind == "session" else turn.order.kernel
    return (key.namespace, place) == (target.namespace, target.id)


def opened(turn: LiveTurn) -> dict[str, Any]:
    return {"type": "turn.opened", **_place(turn), "cell": turn.order.request.cell}


def waiting(turn: LiveTurn, asked: ApprovalRequired) -> dict[str, Any]:
    """That a person is waited for, not for what: the whole question is an event of the turn."""
    names = ("approval", "call", "name", "kind", "label", "target", "until")
    return {"type": "approval.waiting", **_place(turn), **{name: getattr(asked, name) for name in names}}


def _place(turn: LiveTurn) -> dict[str, str]:
    return {"turn": turn.id, "session": turn.order.key.id, "kernel": turn.order.kernel}


async def announce_binding(notifications: News, notebooks: Notebooks, namespace: str, place: str) -> None:
    """Tell the pages that watch a kernel of the notebook which session the notebook has now."""
    kernels = [kernel for kernel in notifications.kernels(namespace) if await notebooks.place(kernel) == place]
    if kernels:
        key = await notebooks.bound(namespace, place)
        for kernel in kernels:
            notifications.bound(namespace, kernel, key.id if key else None)
