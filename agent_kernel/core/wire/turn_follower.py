"""How a program follows the events of a turn across lost connections. No I/O: transports open the streams and wait."""

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
"""The header of a stream that was made from stored items, whose numbers are not those of the live log."""


class TurnFollower:
    """The position of one reader in the events of ``turn``.

    Until ``finished``, a transport opens ``path`` with ``query``, calls ``begin`` and passes each server-sent
    event to ``accept``. When the stream fails or ends early, the transport waits for ``pause_after(error)`` seconds
    and opens it again.

    When the live log is gone (after a restart of the server), the reader gets what the stored items contain beyond the
    received events, with continued numbers. ``relays`` turns that off, for events that are passed on to a reader with
    a position of its own, who has received more of the turn than this object.

    ``after`` is the number of the last event that the reader knows. ``pauses`` makes an iterator of the seconds to
    wait before each attempt after a connection was lost; the follower gives up at its end. ``stored`` asks for the
    stored items of a turn of ``session`` and their media from the beginning.
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
        # Stored items have unsplit texts and their own numbers, so they are matched with the received events by
        # content: texts by their length, calls and files by their ids.
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
        """Begin to read a stream; ``from_store`` is true if it has STORED_HEADER. Returns False if the stream must be
        opened again at once, because ``query`` has changed."""
        if from_store and self._after and not self._relays and not self._matches_content:
            self._matches_content = True
            return False
        self._to_skip = dict(self._lengths)
        return True

    def accept(self, sent: ServerEvent) -> Event | None:
        """Return the event, or None if the reader has it, or if a newer server sends a type of event that this version
        does not know."""
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
        """Return the part of a stored item that the reader does not have."""
        if isinstance(body, TextDelta | ReasoningDelta):
            known = min(self._to_skip[body.type], len(body.text))
            self._to_skip[body.type] -= known
            return replace(body, text=body.text[known:]) if known < len(body.text) else None
        return None if _mark(body) in self._marks else body

    def _remember(self, body: EventBody) -> None:
        if isinstance(body, TextDelta | ReasoningDelta):
            self._lengths[body.type] += len(body.text)
        elif mark := _mark(body):
            self._marks.add(mark)
        self.finished |= isinstance(body, TurnFinished)


def _mark(body: EventBody) -> tuple[str, str] | None:
    """Return what identifies an event that a turn has once."""
    if isinstance(body, TurnStarted | TurnVersion | TurnFinished):
        return body.type, ""
    if isinstance(body, CallStarted | CallReturned | CallFinished):
        return body.type, body.call
    if isinstance(body, FileProduced):
        return body.type, str(body.file.get("id", ""))
    return None


def _restart_error(error: AgentKernelError) -> ServerUnreachable:
    """Describe a server that no longer knows a turn, or the kernel, which it knew before the connection was lost."""
    hint = f"{error.hint} Ask again." if error.hint and isinstance(error, Forbidden) else "Ask again."
    restarted = ServerUnreachable(
        "The server was restarted and the turn was interrupted. Its results so far are stored in its session, unless "
        "the session is temporary.",
        hint=hint,
    )
    restarted.request_id = error.request_id
    return restarted
