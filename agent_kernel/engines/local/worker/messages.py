"""Converts requests, and the chunks of answers, to JSON and back. The server and the model worker exchange these JSON
objects. The functions have no side effects."""

from __future__ import annotations

import base64
import dataclasses
from dataclasses import replace
from typing import Any

from agent_kernel.core.errors import EngineCrashed, InvalidRequest, from_json
from agent_kernel.core.messages import Media, Message, Part, ToolCall, Usage
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    EngineRequest,
    OutputFormat,
    ReasoningChunk,
    Sampling,
    TextChunk,
    TokenLogprob,
    ToolSpec,
    WaitChunk,
)

MAX_MEDIA = 32 * 2**20
"""Maximum size in bytes of all media of a request. Encoded in base64, they are well below the size of the largest
frame."""


def request_to_json(request: EngineRequest, *, sees: bool = False) -> dict[str, Any]:
    """Encode a request. Of each tool, only the parts that a model reads are included. If the model has vision
    (``sees``), each medium is included once; otherwise a text note replaces each medium. Raises InvalidRequest for more
    than MAX_MEDIA bytes."""
    media = (
        {part.hash: part.data for message in request.messages for part in message.media if part.data} if sees else {}
    )
    size = sum(map(len, media.values()))
    if size > MAX_MEDIA:
        raise InvalidRequest(
            f"The pictures of this request have {size / 2**20:.0f} MiB; the limit is {MAX_MEDIA // 2**20}.",
            hint="Send fewer or smaller pictures.",
        )
    return {
        "media": {digest: base64.b64encode(data).decode() for digest, data in media.items()},
        "messages": [message.to_json() for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.schema, "kind": tool.kind}
            for tool in request.tools
        ],
        "sampling": dataclasses.asdict(request.sampling),
        "session": request.session,
        "tool_choice": request.tool_choice,
        "parallel_calls": request.parallel_calls,
        "output": None if request.output is None else dataclasses.asdict(request.output),
        "continues": request.continues,
    }


def request_from_json(body: dict[str, Any]) -> EngineRequest:
    sampling, output = body["sampling"], body["output"]
    media = {digest: base64.b64decode(data) for digest, data in body["media"].items()}
    return EngineRequest(
        messages=tuple(_fill_media(Message.from_json(message), media) for message in body["messages"]),
        tools=tuple(ToolSpec(**tool) for tool in body["tools"]),
        sampling=Sampling(
            **sampling | {"stop": tuple(sampling["stop"]), "logit_bias": tuple(map(tuple, sampling["logit_bias"]))}
        ),
        session=body["session"],
        tool_choice=body["tool_choice"],
        parallel_calls=body["parallel_calls"],
        output=None if output is None else OutputFormat(**output | {"choice": tuple(output["choice"])}),
        continues=body["continues"],
    )


def _fill_media(message: Message, media: dict[str, bytes]) -> Message:
    def fill(part: Part) -> Part:
        return replace(part, data=media.get(part.hash)) if isinstance(part, Media) else part

    return replace(message, parts=tuple(map(fill, message.parts))) if message.media else message


def chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    match chunk:
        case TextChunk(text, ()):
            return {"text": text}
        case TextChunk(text, logprobs):
            return {"text": text, "logprobs": [[token.text, token.logprob] for token in logprobs]}
        case ReasoningChunk(text):
            return {"reasoning": text}
        case CallChunk(call):
            return {"call": {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}}
        case WaitChunk(stage, fraction, position):
            return {"wait": stage, "fraction": fraction, "position": position}
        case EndChunk(reason, usage, stopped):
            return {"end": reason, "usage": usage.to_json()} | ({"stopped": stopped} if stopped else {})


def chunk_from_json(body: dict[str, Any]) -> Chunk:
    """Decode a chunk. If ``body`` contains an ``error``, raise that AgentKernelError. Raises EngineCrashed for anything
    that is not a chunk."""
    try:
        return _chunk(body)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EngineCrashed(f"The model worker sent an invalid part of an answer: {error!r}. Ask again.") from error


def _chunk(body: dict[str, Any]) -> Chunk:
    match body:
        case {"text": text}:
            return TextChunk(text, tuple(TokenLogprob(*token) for token in body.get("logprobs", ())))
        case {"reasoning": text}:
            return ReasoningChunk(text)
        case {"call": call}:
            return CallChunk(ToolCall(call["id"], call["name"], call["arguments"]))
        case {"wait": stage, "fraction": fraction, "position": position}:
            return WaitChunk(stage, fraction, position)
        case {"end": reason, "usage": usage}:
            return EndChunk(reason, Usage.from_json(usage), str(body.get("stopped", "")))
        case _:
            raise from_json(body["error"])
