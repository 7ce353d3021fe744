"""What the routes of all dialects share: a turn is started, followed and told in the dialect's words."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from agent_kernel.core.errors import AgentKernelError, Unprocessable
from agent_kernel.core.events import ContextBuilt, Event, ModelLoading, Notice, Queued, TurnFinished, TurnStarted
from jupyter_ext.api.dialects import anthropic_errors
from jupyter_ext.api.dialects.codec import Codec
from jupyter_ext.api.dialects.openai_errors import openai_error
from jupyter_ext.api.http.error_status import error_of
from jupyter_ext.api.http.handler import AgentHandler
from jupyter_ext.api.schemas.errors import AnthropicError, ModelError
from jupyter_ext.turns.dialect_request import Asked
from jupyter_ext.turns.idempotency import HEADER, REPLAYED, Begun, Entry, key_of
from jupyter_ext.turns.start_turn import Call
from jupyter_ext.turns.turns import LiveTurn

DECIDES_S = 2.0
"""A turn that fails so soon is answered with the status of its error; after that a stream has begun, with 200."""
LEFT = "the client left"
QUIET = (TurnStarted, Queued, ModelLoading, Notice, ContextBuilt)
"""Events that a stream can wait for: they say nothing of the answer."""


class DialectHandler(AgentHandler):
    """``error_body`` gives the errors of the dialect. A client that leaves stops its turn, unless ``detached``."""

    detached = False
    unasked: type[AgentKernelError] = Unprocessable
    """What a request is where somebody would have to be asked and nobody follows: 422, or as the dialect has it."""
    _turn: LiveTurn | None = None
    _entry: Entry | None = None

    async def begun(self, asked: Asked) -> Call:
        """The turn of the request; under a key that came before the one that it began then."""
        call = await self._once(dataclasses.replace(asked, route=self.route))
        self._turn = call.turn
        if self._gone:
            self.on_connection_close()
        return call

    def answerable(self, asked: Asked) -> None:
        """Raises ``unasked``."""
        asks = "ask" in (asked.request.permission, self.services.runtime.settings.permission)
        if asks and asked.engaged != () and not asked.streams:
            raise self.unasked(
                "With permission ask somebody is asked while the answer is streamed.",
                hint="Send stream: true, and answer at agent/approvals/{approval_id}.",
                details={"param": "agent_permission"},
            )

    _gone = False

    async def _once(self, asked: Asked) -> Call:
        request = self.request
        key = key_of(self.caller, request.headers.get(HEADER), request.path, request.body)
        if key is None:
            return await self.services.turn_starter.begin(self.caller, asked)

        async def begin(turn: str) -> Begun:
            call = await self.services.turn_starter.begin(self.caller, asked, turn)
            return Begun(call.turn, {"session": call.session})

        found = await self.services.idempotency.once(key, begin)
        assert found is not None, "a dialect's request begins a turn or raises"
        self._entry, begun = found
        self.services.idempotency.joins(self._entry)
        if begun.again:
            self.set_header(REPLAYED, "true")
        return Call(begun.turn, str(begun.facts.get("session", "")), again=begun.again)

    def on_finish(self) -> None:
        super().on_finish()
        self._leave()

    def _leave(self) -> None:
        """Once; a client that has a key may come back."""
        entry, self._entry = self._entry, None
        if entry is not None:
            self._turn = None
            self.services.idempotency.leaves(entry, stops=not self.detached)

    async def answer(self, call: Call, codec: Codec, *, streams: bool) -> None:
        """Raises the error of a turn that failed before it said anything, and of one that is not streamed."""
        if streams:
            await self._decided(call.turn)
            await self.stream(_frames(codec, call.turn.log.follow(0)))
            return
        events: AsyncIterator[Event] = call.turn.log.follow(0)
        async with aclosing(events):  # type: ignore[type-var]  # an async generator
            async for event in events:
                for _ in codec.feed(event):
                    pass
        raise_failed(call.turn.log.finished)
        if not self._gone:
            self.reply(codec.whole())

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._gone = True
        self._leave()
        turn = self._turn
        if turn is not None and turn.running and not self.detached:
            task = asyncio.ensure_future(self.services.turns.cancel(turn, LEFT))
            self.services.turn_starter.also(task)

    async def _decided(self, turn: LiveTurn) -> None:
        try:
            async with asyncio.timeout(DECIDES_S):
                events: AsyncIterator[Event] = turn.log.follow(0)
                async with aclosing(events):  # type: ignore[type-var]  # an async generator
                    async for event in events:
                        if isinstance(event.body, TurnFinished):
                            raise_failed(event.body)
                        if not isinstance(event.body, QUIET):
                            return
        except TimeoutError:
            return


class SharedHandler(AgentHandler):
    """Routes that clients of several APIs call. Anthropic's clients send a header of their own and get errors in their
    shape; everybody else gets our shape with the fields that OpenAI's clients read."""

    error_shape = ModelError | AnthropicError

    @property
    def anthropic(self) -> bool:
        return "anthropic-version" in self.request.headers

    def error_body(self, status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.anthropic:
            return anthropic_errors.body(status, error, self.request_id)
        openai = openai_error(status, error)
        more = {name: openai[name] for name in ("type", "param")}
        return {"error": {**error, **more, "request_id": self.request_id}}


async def _frames(codec: Codec, events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    for frame in codec.begin():
        yield frame
    async with aclosing(events):  # type: ignore[type-var]  # an async generator
        async for event in events:
            for frame in codec.feed(event):
                yield frame


def raise_failed(end: TurnFinished | None) -> None:
    if end is not None and end.state == "failed":
        raise error_of(end.error or {})
