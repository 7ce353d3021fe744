"""A server on a real socket that sends the replies of a test, valid or not, and records the requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.tcp_server import tcp_server

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Json:
        body: Json = json.loads(self.raw)
        return body


Reply: TypeAlias = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class WireServer:
    """Plays ``replies`` in order and repeats the last one. It answers a request for the models with ``models``, or
    refuses it if that is None. ``left`` is set when a client disconnects before its reply is complete.
    """

    replies: Sequence[Reply] = ()
    models: Sequence[Json] | None = None
    asked: list[Asked] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    _port: int = 0
    _connected: int = 0
    _server: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    @property
    def url(self) -> str:
        return f"http://{self.host}/v1"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def chats(self) -> list[Json]:
        """Return the bodies of the requests for an answer."""
        return [asked.body for asked in self.asked if asked.method == "POST"]

    async def __aenter__(self) -> WireServer:
        self._port = await self._server.enter_async_context(tcp_server(self._serve))
        return self

    async def idle(self) -> None:
        """Wait until no client is connected."""
        while self._connected:
            await asyncio.sleep(0.01)

    async def __aexit__(self, *_: object) -> None:
        await self._server.aclose()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected += 1
        try:
            while not writer.is_closing():
                asked = await _read(reader)
                self.asked.append(asked)
                await self._answer(asked, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._connected -= 1

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reply = self._reply(asked)
        answering = asyncio.ensure_future(reply(asked, writer))
        leaving = asyncio.ensure_future(_until_gone(reader))
        try:
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                raise ConnectionError("the client left")
            await answering
        except ConnectionError:
            self.left.set()
            raise
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    def _reply(self, asked: Asked) -> Reply:
        if asked.path.endswith("/models"):
            return status(404, {"error": "no list"}) if self.models is None else json_reply({"data": [*self.models]})
        number = sum(earlier.method == "POST" for earlier in self.asked) - 1
        return self.replies[min(number, len(self.replies) - 1)]


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
    raw = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, raw)


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """Wait until the client disconnects.

    The client sends nothing while it reads, so anything that can be read is the end of the connection. A client that
    leaves without reading everything resets the connection, which raises an exception instead.
    """
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.005)


# ---------------------------------------------------------------------------------------------------- what it answers


def head(code: int, headers: Json) -> bytes:
    lines = [f"HTTP/1.1 {code} Reason", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def status(code: int, body: Any = None, **headers: str) -> Reply:
    """Return a reply with this status code. In the names of ``headers``, underscores stand for hyphens."""
    raw = body if isinstance(body, bytes) else json.dumps(body or {}).encode()

    async def reply(asked: Asked, writer: asyncio.StreamWriter) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        writer.write(head(code, {"Content-Type": "application/json", "Content-Length": len(raw)} | named) + raw)
        await writer.drain()

    return reply


def json_reply(body: Any) -> Reply:
    return status(200, body)


def raw_stream(*pieces: bytes | float, cut: bool = False, close: bool = True, **headers: str) -> Reply:
    """Return a reply that sends these bytes unchanged; a number is a pause in seconds. With ``cut`` the connection
    breaks in place of a proper end.
    """

    async def reply(asked: Asked, writer: asyncio.StreamWriter) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        writer.write(head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"} | named))
        for piece in pieces:
            if isinstance(piece, bytes):
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
            else:
                await asyncio.sleep(piece)
        if cut:
            writer.transport.abort()
            return
        if close:
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    return reply


def sse(*events: Any, done: bool = True, **options: Any) -> Reply:
    """Return a reply that sends the objects as events; a number is a pause in seconds."""
    pieces = [event if isinstance(event, float) else f"data: {json.dumps(event)}\n\n".encode() for event in events]
    return raw_stream(*pieces, *([b"data: [DONE]\n\n"] if done else []), **options)


def delta(finish: str | None = None, **fields: Any) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


WHOLE = {"name": "python", "arguments": '{"code": "1"}'}
"""The name and the arguments of a complete call."""


def call(index: int | None = 0, *, call_id: str | None = None, **function: Any) -> Json:
    """Return a delta with one piece of a call."""
    piece: Json = {"type": "function", "function": function}
    piece |= {} if index is None else {"index": index}
    piece |= {} if call_id is None else {"id": call_id}
    return delta(tool_calls=[piece])


def usage(prompt: int, completion: int, cached: int | None = None) -> Json:
    counts: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": cached}
    return {"choices": [], "usage": counts}


HELLO = sse(delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo."), delta("stop"))
"""Counts nothing."""


async def dropped(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Break the connection before the first byte of a reply."""
    writer.transport.abort()


async def silent(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()
