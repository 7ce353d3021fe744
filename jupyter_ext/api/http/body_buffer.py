"""Holds the body of a request while it arrives. A body that exceeds the limit is still read to its end, but the rest is
dropped, so that it takes no more memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from tornado.httputil import HTTPInputError, HTTPServerRequest, parse_body_arguments

from agent_kernel.core.errors import InvalidRequest

DROPPED = 1 << 28
"""Maximum bytes beyond the limit that are read and dropped. A client that is still sending may not see an answer that
comes earlier. If the client sends more, it is answered at once and the connection is closed."""


@dataclass(slots=True)
class BodyBuffer:
    """Stores the body of a request, at most ``most`` bytes of it."""

    most: int
    size: int = 0
    _pieces: list[bytes] = field(default_factory=list)

    @property
    def too_large(self) -> bool:
        return self.size > self.most

    @property
    def endless(self) -> bool:
        """Whether the rest of the body is too large to be read and dropped."""
        return self.size > self.most + DROPPED

    def take(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.too_large:
            self._pieces.clear()
        else:
            self._pieces.append(piece)

    def whole(self) -> bytes:
        return b"".join(self._pieces)


def read_form(request: HTTPServerRequest) -> None:
    """Parse a form body; other bodies are left unparsed. tornado does this only for bodies that it stores itself.
    Raises InvalidRequest."""
    try:
        parse_body_arguments(
            request.headers.get("Content-Type", ""),
            request.body,
            request.body_arguments,
            request.files,
            request.headers,
        )
    except HTTPInputError as error:
        raise InvalidRequest(f"The form cannot be read: {error}.") from error
    for name, values in request.body_arguments.items():
        request.arguments.setdefault(name, []).extend(values)
