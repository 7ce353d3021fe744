"""Relays requests of a chat panel to the Jupyter server. The requests come from the browser page that displays the
panel, over the comm of the panel's widget, and are sent with this kernel's credential.

The kernel's main thread reads the page's messages between cells, so nothing here blocks it: threads do the work, and
their messages reach the page even while a cell runs. This is not a general proxy: it relays only JSON requests to paths
below ``agent/v1`` that the server allows to a kernel."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_kernel.core.errors import AgentKernelError, InvalidRequest, NotFound, QuotaExceeded
from agent_kernel.notebook.server_client import NO_SERVER, ServerClient, quote_segment
from agent_kernel.notebook.turn_event_reader import TurnEvents

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
PATH = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{1,4000}")
MAX_BYTES = 32 << 20
MAX_AT_ONCE = 32
"""Limit of concurrent requests and followed turns of one widget."""
EVERY_S = 2.0
MAX_TURNS = 20
"""Number of newest turns read per poll. Changes of older turns are not reported."""
UNTIL_S = 600.0
"""Seconds for which the kernel polls on behalf of a view (one display of the widget) after the view last requested it.
An open page repeats the request whenever the kernel is idle; a closed page does not, so its polling ends."""


class Relay:
    """Relays the requests of one widget. ``find_server`` returns the server, or None while there is none. ``say``
    sends a message to the page that displays the widget; any thread may call it. A widget may be displayed in several
    views, so every message to the page contains, as ``to``, the view that sent the request."""

    def __init__(self, find_server: Callable[[], ServerClient | None], say: Say) -> None:
        self._find_server = find_server
        self._say = say
        self._room = threading.BoundedSemaphore(MAX_AT_ONCE)
        self._followed: dict[tuple[str, str], TurnEvents] = {}
        self._watch = SessionPoll(lambda: self.server, say)
        self._closed = False

    @property
    def server(self) -> ServerClient:
        """The server of this kernel. Raises ServerUnreachable if there is none."""
        if (server := self._find_server()) is None:
            raise NO_SERVER
        return server

    def hear(self, content: Any) -> None:
        """Start the work that a message from the page requests, and return at once. Messages that do not come from the
        panel are ignored."""
        if self._closed or not isinstance(content, Mapping) or not isinstance(to := content.get("to"), str):
            return
        match content:
            case {"do": "request", "id": int(id), "method": str(method), "path": str(path)}:
                self._start(to, id, lambda: self._request(to, id, method, path, content.get("body")))
            case {"do": "bytes", "id": int(id), "path": str(path)}:
                self._start(to, id, lambda: self._bytes(to, id, path))
            case {"do": "follow", "turn": str(turn), "after": int(after), "number": int(number)}:
                self._follow(to, turn, after, number)
            case {"do": "unfollow", "turn": str(turn)}:
                self._unfollow(to, turn)
            case {"do": "watch", "target": str(target)}:
                self._watch.renew(to, target)
            case {"do": "leave"}:
                self._watch.leave(to)
                for followed in [turn for view, turn in self._followed if view == to]:
                    self._unfollow(to, followed)

    def close(self) -> None:
        self._closed = True
        self._watch.close()
        for followed in [*self._followed.values()]:
            followed.leave()

    def _start(self, to: str, id: int, work: Callable[[], None]) -> None:
        if not self._room.acquire(blocking=False):
            self._fail(
                to,
                id,
                QuotaExceeded(
                    f"A panel can have at most {MAX_AT_ONCE} requests at once. Try again when one has ended."
                ),
            )
            return

        def run() -> None:
            try:
                work()
            except AgentKernelError as error:
                self._fail(to, id, error)
            finally:
                self._room.release()

        threading.Thread(target=run, name="agent-panel-request", daemon=True).start()

    def _request(self, to: str, id: int, method: str, path: str, body: Any) -> None:
        if method not in METHODS or not isinstance(body, Mapping | None):
            raise InvalidRequest("A request needs a method, a path and a JSON body.")
        answer = self.server.call(method, check_path(path), with_sandbox(method, path, body))
        self._say({"to": to, "id": id, "body": answer})

    def _bytes(self, to: str, id: int, path: str) -> None:
        data, headers = self.server.raw(check_path(path), max_bytes=MAX_BYTES)
        self._say({"to": to, "id": id, "body": {"mime": headers.get_content_type()}}, [data])

    def _fail(self, to: str, id: int, error: AgentKernelError) -> None:
        self._say({"to": to, "id": id, "error": error.to_json()})

    def _follow(self, to: str, turn: str, after: int, number: int) -> None:
        """Send the events of a turn. Each message carries ``number``, so that late messages of an earlier request
        are recognized."""
        about = {"to": to, "number": number}
        self._unfollow(to, turn)
        if not self._room.acquire(blocking=False):
            self._say({**about, "lost": turn})
            return
        followed = self._followed[to, turn] = TurnEvents(turn, after=after, relays=True)

        def run() -> None:
            try:
                for event in followed.read(self.server):
                    self._say({**about, "event": event.to_json()})
            except AgentKernelError as error:
                if not followed.left:
                    self._say({**about, "unknown" if isinstance(error, NotFound) else "lost": turn})
            finally:
                self._room.release()
                if self._followed.get((to, turn)) is followed:
                    del self._followed[to, turn]

        threading.Thread(target=run, name=f"agent-panel-follows-{turn}", daemon=True).start()

    def _unfollow(self, to: str, turn: str) -> None:
        if followed := self._followed.pop((to, turn), None):
            followed.leave()


def check_path(path: str) -> str:
    """Return ``path`` if it stays below ``agent/v1``. Raises InvalidRequest for any other path."""
    bare = path.partition("?")[0]
    steps = re.sub(r"%2e", ".", bare, flags=re.IGNORECASE).split("/")
    if not PATH.fullmatch(path) or bare.startswith("/") or {".", ".."} & set(steps):
        raise InvalidRequest(
            "The panel requested a path that a kernel does not relay: only paths below agent/v1 are relayed."
        )
    return path


def with_sandbox(method: str, path: str, body: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the request body. If the request starts a turn, change the body so that the turn runs its code in the
    sandbox: code in the kernel runs in the main thread during a cell, and no cell belongs to a turn of the panel."""
    begins = method == "POST" and re.fullmatch(r"(sessions/[^/]+/)?turns", path.partition("?")[0])
    return {**body, "where": "sandbox"} if begins and body is not None else body


# Polls the server for turns of a session that start or end. A kernel cannot subscribe to them, because its credential
# cannot open a WebSocket.


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
                        self._poll(to, target)
        finally:
            with self._lock:  # the next watcher starts a new thread
                if self._thread is threading.current_thread():
                    self._thread = None

    def _targets(self) -> list[tuple[str, str]]:
        """Return the watched (view, target) pairs. If no view watches a target, the thread ends; the next view that
        does starts a new thread."""
        with self._lock:
            now = time.monotonic()
            for key in [key for key, until in self._until.items() if until <= now]:
                del self._until[key]
                self._seen.pop(key, None)
            if not self._until:
                self._thread = None
            return list(self._until)

    def _poll(self, to: str, target: str) -> None:
        """Send the displayed panel ``to`` the turns that have started or ended since the last poll. ``target`` is the
        session or the kernel that the panel watches, as ``session:ID`` or ``kernel:ID``. The turns are requested only
        if the session, or that of the kernel, has changed, or if one of its turns was running at the last poll."""
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
