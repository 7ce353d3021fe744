"""Requests and chunks as the JSON that travels between the server and the model worker; pure."""

from __future__ import annotations

import dataclasses
from typing import Any

from agent_kernel.errors import from_json
from agent_kernel.messages import Message, ToolCall, Usage
from agent_kernel.protocols import (
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


def request_to_json(request: EngineRequest) -> dict[str, Any]:
    """Of a tool only what a model is told; media stay behind, since no local model here sees."""
    return {
        "messages": [message.to_json() for message in request.messages],
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters), "kind": tool.kind}
            for tool in request.tools
        ],
        "sampling": dataclasses.asdict(request.sampling),
        "session": request.session,
        "tool_choice": request.tool_choice,
        "parallel_calls": request.parallel_calls,
        "output": None if request.output is None else dataclasses.asdict(request.output),
    }


def request_from_json(body: dict[str, Any]) -> EngineRequest:
    sampling, output = body["sampling"], body["output"]
    return EngineRequest(
        messages=tuple(Message.from_json(message) for message in body["messages"]),
        tools=tuple(ToolSpec(**tool) for tool in body["tools"]),
        sampling=Sampling(**sampling | {"stop": tuple(sampling["stop"])}),
        session=body["session"],
        tool_choice=body["tool_choice"],
        parallel_calls=body["parallel_calls"],
        output=None if output is None else OutputFormat(**output | {"choice": tuple(output["choice"])}),
    )


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
        case EndChunk(reason, usage):
            return {"end": reason, "usage": usage.to_json()}


def chunk_from_json(body: dict[str, Any]) -> Chunk:
    """Raises the AgentKernelError that an ``error`` carries."""
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
            return EndChunk(reason, Usage.from_json(usage))
        case _:
            raise from_json(body["error"])
