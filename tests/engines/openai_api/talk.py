"""Sends one request to an engine and collects its chunks."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from agent_kernel.core.errors import EngineError
from agent_kernel.core.messages import Message, ToolCall, user
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    Engine,
    EngineRequest,
    ReasoningChunk,
    TextChunk,
    ToolSpec,
    WaitChunk,
)
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.engine import OpenAIEngine
from tests.engines.openai_api.wire_server import Reply, WireServer

SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
PYTHON = ToolSpec("python", "Runs code.", SCHEMA, kind="python.sandbox")


async def ask(engine: Engine, *messages: Message, **options: Any) -> list[Chunk]:
    request = EngineRequest(messages or (user("Hello"),), **options)
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


async def asked_of(server: WireServer, *messages: Message, **options: Any) -> list[Chunk]:
    """Send one request with a new engine for the server. Return the chunks."""
    async with aclosing(OpenAIEngine(Endpoint(server.url, "m", context_length=8192))) as engine:
        return await ask(engine, *messages, **options)


async def error_of(*replies: Reply, **options: Any) -> EngineError:
    async with WireServer(replies) as server:
        with pytest.raises(EngineError) as caught:
            await asked_of(server, **options)
    return caught.value


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


def thought_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningChunk))


def calls_of(chunks: list[Chunk]) -> list[ToolCall]:
    return [chunk.call for chunk in chunks if isinstance(chunk, CallChunk)]


def waits_of(chunks: list[Chunk]) -> list[str]:
    return [chunk.stage for chunk in chunks if isinstance(chunk, WaitChunk)]


def end_of(chunks: list[Chunk]) -> EndChunk:
    assert isinstance(chunks[-1], EndChunk)
    return chunks[-1]
