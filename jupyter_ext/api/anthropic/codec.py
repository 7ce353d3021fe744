"""Converts the events of a turn into one message of Anthropic's Messages API, or into its stream. The module has no
side effects.

Extensions of Anthropic's format are sent as server-sent events without an event name. Most readers of Anthropic's
streams skip these; clients that know the extensions recognize them by the ``type`` in the data."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from agent_kernel.core.events import (
    CallFinished,
    CallReturned,
    CallStarted,
    ContextBuilt,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnFinished,
)
from jupyter_ext.api.anthropic import server_tool_blocks
from jupyter_ext.api.anthropic.server_tool_blocks import Block
from jupyter_ext.api.dialects.codec import Frame
from jupyter_ext.api.dialects.tool_call_log import APPROVAL, ToolCallLog

PING = b'event: ping\ndata: {"type": "ping"}\n\n'
"""The event that is sent while a stream has no other data, so that its connection stays open."""
STOPPED: Mapping[str, str] = {"length": "max_tokens", "calls": "tool_use", "stop": "end_turn"}
Thinking: TypeAlias = Literal["shown", "omitted", "hidden"]
"""How the model's thinking is shown. ``shown``: blocks with their text; ``omitted``: blocks without their text;
``hidden``: no blocks."""


@dataclass(frozen=True, slots=True)
class Container:
    """The container in which the session's code runs. Its variables are deleted ``idle_s`` seconds after its last
    use."""

    id: str
    idle_s: float

    def to_json(self, now: float) -> dict[str, Any]:
        until = datetime.fromtimestamp(now + self.idle_s, UTC).replace(microsecond=0)
        return {"id": self.id, "expires_at": until.isoformat().replace("+00:00", "Z"), "skills": None}


class MessagesCodec:
    """Converts the events of one turn into a message of Anthropic's API, or into its stream.

    ``model`` is returned as the client sent it. ``session`` is the session id to report; empty: none is reported.
    ``refused`` returns the body for the error with which a failed turn ended. ``turn`` is the turn's id, from which the
    id of the message is derived. ``reports`` is true if the client knows mistral.rs's events. Of these events, any
    other client gets only the approval questions, because the turn waits for the answers. The other events are left
    out, because some clients of Anthropic's API fail at events of an unknown type.
    """

    def __init__(
        self,
        model: str,
        session: str,
        *,
        refused: Callable[[TurnFinished], Mapping[str, Any]],
        turn: str = "",
        container: Container | None = None,
        thinking: Thinking = "shown",
        reports: bool = True,
    ) -> None:
        self._id = hashlib.sha256(turn.encode()).hexdigest()[:24] if turn else secrets.token_hex(12)
        self._facts: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "stop_details": None,
        }
        self._session = {"session_id": session} if session else {}
        self._error_body = refused
        self._container = container
        self._thinking = thinking
        self._reports = reports
        self._blocks: list[Block] = []
        self._pieces: list[str] = []
        self._open = ""
        self._calls: dict[str, tuple[str, str]] = {}
        self._used_so_far = 0
        self._in_container = False
        self._web = {"web_search_requests": 0, "web_fetch_requests": 0}
        self._log = ToolCallLog()
        self._end: Event | None = None

    @property
    def id(self) -> str:
        """The id of the message."""
        return f"msg_{self._id}"

    # --------------------------------------------------------------------------------------------- the complete message

    def begin(self) -> Iterable[Frame]:
        start = {**self._facts, "content": [], "stop_reason": None, "stop_sequence": None, "usage": _usage({})}
        return [_event("message_start", message={**start, **self._session})]

    def feed(self, event: Event) -> Iterator[Frame]:
        match event.body:
            case TextDelta(text) if text:
                yield from self._add_text("text", text)
            case ReasoningDelta(text) if text and self._thinking != "hidden":
                yield from self._add_text("thinking", text)
            case ContextBuilt():
                yield from self._close_text()  # the texts of two model calls are two text blocks
            case CallReturned(call, name, arguments):
                yield from self._add_call({"type": "tool_use", "id": call, "name": name, "input": dict(arguments)})
            case TurnFinished():
                yield from self._end_turn(event)
            case _:
                yield from self._feed_tools(event)

    def whole(self) -> Mapping[str, Any]:
        return {**self._facts, "content": self._blocks, **self._ending, **self._session, **self._extras}

    def _feed_tools(self, event: Event) -> Iterator[Frame]:
        """Yield mistral.rs's report events for the calls of all server tools, and Anthropic's blocks for the calls of
        those server tools that Anthropic has too."""
        match event.body:
            case CallStarted(call, name, arguments) if name in server_tool_blocks.NAMES:
                yield from self._start_server_call(call, name, arguments)
            case CallFinished() as body if body.call in self._calls:
                yield from self._finish_server_call(body)
        name, data = self._log.record(event) or ("", {})
        if name == APPROVAL or (name and self._reports):
            yield Frame({"type": name, **data})

    # ------------------------------------------------------------------------------------------------ content blocks

    def _add_text(self, kind: str, text: str) -> Iterator[Frame]:
        if self._open != kind:
            yield from self._close_text()
            self._open = kind
            empty = {"type": "text", "text": ""} if kind == "text" else {"type": kind, "thinking": "", "signature": ""}
            yield self._start(empty)
        self._pieces.append(text)
        if kind == "text" or self._thinking == "shown":
            yield self._delta({"type": f"{kind}_delta", kind: text})

    def _close_text(self) -> Iterator[Frame]:
        """End the open text block, if there is one."""
        if not self._open:
            return
        text = "".join(self._pieces)
        if self._open == "text":
            block: Block = {"type": "text", "text": text}
        else:
            signature = _signature(text)
            yield self._delta({"type": "signature_delta", "signature": signature})
            thinking = text if self._thinking == "shown" else ""
            block = {"type": "thinking", "thinking": thinking, "signature": signature}
        yield self._stop()
        self._blocks.append(block)
        self._pieces, self._open = [], ""

    def _start_server_call(self, call: str, name: str, arguments: Mapping[str, Any]) -> Iterator[Frame]:
        id = f"srvtoolu_{self._id}{self._used_so_far:02}"
        self._used_so_far += 1
        self._calls[call] = (id, name)
        self._in_container = self._in_container or name in server_tool_blocks.IN_CONTAINER
        if (counted := f"{server_tool_blocks.NAMES[name]}_requests") in self._web:
            self._web[counted] += 1
        yield from self._add_call(server_tool_blocks.call_block(id, name, arguments))

    def _finish_server_call(self, end: CallFinished) -> Iterator[Frame]:
        id, name = self._calls.pop(end.call)
        yield from self._close_text()
        block = server_tool_blocks.result(id, name, end)
        yield self._start(block)
        yield self._stop()
        self._blocks.append(block)

    def _add_call(self, block: Block) -> Iterator[Frame]:
        """Add a tool call. In a stream, its arguments follow the start of the block as JSON."""
        yield from self._close_text()
        yield self._start({**block, "input": {}})
        arguments = json.dumps(block["input"], ensure_ascii=False)
        yield self._delta({"type": "input_json_delta", "partial_json": arguments})
        yield self._stop()
        self._blocks.append(block)

    def _start(self, block: Block) -> Frame:
        return _event("content_block_start", index=len(self._blocks), content_block=block)

    def _delta(self, delta: Block) -> Frame:
        return _event("content_block_delta", index=len(self._blocks), delta=delta)

    def _stop(self) -> Frame:
        return _event("content_block_stop", index=len(self._blocks))

    # ------------------------------------------------------------------------------------------- the end of the message

    def _end_turn(self, event: Event) -> Iterator[Frame]:
        self._end = event
        end = event.body
        assert isinstance(end, TurnFinished)
        yield from self._close_text()
        if end.state == "failed":
            yield Frame(self._error_body(end), "error")
            return
        ending = self._ending
        usage = ending.pop("usage")
        yield _event("message_delta", delta=ending, usage=usage, **self._session, **self._extras)
        yield _event("message_stop")

    @property
    def _ending(self) -> dict[str, Any]:
        """Return the fields that end a message: the stop reason, the container and the token usage."""
        assert self._end is not None, "the last event was fed"
        end = self._end.body
        assert isinstance(end, TurnFinished)
        ending: dict[str, Any] = {
            "stop_reason": _reason(end),
            "stop_sequence": end.stopped or None,
            "usage": _usage(end.usage),
        }
        if self._in_container and self._container is not None:
            ending["container"] = self._container.to_json(self._end.time)
        if any(self._web.values()):
            ending["usage"]["server_tool_use"] = self._web
        return ending

    @property
    def _extras(self) -> dict[str, Any]:
        """Return the calls, files and notices of the server's tools. Files beyond the size limit of an answer are
        listed without their content, which the client fetches."""
        return self._log.fields


def _reason(end: TurnFinished) -> str:
    """Return Anthropic's stop reason. For a turn that was stopped it is ``pause_turn``, which means that the client can
    send the message back to have it continued."""
    if end.state != "committed":
        return "pause_turn"
    return "stop_sequence" if end.stopped else STOPPED.get(end.finish, "end_turn")


def _usage(spent: Mapping[str, float]) -> dict[str, Any]:
    """Return the token usage. As in Anthropic's API, cached tokens are counted separately; the sum is the whole
    prompt."""
    prompt, reused = int(spent.get("prompt_tokens", 0)), int(spent.get("reused_tokens", 0))
    return {
        "input_tokens": max(0, prompt - reused),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": min(prompt, reused),
        "output_tokens": int(spent.get("completion_tokens", 0)),
    }


def _signature(thought: str) -> str:
    """Return a signature that identifies the thinking text. Clients send it back; this server does not check it."""
    return hashlib.sha256(thought.encode("utf-8", "backslashreplace")).hexdigest()


def _event(kind: str, **data: Any) -> Frame:
    return Frame({"type": kind, **data}, kind)
