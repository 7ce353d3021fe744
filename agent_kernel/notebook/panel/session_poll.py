"""Polls the server for turns of a session that start or end. A kernel cannot subscribe to them, because its credential
cannot open a WebSocket."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.notebook.server_client import ServerClient, quote_segment

EVERY_S = 2.0
MAX_TURNS = 20
"""Number of newest turns read per poll. Changes of older turns are not reported."""
UNTIL_S = 600.0
"""Seconds for which the kernel polls on behalf of a view after the view last requested it. An open page repeats the
request whenever the kernel is idle; a closed page does not, so its polling ends."""


class Say(Protocol):
    """A function that sends a message to the page that displays the widget. Any thread may call it."""

    def __call__(self, content: Mapping[str, Any], buffers: Sequence[bytes] = ...) -> None: ...


@dataclass(frozen=True, slots=True)
class PollState:
    """The state of a session at the last poll. ``changed`` is (time of the last change, number of turns). ``runs`` maps
    the ids of turns to whether they were running."""

    changed: tuple[float, int] = (0.0, -1)
    runs: Mapping[str, bool] = field(default_factory=dict)


class SessionPoll:
    """Polls the server in one thread for as long as a view watches a target. A view is one display of the widget. A
    target is ``session:ID``, or ``kernel`` for the session to which the kernel's notebook is bound at the time of the
    poll."""

    def __init__(self, server: Callable[[], ServerClient], say: Say) -> None:
        self._server = server
        self._say = say
        self._until: dict[tuple[str, str], float] = {}
        self._seen: dict[tuple[str, str], PollState] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def renew(self, to: str, target: str) -> None:
        with self._lock:
            self._until[to, target] = time.monotonic() + UNTIL_S
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="agent-panel-watch", daemon=True)
                self._thread.start()

    def leave(self, to: str) -> None:
        with self._lock:
            for key in [key for key in self._until if key[0] == to]:
                del self._until[key]
                self._seen.pop(key, None)

    def close(self) -> None:
        with self._lock:
            self._until.clear()
        self._wake.set()

    def _run(self) -> None:
        try:
            while not self._wake.wait(EVERY_S) and (watched := self._targets()):
                for to, target in watched:
                    with contextlib.suppress(AgentKernelError):  # the next poll may succeed
                        self._look(to, target)
        finally:
            with self._lock:  # the next watcher starts a new thread
                if self._thread is threading.current_thread():
                    self._thread = None

    def _targets(self) -> list[tuple[str, str]]:
        """Return the watched (view, target) pairs. If there are none, the thread ends; the next watching view starts a
        new one."""
        with self._lock:
            now = time.monotonic()
            for key in [key for key, until in self._until.items() if until <= now]:
                del self._until[key]
                self._seen.pop(key, None)
            if not self._until:
                self._thread = None
            return list(self._until)

    def _look(self, to: str, target: str) -> None:
        """Send to the view ``to`` the turns of the target that have started or ended since the last poll. The turns are
        requested only if the session has changed or one of its turns was running at the last poll."""
        kind, _, id = target.partition(":")
        call = self._server().call
        session = (
            call("GET", "binding")["session"]
            if kind == "kernel"
            else call("GET", f"sessions/{quote_segment(id)}?format=facts")
        )
        if session is None:
            return
        seen = self._seen.get((to, target))
        changed = (session["updated"], session["turns"])
        if seen is not None and seen.changed == changed and True not in seen.runs.values():
            return
        turns = call("GET", f"sessions/{quote_segment(session['id'])}/turns?limit={MAX_TURNS}")["turns"]
        runs = {turn["turn"]: bool(turn["running"]) for turn in turns}
        self._seen[to, target] = PollState(changed, runs)
        known = runs if seen is None else seen.runs  # turns that ended before the first poll are not reported
        for turn in turns:
            id, runs_now = turn["turn"], bool(turn["running"])
            news = {"turn": id, "session": turn["session"], "kernel": "", "cell": turn["cell"]}
            if id not in known or (seen is None and runs_now):
                self._tell(to, target, {"type": "turn.opened", **news})
            if not runs_now and known.get(id, True):
                self._tell(to, target, {"type": "turn.closed", **news, "state": turn["state"]})

    def _tell(self, to: str, target: str, news: Mapping[str, Any]) -> None:
        self._say({"to": to, "target": target, "news": news})
