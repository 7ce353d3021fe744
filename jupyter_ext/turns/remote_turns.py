"""Gives access to turns that run on another server of a shared store: copies their events, and sends commands to their
server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from agent_kernel.core.errors import AgentKernelError, ServerUnreachable
from agent_kernel.core.events import Event, TurnFinished
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import LEASE_S, SessionKey, Turn
from agent_kernel.core.shielded_await import cancel_tasks
from agent_kernel.core.turn_request import TurnRequest
from jupyter_ext.turns.event_log import MAX_EVENTS, EventLog
from jupyter_ext.turns.event_publisher import EventBatch, events_topic
from jupyter_ext.turns.server_link import ServerLink
from jupyter_ext.turns.stored_events import finished_event
from jupyter_ext.turns.turns import CANCEL_WITHIN_S, KEEP_S, LiveTurn, TurnSpec

FIND_S = 1.0
"""Seconds that the server of a turn has to answer a question."""
OPEN_FIND_S = 3.0
"""Seconds that the server has to answer if the store says that the turn is running. They are more than FIND_S, because
that server exists unless it died a moment ago."""
COMMAND_S = CANCEL_WITHIN_S + 1.0
RENEW_S = 5.0
"""Seconds between two requests to the server of a followed turn to continue publishing the turn."""
UNANSWERED = 2
"""Number of unanswered questions after which this server looks in the store whether the turn is still running."""
IDLE_S = 30.0
"""Seconds for which a copy without readers is kept."""
LOST = "The server that ran this turn does not answer any more."

log = logging.getLogger(__name__)


def server_unreachable() -> ServerUnreachable:
    return ServerUnreachable(LOST, hint="The turn ends when the lease of that server has run out.")


class CopiedLog(EventLog):
    """A copy of the event log of a turn that runs on another server. The events keep their numbers. ``idle_s`` is the
    number of seconds since a client last read it."""

    def __init__(self, turn: str, session: str) -> None:
        super().__init__(turn, session)
        self._readers = 0
        self._used = time.monotonic()

    async def follow_batches(self, after: int = 0) -> AsyncGenerator[Sequence[Event]]:
        self._readers += 1
        try:
            async for batch in super().follow_batches(after):
                yield batch
        finally:
            self._readers -= 1
            self._used = time.monotonic()

    def touch(self) -> None:
        self._used = time.monotonic()

    def end(self, body: TurnFinished) -> None:
        """End the copy of a turn whose server has died.

        Clients may have received events from that server which it had not published yet. The numbers of these events
        are skipped here: a client that continues after such a number would otherwise never get the end of the turn.
        """
        if self.finished is None:
            self._stamp.seq += MAX_EVENTS
            self.append(body)

    @property
    def idle_s(self) -> float:
        """Seconds since the copy was last read; 0 while it is being read."""
        return 0.0 if self._readers else time.monotonic() - self._used


class RemoteTurn:
    """The connection to a turn of another server, which the turn's LiveTurn here has as its ``owner``."""

    def __init__(self, link: ServerLink, namespace: str, turn: str) -> None:
        self._link = link
        self._namespace = namespace
        self._turn = turn
        self._early: list[EventBatch] = []
        self.facts: Mapping[str, Any] = {}
        self.live: LiveTurn | None = None
        self.missed = asyncio.Event()
        self.heard = time.monotonic()
        self._end = link.subscribe(events_topic(namespace, turn), self._on_message)

    async def command(self, action: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a command to the server of the turn, and return its result. Raises that server's error, StoreError, and
        ServerUnreachable if it does not answer.
        """
        answer = await self._link.ask(self._namespace, self._turn, action, body, COMMAND_S)
        if answer is None:
            raise server_unreachable()
        return answer

    async def renew(self, within_s: float, *, new: bool = False) -> Mapping[str, Any] | None:
        """Ask the server to publish the turn. Return what ``open`` needs for a copy of the turn, or None if the server
        does not answer."""
        missed = self.missed.is_set()
        self.missed.clear()
        facts = await self._link.ask(self._namespace, self._turn, "follow", {"new": new, "missed": missed}, within_s)
        if facts is not None:
            self.heard = time.monotonic()
        return facts

    def open(self, facts: Mapping[str, Any]) -> LiveTurn:
        """Begin the copy of the turn."""
        key = SessionKey(self._namespace, facts["session"])
        spec = TurnSpec(key, TurnRequest(), kernel=facts["kernel"], started_by=facts["started_by"])
        copied = CopiedLog(self._turn, key.id)
        self.live = LiveTurn(self._turn, spec, copied, created=facts["created"], owner=self)
        for batch in self._early:
            self._apply(copied, batch)
        self._early.clear()
        return self.live

    def close(self) -> None:
        self._end()

    def _on_message(self, body: bytes) -> None:
        """Add the events of a message to the copy. Raises KeyError, TypeError or ValueError for events of another
        version of agent-kernel.
        """
        batch = EventBatch.decode(body)
        self.heard = time.monotonic()
        self.facts = batch.facts or self.facts
        if self.live is None:
            self._early.append(batch)
        else:
            self._apply(self.live.log, batch)

    def _apply(self, copied: EventLog, batch: EventBatch) -> None:
        if batch.after > copied.head:
            self.missed.set()
            return
        for entry in batch.entries:
            if entry.event.seq > copied.head:
                copied.copy(entry.rest(copied.head))


class RemoteTurns:
    """The turns on other servers that clients of this server follow or control. If this server has no ``link`` to
    others, there are none."""

    def __init__(self, store: SessionStore, link: ServerLink | None) -> None:
        self._store = store
        self._link = link
        self._turns: dict[tuple[str, str], asyncio.Task[LiveTurn | None]] = {}
        self._watching: set[asyncio.Task[None]] = set()

    async def find(self, namespace: str, turn: str) -> LiveTurn | None:
        """Return a turn whose event log another server still holds; None if no server answers. The caller checks who
        may use the turn, as for a turn of this server. Raises StoreError.
        """
        if self._link is None:
            return None
        place = (namespace, turn)
        opening = self._turns.get(place)
        if opening is None:
            opening = self._turns[place] = asyncio.create_task(self._open(self._link, *place), name=f"finds {turn}")
            opening.add_done_callback(lambda done: self._on_opened(place, done))
        live = await asyncio.shield(opening)
        if live is not None and isinstance(live.log, CopiedLog):
            live.log.touch()
        return live

    async def aclose(self) -> None:
        await cancel_tasks(*self._turns.values(), *self._watching)

    async def _open(self, link: ServerLink, namespace: str, turn: str) -> LiveTurn | None:
        stored = await self._store.turn(namespace, turn)
        if stored is not None and stored.closed and stored.closed < time.time() - KEEP_S:
            return None
        is_open = stored is not None and stored.state == "open"
        remote = RemoteTurn(link, namespace, turn)
        try:
            answer = await remote.renew(OPEN_FIND_S if is_open else FIND_S, new=True)
            facts = answer or remote.facts  # a server that has ended may have published the turn before
            if not facts:
                if is_open:
                    await self._store.recover()
                remote.close()
                return None
            live = remote.open(facts)
            try:
                async with asyncio.timeout(FIND_S):
                    await live.log.wait_after(facts["head"] - 1)
            except TimeoutError:
                log.warning("the events of %s arrive slowly from its server", turn)
            if answer is None and (end := await self._find_end(live, remote)):
                assert isinstance(live.log, CopiedLog)
                live.log.end(end)
        except BaseException:
            remote.close()
            raise
        watching = asyncio.create_task(self._watch(remote, live), name=f"watches {turn}")
        self._watching.add(watching)
        watching.add_done_callback(lambda done: self._on_watched((namespace, turn), remote, done))
        return live

    def _on_opened(self, place: tuple[str, str], opening: asyncio.Task[LiveTurn | None]) -> None:
        if opening.cancelled() or opening.exception() is not None or opening.result() is None:
            del self._turns[place]

    def _on_watched(self, place: tuple[str, str], remote: RemoteTurn, watching: asyncio.Task[None]) -> None:
        self._watching.discard(watching)
        self._turns.pop(place, None)
        remote.close()
        if not watching.cancelled() and (error := watching.exception()) is not None:
            log.error("the copy of a turn of another server ended", exc_info=error)

    async def _watch(self, remote: RemoteTurn, live: LiveTurn) -> None:
        """Update the copy while a client uses it, and end it if the turn's server has died."""
        assert isinstance(live.log, CopiedLog)
        unanswered = expected = 0
        while live.log.idle_s < IDLE_S:
            try:
                async with asyncio.timeout(0.0 if unanswered else RENEW_S):
                    await remote.missed.wait()
            except TimeoutError:
                pass
            if live.log.finished is not None:
                await asyncio.sleep(RENEW_S)
                continue
            if expected > live.log.head:
                remote.missed.set()  # the last events were lost, so no later one shows that they are missing
            try:
                facts = await remote.renew(OPEN_FIND_S)
                expected = facts["head"] if facts else 0
                unanswered = 0 if facts else unanswered + 1
                if unanswered >= UNANSWERED and (end := await self._find_end(live, remote)):
                    live.log.end(end)
            except AgentKernelError as error:
                log.warning("the server of %s cannot be asked at the moment: %s", live.id, error)
                await asyncio.sleep(RENEW_S)

    async def _find_end(self, live: LiveTurn, remote: RemoteTurn) -> TurnFinished | None:
        """Return the end of a turn whose server does not answer; None if its lease is still valid."""
        await self._store.recover()
        stored: Turn | None = await self._store.turn(live.spec.key.namespace, live.id)
        if stored is not None:
            return None if stored.state == "open" else finished_event(stored, 0)
        return TurnFinished("interrupted", LOST, 0, {}) if time.monotonic() - remote.heard > LEASE_S else None
