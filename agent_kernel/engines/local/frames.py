"""Requests and chunks as the JSON that travels between the server and the model worker; pure."""

from __future__ import annotations

from typing import Any

from agent_kernel.errors import from_json
from agent_kernel.messages import Message, ToolCall, Usage
from agent_kernel.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    EngineRequest,
    ReasoningChunk,
    Sampling,
    TextChunk,
    ToolSpec,
    WaitChunk,
)


def request_to_json(request: EngineRequest) -> dict[str, Any]:
    """Of a tool only what a model is told; media stay behind, since no local model here sees."""
    sampling = request.sampling
    return {
        "messages": [message.to_json() for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters), "kind": tool.kind}
            for tool in request.tools
        ],
        "sampling": {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "max_tokens": sampling.max_tokens,
            "stop": list(sampling.stop),
        },
        "session": request.session,
    }


def request_from_json(body: dict[str, Any]) -> EngineRequest:
    sampling = body["sampling"]
    return EngineRequest(
        messages=tuple(Message.from_json(message) for message in body["messages"]),
        tools=tuple(ToolSpec(**tool) for tool in body["tools"]),
        sampling=Sampling(**sampling | {"stop": tuple(sampling["stop"])}),
        session=body["session"],
    )


def chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    match chunk:
        case TextChunk(text):
            return {"text": text}
        case ReasoningChunk(text):
            return {"reasoning": text}
        case CallChunk(call):
            return {"call": {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}}
        case WaitChunk(stage, fraction, position):
            return {"wait": stage, "fraction": fraction, "position": position}
        case EndChunk(reason, usage):
            return {"end": reason, "usage": usage.to_json()}


def chunk_from_json(body: dict[str, Any]) -> Chunk:
    """Raises the AgentKernelError that an ``error`` carries."""
    match body:
        case {"text": text}:
            return TextChunk(text)
        case {"reasoning": text}:
            return ReasoningChunk(text)
        case {"call": call}:
            return CallChunk(ToolCall(call["id"], call["name"], call["arguments"]))
        case {"wait": stage, "fraction": fraction, "position": position}:
            return WaitChunk(stage, fraction, position)
        case {"end": reason, "usage": usage}:
            return EndChunk(reason, Usage(**usage))
        case _:
            raise from_json(body["error"])
