"""Base class of the handlers of all dialects. It starts a turn, follows its events, and answers in the dialect's
format."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agent_kernel.core.errors import AgentKernelError, FetchFailed, InvalidRequest, Unprocessable, from_json
from agent_kernel.core.events import ContextBuilt, Event, ModelLoading, Notice, Queued, TurnFinished, TurnStarted
from agent_kernel.core.messages import VISIBLE_IMAGE_TYPES, Media
from agent_kernel.core.net.fetch import Fetcher, FetchLimits, FetchResult
from jupyter_ext.api.dialects import anthropic_errors
from jupyter_ext.api.dialects.codec import DONE, Codec, Frame
from jupyter_ext.api.dialects.merged_streams import merge
from jupyter_ext.api.dialects.openai_content import MAX_MEDIA, visible_media
from jupyter_ext.api.dialects.openai_errors import openai_error, openai_status
from jupyter_ext.api.dialects.openai_validation import name_field
from jupyter_ext.api.http.handler import AgentHandler, M
from jupyter_ext.api.schemas.errors import AnthropicError, ModelError, OpenAIError
from jupyter_ext.turns.dialect_request import DialectRequest
from jupyter_ext.turns.idempotency import HEADER, REPLAYED, KeyEntry, StartedTurn, read_key
from jupyter_ext.turns.turns import LiveTurn

DECIDES_S = 2.0
"""Seconds that a stream waits before it begins. A turn that fails within this time is answered with the HTTP status of
its error. A turn that fails later is answered with status 200 and an error in the stream."""
LEFT = "the client left"
CHOICE_FAILED = "another choice of the request failed"
QUIET = (TurnStarted, Queued, ModelLoading, Notice, ContextBuilt)
"""Events that do not begin the stream, because they contain nothing of the answer: an HTTP error can still follow."""
PICTURE = FetchLimits(total_s=30.0, bytes=MAX_MEDIA, types=(*sorted(VISIBLE_IMAGE_TYPES), "video/"))


class DialectHandler(AgentHandler):
    """Base class of the handlers that answer in the format of another vendor.

    A subclass formats its errors in ``error_body``. If the client disconnects, its turn is stopped, unless ``detached``
    is set.
    """

    detached = False
    unasked: type[AgentKernelError] = Unprocessable
    """The error for a request that may need an approval but is not streamed, so that nobody could be asked."""
    _gone = False
    """Whether the client has disconnected."""

    def initialize(self, **kwargs: Any) -> None:
        super().initialize(**kwargs)
        self._turns: list[LiveTurn] = []
        self._entries: list[KeyEntry] = []

    async def begin_turn(self, dialect_request: DialectRequest) -> StartedTurn:
        """Start the turn of the request, or return the turn that an earlier request with the same idempotency key
        started."""
        (call,) = await self.begin_turns([dialect_request])
        return call

    async def begin_turns(self, dialect_requests: Sequence[DialectRequest]) -> list[StartedTurn]:
        """Start one turn for each choice of the request, as ``begin_turn`` does. If one of them is refused, the others
        are stopped when the request ends."""
        calls: list[StartedTurn] = []
        for choice, dialect_request in enumerate(dialect_requests):
            calls.append(await self._start_idempotent(dataclasses.replace(dialect_request, route=self.route), choice))
            if self._gone:
                self._leave(LEFT)
        return calls

    async def fetch(self, urls: Sequence[str], limits: FetchLimits, *, purpose: str) -> list[FetchResult]:
        """Fetch the URLs that a request refers to, under the server's egress policy. ``limits.bytes`` applies to all
        URLs together. Raises InvalidRequest if a URL cannot be fetched; Forbidden, LocalOnly."""
        runtime = self.services.runtime
        try:
            return await fetch_all(Fetcher(runtime.guard, runtime.egress), urls, limits, purpose=purpose)
        except FetchFailed as error:
            raise InvalidRequest(f"A URL of this request cannot be fetched: {error.message}") from error

    def check_model(self, dialect_request: DialectRequest) -> None:
        """Raise UnknownModel if the server does not have the model of the request."""
        if dialect_request.name and self.services.access.may_choose(self.caller, dialect_request.name):
            self.services.runtime.engines.get(dialect_request.name)

    def answerable(self, dialect_request: DialectRequest) -> None:
        """Check that a person can answer the approval questions of the turn. Raises the error ``self.unasked`` for a
        request that is not streamed and whose permission mode is to ask a person."""
        asks = "ask" in (dialect_request.request.permission, self.services.runtime.settings.permission)
        if asks and dialect_request.server_tools != () and not dialect_request.streams:
            raise self.unasked(
                "The permission ask needs a streamed request, because approval questions are sent in the stream.",
                hint="Send stream: true, and answer at agent/approvals/{approval_id}.",
                details={"param": "agent_permission"},
            )

    async def _start_idempotent(self, dialect_request: DialectRequest, choice: int) -> StartedTurn:
        request, start = self.request, self.services.dialect_turn_starter.start
        key = read_key(self.caller, request.headers.get(HEADER), request.path, request.body, choice)
        begun = await self.services.idempotency.start_once(key, lambda turn: start(self.caller, dialect_request, turn))
        assert begun is not None, "a dialect's request begins a turn or raises"
        if begun.entry is not None:
            self._entries.append(begun.entry)
            self.services.idempotency.add_reader(begun.entry)
        if begun.replayed:
            self.set_header(REPLAYED, "true")
        if begun.entry is None:
            self._turns.append(begun.turn)
        return begun

    def on_finish(self) -> None:
        super().on_finish()
        self._leave(CHOICE_FAILED)

    def _leave(self, reason: str) -> None:
        """Stop the turns of this request that still run, unless it is ``detached``; repeated calls do nothing. A turn
        with an idempotency key continues for a while, because its client may repeat the request."""
        entries, self._entries = self._entries, []
        for entry in entries:
            self.services.idempotency.remove_reader(entry, stops=not self.detached)
        turns, self._turns = self._turns, []
        for turn in turns:
            if turn.running and not self.detached:
                task = asyncio.ensure_future(self.services.turns.cancel(turn, reason))
                self.services.dialect_turn_starter.await_on_close(task)

    async def answer(self, calls: Sequence[StartedTurn], codec: Codec, *, streams: bool) -> None:
        """Send the response, which has one turn for each choice. Raises the error of a turn that failed before it
        produced anything, or that is not streamed."""
        turns = [call.turn for call in calls]
        frames = _frames(codec, merge([turn.log.follow(0) for turn in turns]))
        if streams:
            await self._await_decision(turns[0])
            await self.stream(_encode(frames))
            return
        async with aclosing(frames):
            async for _ in frames:
                pass
        for turn in turns:
            raise_failure(turn.log.finished)
        if not self._gone:
            self.reply(codec.whole())

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._gone = True
        self._leave(LEFT)

    async def _await_decision(self, turn: LiveTurn) -> None:
        try:
            async with asyncio.timeout(DECIDES_S):
                async with aclosing(turn.log.follow(0)) as events:
                    async for event in events:
                        if isinstance(event.body, TurnFinished):
                            raise_failure(event.body)
                        if not isinstance(event.body, QUIET):
                            return
        except TimeoutError:
            return


class SharedHandler(AgentHandler):
    """Base class of the handlers of routes that clients of several APIs call. Clients that send the header
    ``anthropic-version`` get errors in Anthropic's format; all others get the native format with the additional fields
    that OpenAI's clients read."""

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


async def _frames(codec: Codec, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Frame, None]:
    """Yield the frames of a response up to DONE, which follows the error of one choice while others still run."""
    for frame in codec.begin():
        yield frame
    async with aclosing(events):
        async for event in events:
            for frame in codec.feed(event):
                yield frame
                if frame is DONE:
                    return


async def _encode(frames: AsyncGenerator[Frame, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(frames):
        async for frame in frames:
            yield frame.encode()


def raise_failure(end: TurnFinished | None) -> None:
    if end is not None and end.state == "failed":
        raise from_json(end.error or {})


async def fetch_all(fetcher: Fetcher, urls: Sequence[str], bounds: FetchLimits, *, purpose: str) -> list[FetchResult]:
    """Fetch all remote media of one request at the same time, and return them in the order of ``urls``.
    ``bounds.bytes`` limits all of them together; the other bounds apply to each. The first failure cancels the other
    fetches. Raises the errors of ``Fetcher.get``."""
    bytes_left = bounds.bytes

    async def fetch_one(url: str) -> FetchResult:
        nonlocal bytes_left
        held: list[bytes] = []
        async with fetcher.open(url, bounds, purpose=purpose) as (answer, pieces):
            async for piece in pieces:
                bytes_left -= len(piece)
                if bytes_left < 0:
                    raise FetchFailed(f"The media of a request can have at most {bounds.bytes >> 20} MiB together.")
                held.append(piece)
        return replace(answer, data=b"".join(held))

    tasks = [asyncio.ensure_future(fetch_one(url)) for url in urls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


# Base class of the handlers of OpenAI's dialects: errors in OpenAI's format, and media that are fetched before a turn
# starts.


class OpenAIHandler(DialectHandler):
    """Sends errors in OpenAI's format, in which a context overflow has the status 400."""

    error_shape = OpenAIError

    def error_body(self, status: int, error: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"error": {**openai_error(status, error), "request_id": self.request_id}}

    def refuse(self, error: AgentKernelError, status: int) -> None:
        super().refuse(error, openai_status(error, status))

    def parse(self, model: type[M]) -> M:
        """Parse the body as every handler does; the error names the invalid field."""
        try:
            return super().parse(model)
        except InvalidRequest as error:
            raise name_field(error, self.request.body, model) from error.__cause__

    async def fetch_media(self, urls: Sequence[str]) -> dict[str, Media]:
        """Fetch remote media under the server's egress policy, with one size limit for all of them. Raises
        InvalidRequest, also for media that cannot be fetched; Forbidden, LocalOnly."""
        if not urls:
            return {}
        pictures = await self.fetch(urls, PICTURE, purpose="a picture")
        try:
            return {url: visible_media(picture.mime, picture.data) for url, picture in zip(urls, pictures, strict=True)}
        except ValueError as error:
            raise InvalidRequest(f"A medium of this request cannot be used: {error}.") from error
