"""chat/completions: OpenAI's request to what is asked, and events to its chunks or its completion."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_kernel.events import CallReturned, Event, TextDelta, TurnFinished
from agent_kernel.sessions.model import new_id
from jupyter_ext.sse import encode

DONE = b"data: [DONE]\n\n"


class ChatCodec:
    """``session`` is told at the end."""

    def __init__(self, model: str, session: str) -> None:
        self._facts = {"id": new_id("chatcmpl"), "created": int(time.time()), "model": model}
        self._session = session
        self._text: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._end: TurnFinished | None = None

    def begin(self) -> Iterable[bytes]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def feed(self, event: Event) -> Iterator[bytes]:
        match event.body:
            case TextDelta(text):
                self._text.append(text)
                yield self._chunk({"content": text})
            case CallReturned(call, name, arguments):
                self._calls.append(
                    {
                        "id": call,
                        "type": "function",
                        "function": {"name": name, "arguments": json.dumps(dict(arguments))},
                    }
                )
            case TurnFinished():
                self._end = event.body
                yield self._chunk({}, "stop")
                yield DONE

    def whole(self) -> Mapping[str, Any]:
        message = {"role": "assistant", "content": "".join(self._text)}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {**self._facts, "object": "chat.completion", "choices": [choice], "session_id": self._session}

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return encode({**self._facts, "object": "chat.completion.chunk", "choices": [choice]})
