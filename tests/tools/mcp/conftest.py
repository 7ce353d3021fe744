"""Fixtures: MCP servers, and turns that use their tools."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.events import EventBody, Notice
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput
from agent_kernel.core.trusted_folders import TrustStore
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.tools.base.tool_source import ToolSourceContext
from agent_kernel.tools.mcp import sdk
from agent_kernel.tools.mcp.mcp_tools import McpTools
from tests.turns import KEY

SERVERS = Path(__file__).parent / "servers"
Json = dict[str, Any]


@dataclass
class Client:
    """A source of tools, and the events of its turns."""

    source: McpTools
    log: Path
    said: list[EventBody] = field(default_factory=list)

    async def tools(self, folder: Path | None = None, *, trusted: bool = False, **request: Any) -> dict[str, Tool]:
        occasion = ToolSourceContext(KEY, TurnRequest("hello", **request), self.said.append, folder, trusted)
        return {tool.spec.name: tool for tool in (await self.source.offer(occasion)).tools}

    async def call(self, name: str, **arguments: Any) -> ToolOutput:
        tool = (await self.tools())[name]
        return await tool.call(arguments, self.context(name, arguments))

    def context(self, name: str, arguments: Json) -> ToolContext:
        return ToolContext(KEY, "t", 1, ToolCall("c1", name, arguments), self.said.append)

    @property
    def notices(self) -> list[str]:
        return [body.text for body in self.said if isinstance(body, Notice)]

    @property
    def heard(self) -> list[str]:
        """Return what the server logged, without its process id."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.partition(" ")[2].strip() for line in lines]

    @property
    def processes(self) -> list[int]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return list(dict.fromkeys(int(line.split()[0]) for line in lines))


@dataclass
class Made:
    """Makes clients for configurations; each is closed at the end of the test."""

    directory: Path
    sources: list[McpTools] = field(default_factory=list)

    def __call__(self, config: Json, *, local_only: bool = False, env: Json | None = None, **given: Any) -> Client:
        path = self.directory / f"mcp{len(self.sources)}.json"
        path.write_text(json.dumps(config))
        trust = TrustStore(self.directory / "trusted.json")
        source = McpTools(str(path), EgressPolicy(local_only), trust=trust, env=env or {}, **given)
        self.sources.append(source)
        return Client(source, self.log)

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def plain(self, *arguments: str, **entry: Any) -> Json:
        return {"command": sys.executable, "args": [str(SERVERS / "plain.py"), str(self.log), *arguments], **entry}

    def everything(self, **entry: Any) -> Json:
        env = {"EVERYTHING_LOG": str(self.log), **entry.pop("env", {})}
        return {"command": sys.executable, "args": [str(SERVERS / "everything.py")], "env": env, **entry}


@asynccontextmanager
async def _made(directory: Path) -> AsyncIterator[Made]:
    made = Made(directory)
    try:
        yield made
    finally:
        for source in made.sources:
            await source.aclose()


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    await sdk.load()  # else the first test has a second less
    async with _made(tmp_path) as found:
        yield found
