"""HTTP servers on this machine for tests: real sockets, with responses as raw as a test needs."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.tcp_server import tcp_server

Answer: TypeAlias = Callable[["Asked", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Web:
    """A web server. ``asked`` are the requests in the order of their arrival."""

    port: int = 0
    pages: dict[str, Answer] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.host}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            method, path, _ = first.split(" ")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            asked = Asked(method, path, headers, body)
            self.asked.append(asked)
            await self.pages.get(path.partition("?")[0], says(404, b"not here"))(asked, writer)
        writer.close()


def says(status: int = 200, body: bytes = b"", **headers: str) -> Answer:
    """Return a handler that sends a complete response. In names of headers, ``_`` stands for ``-``."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        lines = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body))}
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}
        writer.write(f"HTTP/1.1 {status} X\r\n".encode())
        writer.write("".join(f"{name}: {value}\r\n" for name, value in lines.items() if value).encode("latin-1"))
        writer.write(b"connection: close\r\n\r\n" + body)
        await writer.drain()

    return answer


def moved(location: str, status: int = 302) -> Answer:
    return says(status, location=location)


def html(body: str, title: str = "A page") -> Answer:
    text = f"<!doctype html><html><head><title>{title}</title></head><body>{body}</body></html>"
    return says(200, text.encode(), content_type="text/html; charset=utf-8")


def drips(every_s: float) -> Answer:
    """Return a handler that sends an endless body, one byte every ``every_s`` seconds."""

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(every_s)

    return answer


def floods() -> Answer:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        while True:
            writer.write(b"x" * 65_536)
            await writer.drain()

    return answer


def says_nothing() -> Answer:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    return answer


@asynccontextmanager
async def served(pages: dict[str, Answer], tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    web = Web(pages=pages)
    async with tcp_server(web.serve, ssl=tls) as port:
        web.port = port
        yield web
