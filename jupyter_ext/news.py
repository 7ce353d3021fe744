"""What happens in sessions and with kernels, told to the pages that watch them: which turns run, begin and end. The
events of a turn itself are in its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from jupyter_ext.turns import LiveTurn

Told: TypeAlias = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Target:
    """A session or a kernel, of one namespace."""

    namespace: str
    kind: str
    id: str


@dataclass(slots=True)
class News:
    """Belongs to one event loop. A listener must not block and not raise."""

    _listeners: dict[Target, list[Told]] = field(default_factory=dict)

    def watch(self, target: Target, told: Told) -> Callable[[], None]:
        """Returns what ends it."""
        self._listeners.setdefault(target, []).append(told)

        def end() -> None:
            left = [other for other in self._listeners.get(target, []) if other is not told]
            if left:
                self._listeners[target] = left
            else:
                self._listeners.pop(target, None)

        return end

    def began(self, turn: LiveTurn) -> None:
        self._tell(turn, opened(turn))

    def ended(self, turn: LiveTurn) -> None:
        self._tell(turn, {**opened(turn), "type": "turn.closed", "state": turn.state})

    def changed(self, namespace: str, session: str, what: str) -> None:
        """``what``: title, branch, deleted, cleared."""
        told = {"type": "session.changed", "session": session, "what": what}
        for listener in self._listeners.get(Target(namespace, "session", session), ()):
            listener(told)

    def _tell(self, turn: LiveTurn, told: Mapping[str, Any]) -> None:
        key = turn.order.key
        listeners = [*self._listeners.get(Target(key.namespace, "session", key.id), ())]
        if turn.order.kernel:
            listeners += self._listeners.get(Target(key.namespace, "kernel", turn.order.kernel), ())
        for listener in dict.fromkeys(listeners):
            listener(told)


def opened(turn: LiveTurn) -> dict[str, Any]:
    return {
        "type": "turn.opened",
        "turn": turn.id,
        "session": turn.order.key.id,
        "kernel": turn.order.kernel,
        "cell": turn.order.request.cell,
    }
