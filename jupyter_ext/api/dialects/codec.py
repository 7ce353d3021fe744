"""The interface of the codecs, which convert the events of a turn into the responses of a dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from agent_kernel.core.events import Event
from jupyter_ext.api.http import sse


class Frame(NamedTuple):
    """One server-sent event that is not encoded yet, because a response that is not streamed does not need the bytes.
    ``data`` None stands for ``[DONE]``."""

    data: Mapping[str, Any] | None
    name: str = ""

    def encode(self) -> bytes:
        return b"data: [DONE]\n\n" if self.data is None else sse.encode(self.data, self.name)


DONE = Frame(None)
"""The last frame of a stream in OpenAI's dialects. OpenAI's own server ends a stream of ``responses`` without this
frame. The frame is sent here because clients of other vendors wait for ``[DONE]``; OpenAI's clients stop at the
terminal event."""


def encode_frames(frames: Iterable[Frame]) -> list[bytes]:
    return [frame.encode() for frame in frames]


class Codec(Protocol):
    """Translates one turn into one response. It receives every event of the turn once and in order, and does not depend
    on HTTP or on this server."""

    def begin(self) -> Iterable[Frame]:
        """Return the server-sent events at the beginning of a stream, before any event of the turn."""
        ...

    def feed(self, event: Event) -> Iterable[Frame]:
        """Return the server-sent events for one event of the turn. For the turn's last event, they include the events
        that end the stream, whether the turn succeeded, failed or was cancelled."""
        ...

    def whole(self) -> Mapping[str, Any]:
        """Return the response that is not streamed, after the last event."""
        ...


# Converts log probabilities of tokens into the format that both of OpenAI's dialects use.


def token_logprob(token: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a token of AnswerLogprobs, with the likeliest tokens at its position."""
    return {
        **_without_alternatives(token),
        "top_logprobs": [_without_alternatives(other) for other in token.get("top", ())],
    }


def _without_alternatives(token: Mapping[str, Any]) -> dict[str, Any]:
    text = str(token["text"])
    return {"token": text, "logprob": token["logprob"], "bytes": list(text.encode("utf-8", "replace"))}
