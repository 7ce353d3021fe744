"""Base of the handlers of all dialects: start a turn, follow it, and answer in the dialect's format."""

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
from jupyter_ext.turns.dialect_request import DialectRequest
from jupyter_ext.turns.idempotency import HEADER, REPLAYED, KeyEntry, StartedTurn, read_key
from jupyter_ext.turns.turns import LiveTurn

DECIDES_S = 2.0
"""A turn that fails within this time is answered with the status of its error; later, a stream has begun with 200."""
LEFT = "the client left"
QUIET = (TurnStarted, Queued, ModelLoading, Notice, ContextBuilt)
"""Events after which the decision can still wait, because they contain nothing of the answer."""


class DialectHandler(AgentHandler):
    """``error_body`` formats the errors of the dialect. A client that disconnects stops its turn, unless
    ``detached``."""

    detached = False
    unasked: type[AgentKernelError] = Unprocessable
    """The error for a request without a stream that may need an approval, which nobody could give: 422, or another
    status in some dialects."""
    _turn: LiveTurn | None = None
    _entry: KeyEntry | None = None

    async def begin_turn(self, asked: DialectRequest) -> StartedTurn:
        """Start the turn of the request, or return the turn that an earlier request with the same idempotency key
        started."""
        call = await self._once(dataclasses.replace(asked, route=self.route))
        self._turn = call.turn
        if self._gone:
            self.on_connection_close()
        return call

    def answerable(self, asked: DialectRequest) -> None:
        """Raise ``unasked`` if the turn may need an approval that nobody can give."""
        asks = "ask" in (asked.request.permission, self.services.runtime.settings.permission)
        if asks and asked.server_tools != () and not asked.streams:
            raise self.unasked(
                "With permission ask somebody is asked while the answer is streamed.",
                hint="Send stream: true, and answer at agent/approvals/{approval_id}.",
                details={"param": "agent_permission"},
            )

    _gone = False

    async def _once(self, asked: DialectRequest) -> StartedTurn:
        request, start = self.request, self.services.dialect_turn_starter.start
        key = read_key(self.caller, request.headers.get(HEADER), request.path, request.body)
        begun = await self.services.idempotency.start_once(key, lambda turn: start(self.caller, asked, turn))
        assert begun is not None, "a dialect's request begins a turn or raises"
        if begun.entry is not None:
            self._entry = begun.entry
            self.services.idempotency.add_reader(begun.entry)
        if begun.replayed:
            self.set_header(REPLAYED, "true")
        return begun

    def on_finish(self) -> None:
        super().on_finish()
        self._leave()

    def _leave(self) -> None:
        """Unregister from the idempotency key, once. A client that has a key may come back."""
        entry, self._entry = self._entry, None
        if entry is not None:
            self._turn = None
            self.services.idempotency.remove_reader(entry, stops=not self.detached)

    async def answer(self, call: StartedTurn, codec: Codec, *, streams: bool) -> None:
        """Send the response. Raises the error of a turn that failed before it produced anything, or that is not
        streamed."""
        if streams:
            await self._await_decision(call.turn)
            await self.stream(_frames(codec, call.turn.log.follow(0)))
            return
        events: AsyncIterator[Event] = call.turn.log.follow(0)
        async with aclosing(events):  # type: ignore[type-var]  # an async generator
            async for event in events:
                for _ in codec.feed(event):
                    pass
        raise_failure(call.turn.log.finished)
        if not self._gone:
            self.reply(codec.whole())

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._gone = True
        self._leave()
        turn = self._turn
        if turn is not None and turn.running and not self.detached:
            task = asyncio.ensure_future(self.services.turns.cancel(turn, LEFT))
            self.services.dialect_turn_starter.await_on_close(task)

    async def _await_decision(self, turn: LiveTurn) -> None:
        try:
            async with asyncio.timeout(DECIDES_S):
                events: AsyncIterator[Event] = turn.log.follow(0)
                async with aclosing(events):  # type: ignore[type-var]  # an async generator
                    async for event in events:
                        if isinstance(event.body, TurnFinished):
                            raise_failure(event.body)
                        if not isinstance(event.body, QUIET):
                            return
        except TimeoutError:
            return


class SharedHandler(AgentHandler):
    """Base of routes that clients of several APIs call. Anthropic's clients, known by their header, get errors in
    their format; all others get ours with the fields that OpenAI's clients read."""

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
        yield frame.encode()
    async with aclosing(events):  # type: ignore[type-var]  # an async generator
        async for event in events:
            for frame in codec.feed(event):
                yield frame.encode()


def raise_failure(end: TurnFinished | None) -> None:
    if end is not None and end.state == "failed":
        raise error_of(end.error or {})
