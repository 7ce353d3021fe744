"""A parser for server-sent events: bytes in, frames out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SseFrame:
    """One event; ``id`` and ``event`` are empty if it has none."""

    id: str
    event: str
    data: str


class SseParser:
    """Accepts chunks of any length; a frame is complete at its empty line."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._fields: dict[str, list[str]] = {}

    def feed(self, piece: bytes) -> Iterator[SseFrame]:
        *ended, rest = piece.split(b"\n")
        for part in ended:
            line, self._line = b"".join((*self._line, part)), []
            if frame := self._take(line.removesuffix(b"\r").decode("utf-8", "replace")):
                yield frame
        if rest:
            self._line.append(rest)

    def _take(self, line: str) -> SseFrame | None:
        if line:
            name, _, value = line.partition(":")
            self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None  # a comment, so that the connection is known to live
        number, kind = (fields.get(name, [""])[-1] for name in ("id", "event"))
        return SseFrame(number, kind, "\n".join(fields["data"]))


async def frames_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[SseFrame]:
    frames = SseParser()
    async for piece in pieces:
        for frame in frames.feed(piece):
            yield frame
