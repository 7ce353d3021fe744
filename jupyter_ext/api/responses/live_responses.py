"""Keeps the responses of this server: running responses, which any number of readers can follow from any event on, and
stored responses. Servers that share a store share the stored ones."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from agent_kernel.core.errors import Conflict, SessionBusy, StoreError, TurnNotFound
from agent_kernel.core.events import Event, TurnFinished
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import UNLISTED, SessionKey
from agent_kernel.core.shielded_await import RunningTasks
from jupyter_ext.api.dialects.codec import encode_frames
from jupyter_ext.api.responses.codec import ResponsesCodec
from jupyter_ext.api.responses.response_object import ENDED, response_id
from jupyter_ext.api.responses.shared_responses import SharedResponses
from jupyter_ext.api.responses.store import (
    DatabaseResponses,
    ResponseOwner,
    ResponseRows,
    ResponseStore,
    StoredResponse,
)
from jupyter_ext.notebooks.private_sessions import PrivateSessions
from jupyter_ext.services import Services
from jupyter_ext.turns.remote_turns import RemoteTurns
from jupyter_ext.turns.stored_events import find_turn, replay
from jupyter_ext.turns.turns import LiveTurn, Turns

log = logging.getLogger(__name__)
STOPPED = "cancelled by the client"
GONE = "The turn of this response is not in its session any more."
ENDS_WITHIN_S = 10.0
LAST = 2
"""Number of frames at the end of a stream that every reader gets: the terminal event and the end of the stream."""
SWEEP_S = 3600.0
AGAIN_TRIES, AGAIN_PAUSE_S = 20, 0.1


class LiveResponse:
    """A running response. ``frames`` are the encoded events of its stream so far; the index of a frame is the number of
    its event. If the response is neither stored nor streamed (``has_readers`` is false), nobody can follow it, and
    ``frames`` stays empty."""

    def __init__(self, stored: StoredResponse, turn: LiveTurn, *, has_readers: bool = True) -> None:
        self.stored = stored
        self.turn = turn
        self.codec = ResponsesCodec(stored.facts)
        self.frames: list[bytes] = encode_frames(self.codec.begin())
        self._has_readers = has_readers
        self.ended = asyncio.Event()
        self._changed = asyncio.Event()

    async def follow(self, after: int = -1) -> AsyncGenerator[bytes, None]:
        """Yield the events after number ``after`` as they arrive. The terminal event is yielded even if its number is
        not higher."""
        at = after + 1
        while True:
            changed = self._changed
            if self.ended.is_set():
                at = min(at, len(self.frames) - LAST) if at == after + 1 else at
            while at < len(self.frames):
                yield self.frames[at]
                at += 1
            if self.ended.is_set():
                return
            if changed is self._changed:
                await changed.wait()

    async def run(self) -> None:
        async with aclosing(self.turn.log.follow(0)) as events:
            async for event in events:
                frames = self.codec.feed(event)
                if self._has_readers:
                    self.frames += encode_frames(frames)
                else:
                    collections.deque(frames, maxlen=0)
                if isinstance(event.body, TurnFinished):
                    self.ended.set()
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()


class LiveResponses:
    """The running and the stored responses of one server.

    ``rows`` are where responses are stored; None: in memory. Turns of ``remote_turns`` run on other servers.
    """

    def __init__(
        self,
        sessions: SessionStore,
        turns: Turns,
        remote_turns: RemoteTurns,
        private_sessions: PrivateSessions,
        rows: ResponseRows | None = None,
    ) -> None:
        self.sessions = sessions
        self._turns = turns
        self._remote_turns = remote_turns
        self._private_sessions = private_sessions
        self.store = ResponseStore(rows)
        self._live: dict[str, LiveResponse] = {}
        self._swept = float("-inf")
        self._tasks = RunningTasks()

    async def begin(self, stored: StoredResponse, turn: LiveTurn, *, kept: bool, streams: bool) -> LiveResponse:
        """Register the response of a turn that was just started. The turn is stopped if the response cannot be stored.
        Raises StoreError."""
        live = LiveResponse(stored, turn, has_readers=kept or streams)
        if kept:
            try:
                await self.store.add(stored)
            except StoreError:
                await self._turns.cancel(turn, "the response of this turn could not be stored")
                raise
            self._live[stored.id] = live
        self._tasks.start(self._run(live, kept=kept), f"response of {turn.id}")
        if time.monotonic() - self._swept > SWEEP_S:
            self._swept = time.monotonic()
            self._tasks.start(self.sweep(), "responses of sessions that are gone")
        return live

    async def sweep(self) -> None:
        """Remove the responses whose session no longer exists."""
        try:
            for key in await self.store.sessions():
                if await self.sessions.info(key) is None:
                    await self.store.forget(key)
        except StoreError as error:
            log.warning("responses of deleted sessions could not be removed: %s", error)

    async def find(self, owner: ResponseOwner, id: str) -> StoredResponse | None:
        """Return a response that the owner may fetch and continue, or None. Responses of a deleted session do not exist
        any more."""
        response = await self.store.get(owner, id)
        if response is not None and await self.sessions.info(response.key) is None:
            await self.store.forget(response.key)
            return None
        return response

    async def again(self, owner: ResponseOwner, turn: str) -> StoredResponse | None:
        """Return the stored response of a turn for a request that repeats an idempotency key; None if the response is
        not stored. The response is stored a moment after the turn has started, so this waits up to two seconds."""
        id = response_id(owner.namespace, turn)
        for _ in range(AGAIN_TRIES):
            if (response := await self.store.get(owner, id)) is not None:
                return response
            await asyncio.sleep(AGAIN_PAUSE_S)
        return None

    async def await_end(self, stored: StoredResponse) -> Mapping[str, Any]:
        """Wait for the end of the turn and return the resource."""
        if (live := self._live.get(stored.id)) is not None:
            await live.ended.wait()
            return live.codec.resource
        stored = await self._newest(stored)
        return stored.body if stored.body is not None else (await self._rebuild(stored, wait=True))[0].resource

    async def resource(self, stored: StoredResponse) -> Mapping[str, Any]:
        """Return the resource in its present state. If the server that ran the response was killed, the resource is
        rebuilt from its turn."""
        if (live := self._live.get(stored.id)) is not None:
            return live.codec.resource
        stored = await self._newest(stored)
        if stored.body is not None:
            return stored.body
        codec, _ = await self._rebuild(stored, wait=False)
        return codec.resource

    async def stream(self, stored: StoredResponse, after: int = -1) -> AsyncGenerator[bytes, None]:
        """Yield the events after number ``after``. The terminal event is yielded even if its number is not higher. The
        events of a response that another server runs are yielded when it has ended, because only that server numbers
        them."""
        if (live := self._live.get(stored.id)) is not None:
            async with aclosing(live.follow(after)) as frames:
                async for frame in frames:
                    yield frame
            return
        stored_frames = await self.store.frames(stored.owner, stored.id)
        if not stored_frames:
            _, rebuilt = await self._rebuild(await self._newest(stored), wait=True)
            stored_frames = await self.store.frames(stored.owner, stored.id) or rebuilt
        for frame in stored_frames[min(after + 1, max(0, len(stored_frames) - LAST)) :]:
            yield frame

    async def cancel(self, stored: StoredResponse) -> Mapping[str, Any]:
        """Stop the turn, wait for its end and return the resource; a response that has ended is unchanged. Raises
        Conflict, and ServerUnreachable if the turn runs on another server, which does not answer."""
        live = self._live.get(stored.id)
        turn = await self._find_running(stored)
        if turn is not None:
            await self._turns.cancel(turn, STOPPED)
        if live is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENDS_WITHIN_S):
                    await live.ended.wait()
        resource = await self.resource(stored)
        if resource["status"] not in ENDED:
            why = (
                "It is being stopped: read it again in a moment."
                if turn is not None
                else "Another server runs it: send the request to that server."
            )
            raise Conflict(f"This response has not ended. {why}")
        return resource

    async def delete(self, stored: StoredResponse) -> None:
        """Delete the response, after stopping it if it is running. The session is kept, unless it is not listed: such a
        session is deleted with its last response."""
        await self.drop(stored)
        key = stored.key
        if not key.id.startswith(UNLISTED) or await self.store.has_response(key):
            return
        with contextlib.suppress(SessionBusy):  # a turn whose response is not stored (yet) may use the session
            await self._private_sessions.forget(key)

    async def drop(self, stored: StoredResponse) -> None:
        """Delete the response and leave its session, after stopping the response if it is running."""
        turn = await self._find_running(stored)
        self._live.pop(stored.id, None)
        if turn is not None:
            await self._turns.cancel(turn, STOPPED)
        await self.store.delete(stored.owner, stored.id)

    async def delete_session(self, key: SessionKey) -> bool:
        """Delete a session with its responses and its work directory; return whether it existed. Raises SessionBusy."""
        existed = await self._private_sessions.forget(key)
        await self.store.forget(key)
        return existed

    async def aclose(self) -> None:
        """Wait for unfinished tasks and close the store. Call this after all turns have ended."""
        await self._tasks.wait()
        await self.store.aclose()

    async def _run(self, live: LiveResponse, *, kept: bool) -> None:
        await live.run()
        if not kept:
            return
        try:
            await self.store.finish(live.stored, live.codec.resource, live.frames)
        except StoreError as error:  # a later request rebuilds the resource from its turn
            log.warning("response %s could not be stored: %s", live.stored.id, error)
        self._live.pop(live.stored.id, None)

    async def _find_running(self, stored: StoredResponse) -> LiveTurn | None:
        """Return the turn of a response that has not ended. It may run on another server that shares the store."""
        if (live := self._live.get(stored.id)) is not None:
            return live.turn
        if (await self._newest(stored)).body is not None:
            return None
        return await self._remote_turns.find(stored.owner.namespace, stored.turn)

    async def _newest(self, stored: StoredResponse) -> StoredResponse:
        """Return the newest stored state of the response, which may have ended since ``stored`` was read."""
        if stored.body is not None:
            return stored
        return await self.store.get(stored.owner, stored.id) or stored

    async def _rebuild(self, stored: StoredResponse, *, wait: bool) -> tuple[ResponsesCodec, list[bytes]]:
        """Rebuild the response from the items of its turn. ``wait``: if another server runs the turn, wait for its
        end."""
        codec = ResponsesCodec(stored.facts)
        frames = encode_frames(codec.begin())
        store = self.sessions
        try:
            turn = await find_turn(store, stored.owner.namespace, stored.turn, stored.facts.session)
        except TurnNotFound:
            error = {"code": "turn_not_found", "message": GONE}
            end = TurnFinished("failed", GONE, 0, {}, error)
            failed = Event(1, stored.turn, stored.facts.session, 0, 0.0, end)
            return codec, frames + encode_frames(codec.feed(failed))
        if turn.state == "open" and not wait:
            return codec, frames
        async for event in replay(store, turn, 0, media=True):
            frames += encode_frames(codec.feed(event))
        if stored.body is None:
            await self.store.finish(stored, codec.resource, frames, again=True)
        return codec, frames


def responses_of(services: Services) -> LiveResponses:
    """Return the object that holds the responses of the Responses API on this server. The first call creates it."""
    return services.on_demand.get(
        LiveResponses,
        lambda: LiveResponses(
            services.runtime.store,
            services.turns,
            services.remote_turns,
            services.private_sessions,
            _response_rows(services),
        ),
    )


def _response_rows(services: Services) -> ResponseRows | None:
    if services.state.link is not None:
        return SharedResponses(services.state.link)
    settings = services.runtime.settings
    return None if settings.store == "memory" else DatabaseResponses(settings.data_dir / "responses.db")
