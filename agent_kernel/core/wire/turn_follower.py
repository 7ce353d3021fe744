"""Keeps track of the events of a turn that a program has received, so that it can continue after a lost connection. The
module does no I/O: transports open the streams and wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import quote

from agent_kernel.core.errors import AgentKernelError, Forbidden, NotFound, ServerUnreachable, TokenInvalid
from agent_kernel.core.events import (
    EVENT_TYPES,
    CallFinished,
    CallReturned,
    CallStarted,
    Event,
    EventBody,
    FileProduced,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
    TurnVersion,
)
from agent_kernel.core.wire.server_sent_events import ServerEvent

STORED_HEADER = "X-Agent-Stored"
"""HTTP header of a stream of events that the server made from stored items. Their numbers differ from those of the live
log."""


class TurnFollower:
    """The position of one reader in the events of ``turn``.

    Until ``finished``, a transport opens ``path`` with ``query``, calls ``begin`` and passes each server-sent event to
    ``accept``. When the stream fails or ends early, the transport waits for ``pause_after(error)`` seconds and opens it
    again.

    After a restart of the server the live log no longer exists. The server then sends the stored items of the turn, and
    ``accept`` returns only what the reader has not received yet, with continued numbers. ``relays`` disables this, for
    a transport that passes the events on to a reader who keeps track of its own position and may have received more of
    the turn than this object.

    ``after`` is the number of the last event that the reader has received. ``pauses`` returns an iterator over the
    seconds to wait before each attempt after a connection was lost; when it ends, the follower gives up. With
    ``stored`` the query requests the stored items of the turn, in ``session``, and their media from the beginning.
    """

    def __init__(
        self,
        turn: str,
        session: str = "",
        *,
        pauses: Callable[[], Iterator[float]],
        after: int = 0,
        stored: bool = False,
        relays: bool = False,
    ) -> None:
        self.path = f"turns/{quote(turn, safe='')}/events"
        self.finished = False
        self._session = session
        self._after = after
        self._stored = stored
        self._relays = relays
        self._make_pauses = pauses
        self._pauses: Iterator[float] | None = None
        self._is_known_before = after > 0 and not relays
        self._has_received = False
        # Stored items have complete texts and other numbers than the live events, so they are matched with the received
        # events by content: texts by their length, calls and files by their ids.
        self._matches_content = False
        self._lengths: dict[str, int] = {TextDelta.type: 0, ReasoningDelta.type: 0}
        self._marks: set[tuple[str, str]] = set()
        self._to_skip: dict[str, int] = {}

    @property
    def query(self) -> dict[str, str]:
        after = 0 if self._matches_content else self._after
        query = {"after": str(after) if after else "", "session": self._session, "stored": "1" if self._stored else ""}
        return {name: value for name, value in query.items() if value}

    def begin(self, *, from_store: bool) -> bool:
        """Prepare to read a new stream; ``from_store`` is true if it has STORED_HEADER. Returns True if the stream can
        be read, and False if it must be opened again at once because ``query`` has changed."""
        if from_store and self._after and not self._relays and not self._matches_content:
            self._matches_content = True
            return False
        self._to_skip = dict(self._lengths)
        return True

    def accept(self, sent: ServerEvent) -> Event | None:
        """Return the event to pass to the reader. Returns None if the reader has received it already, or if this
        version does not know its type, which a newer server may send."""
        self._has_received = True
        number = int(sent.id) if sent.id.isdecimal() else 0
        if not self._matches_content:
            is_new = number > self._after
            self._after = max(self._after, number)
            if not is_new:
                return None
        if sent.event not in EVENT_TYPES:
            return None
        event = Event.from_json(json.loads(sent.data))
        if self._matches_content:
            body = self._remove_received(event.body)
            if body is None:
                return None
            self._after += 1
            event = replace(event, seq=self._after, body=body)
        self._remember(event.body)
        return event

    def pause_after(self, error: AgentKernelError) -> float:
        """Return how many seconds to wait before the stream is opened again. Raises AgentKernelError when the turn
        cannot be followed any further."""
        if isinstance(error, NotFound | Forbidden) and not isinstance(error, TokenInvalid):
            raise _restart_error(error) if self._pauses is not None or self._is_known_before else error
        if not isinstance(error, ServerUnreachable):
            raise error
        if self._has_received or self._pauses is None:
            self._pauses = self._make_pauses()
            self._has_received = False
        pause = next(self._pauses, None)
        if pause is None:
            raise error
        return pause

    def _remove_received(self, body: EventBody) -> EventBody | None:
        """Return the part of an event that the reader has not received yet; None if there is none. The event was made
        from a stored item."""
        if isinstance(body, TextDelta | ReasoningDelta):
            received = min(self._to_skip[body.type], len(body.text))
            self._to_skip[body.type] -= received
            return replace(body, text=body.text[received:]) if received < len(body.text) else None
        return None if _mark(body) in self._marks else body

    def _remember(self, body: EventBody) -> None:
        if isinstance(body, TextDelta | ReasoningDelta):
            self._lengths[body.type] += len(body.text)
        elif mark := _mark(body):
            self._marks.add(mark)
        self.finished |= isinstance(body, TurnFinished)


def _mark(body: EventBody) -> tuple[str, str] | None:
    """Return (type, id) of an event if a turn contains only one event with this type and id, such as the start of one
    call. Return None for events of other types."""
    if isinstance(body, TurnStarted | TurnVersion | TurnFinished):
        return body.type, ""
    if isinstance(body, CallStarted | CallReturned | CallFinished):
        return body.type, body.call
    if isinstance(body, FileProduced):
        return body.type, str(body.file.get("id", ""))
    return None


def _restart_error(error: AgentKernelError) -> ServerUnreachable:
    """Return the error for a server that no longer knows the turn or the kernel, although it knew them before the
    connection was lost."""
    hint = f"{error.hint} Ask again." if error.hint and isinstance(error, Forbidden) else "Ask again."
    restarted = ServerUnreachable(
        "The server was restarted and the turn was interrupted. The results of the turn so far are stored "
        "in its session, unless the session is temporary.",
        hint=hint,
    )
    restarted.request_id = error.request_id
    return restarted
