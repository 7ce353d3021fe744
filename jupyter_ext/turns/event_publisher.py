"""Publishes the events of this server's turns to other servers through which clients follow them.

The events of a turn are a separate topic. Nothing is written for a turn that no client follows through another server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.events import Event
from agent_kernel.sessions.log.message_bus import Post, Topic
from jupyter_ext.turns.event_log import LogEntry, event_size
from jupyter_ext.turns.server_link import ServerLink
from jupyter_ext.turns.turns import LiveTurn

KEEP_S = 600.0
"""Seconds for which published events are kept, for servers that begin to follow the turn after its server has died."""
REFRESH_S = KEEP_S / 2
"""Age of a publication after which a new follower gets the whole log again, because its beginning is deleted soon."""
WANTED_S = 30.0
"""Seconds for which a turn is published after another server last requested it."""
INTERVAL_S = 0.02
"""Seconds between two batches of a turn. The events in between are sent in one batch."""
RETRY_S = 1.0
MAX_BATCH_BYTES = 1 << 20
MAX_TOPIC_BYTES = 16 << 20
"""Maximum number of bytes that are published for a turn. When there are more, the messages are replaced by the present
event log, in which old events are joined."""

log = logging.getLogger(__name__)


def events_topic(namespace: str, turn: str) -> Topic:
    return namespace, f"events/{turn}"


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Consecutive events of a turn that follow the event with number ``after``. ``facts`` describe the turn and are
    sent with the first batch (``after`` is 0).
    """

    after: int
    entries: Sequence[LogEntry]
    facts: Mapping[str, Any]

    def encode(self) -> bytes:
        entries = [[entry.event.to_json(), entry.marks] for entry in self.entries]
        return json.dumps({"after": self.after, "entries": entries, "facts": self.facts}).encode()

    @classmethod
    def decode(cls, body: bytes) -> EventBatch:
        """Read a batch. Raises KeyError for an event of a type that this version does not know."""
        wire = json.loads(body)
        entries = [_decode_entry(event, marks) for event, marks in wire["entries"]]
        return cls(wire["after"], entries, wire["facts"])


def _decode_entry(wire: Mapping[str, Any], marks: Sequence[Sequence[int]]) -> LogEntry:
    event = Event.from_json(wire)
    return LogEntry(event, event_size(event.body), [(number, end) for number, end in marks])


def describe_turn(turn: LiveTurn) -> dict[str, Any]:
    """Return the facts about a turn by which another server checks who may use the turn."""
    spec = turn.spec
    facts = {"session": spec.key.id, "kernel": spec.kernel, "started_by": spec.started_by}
    return {**facts, "created": turn.created, "head": turn.log.head}


class _Publication:
    """The state of publishing one turn. ``wanted`` and ``began`` are times of the event loop."""

    def __init__(self, turn: LiveTurn) -> None:
        self.turn = turn
        self.wanted = self.began = asyncio.get_running_loop().time()
        self.restart()

    def restart(self) -> None:
        """Publish the log from its beginning again."""
        self.sent, self.size, self.replaces = 0, 0, True
        self.began = asyncio.get_running_loop().time()

    @property
    def is_complete(self) -> bool:
        return self.turn.log.finished is not None and self.sent >= self.turn.log.head

    def take_posts(self) -> list[Post]:
        """Return messages with the events that were not published yet, and mark these events as published."""
        if self.size > MAX_TOPIC_BYTES:
            self.restart()
        posts, facts = [], describe_turn(self.turn)
        for entries in _split(self.turn.log.entries_after(self.sent)):
            body = EventBatch(self.sent, entries, {} if self.sent else facts).encode()
            topic = events_topic(self.turn.spec.key.namespace, self.turn.id)
            posts.append(Post(topic, body, KEEP_S, self.replaces))
            self.sent, self.size, self.replaces = entries[-1].event.seq, self.size + len(body), False
        return posts


class EventPublisher:
    """Publishes the events of this server's turns to the other servers that use the same store. Call ``aclose`` after
    the turns have ended: it publishes the remaining events.
    """

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._publications: dict[str, _Publication] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def follow(self, turn: LiveTurn, *, new: bool = False, missed: bool = False) -> dict[str, Any]:
        """Publish the turn for WANTED_S seconds from now, and return what ``describe_turn`` returns. ``new``: the
        server that asks has no event of the turn yet. ``missed``: it has missed events."""
        now = asyncio.get_running_loop().time()
        publication = self._publications.get(turn.id)
        if publication is None:
            publication = self._publications[turn.id] = _Publication(turn)
        elif now - publication.began > (RETRY_S if missed else REFRESH_S if new else math.inf):
            publication.restart()
        publication.wanted = now
        if turn.id not in self._tasks and not publication.is_complete:
            task = self._tasks[turn.id] = asyncio.create_task(self._publish(publication), name=f"publishes {turn.id}")
            task.add_done_callback(lambda done: self._on_published(publication, done))
        return describe_turn(turn)

    def is_followed(self, turn: LiveTurn) -> bool:
        """Return whether a client follows the turn through another server."""
        publication = self._publications.get(turn.id)
        return publication is not None and asyncio.get_running_loop().time() - publication.wanted < WANTED_S

    async def aclose(self) -> None:
        unfinished = [task for id, task in self._tasks.items() if self._publications[id].turn.log.finished is not None]
        if unfinished:
            await asyncio.wait(unfinished, timeout=RETRY_S)
        for task in [*self._tasks.values()]:
            task.cancel()

    async def _publish(self, publication: _Publication) -> None:
        loop, events = asyncio.get_running_loop(), publication.turn.log
        while not publication.is_complete:
            seconds_left = publication.wanted + WANTED_S - loop.time()
            if seconds_left <= 0:
                return
            try:
                async with asyncio.timeout(seconds_left):
                    await events.wait_after(publication.sent)
            except TimeoutError:
                continue
            try:
                await self._link.send(publication.take_posts())
            except AgentKernelError as error:
                log.warning("the events of %s cannot be published at the moment: %s", publication.turn.id, error)
                publication.restart()
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(INTERVAL_S)

    def _on_published(self, publication: _Publication, task: asyncio.Task[None]) -> None:
        turn = publication.turn.id
        del self._tasks[turn]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the events of %s cannot be published", turn, exc_info=error)
        if publication.is_complete and not task.cancelled():
            asyncio.get_running_loop().call_later(KEEP_S, self._publications.pop, turn, None)
        else:
            self._publications.pop(turn, None)


def _split(entries: Sequence[LogEntry]) -> list[list[LogEntry]]:
    """Split events into batches of at most MAX_BATCH_BYTES, or of one event."""
    batches: list[list[LogEntry]] = []
    size = MAX_BATCH_BYTES
    for entry in entries:
        if size + entry.size > MAX_BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(entry)
        size += entry.size
    return batches
