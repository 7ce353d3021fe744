"""A server that fails in the ways servers fail, with the answers that a test gives it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

HANG_UP = b""


def answer(status: int, body: Any = None, **headers: str) -> bytes:
    said = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{head}Content-Length: {len(said)}\r\nConnection: close\r\n\r\n".encode() + said


class Failing:
    """Sends its answers in turn and then repeats the last one. ``asked`` and ``bodies`` record the requests."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []
        self.bodies: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.splitlines() if line.lower().startswith("content-length:")), 0)
        chunked = "transfer-encoding: chunked" in head.lower()
        body = await (reader.readuntil(b"\r\n0\r\n\r\n") if chunked else reader.readexactly(length))
        self.bodies.append(body.decode("utf-8", "replace"))
        self.asked.append(head.partition("\r\n")[0])
        writer.write(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])
        writer.close()
