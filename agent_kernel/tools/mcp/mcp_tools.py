"""Offers the tools of all configured MCP servers to each turn.

The MCP servers of the server's own configuration start together with the server. Those of a file beside a notebook
start at the first turn that can use them. All of them keep running. A turn waits a limited time for an MCP server that
is starting.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import Tool
from agent_kernel.core.shielded_await import RunningTasks
from agent_kernel.core.trusted_folders import TrustStore, file_digest
from agent_kernel.tools.base.session_notices import SessionNotices
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.tools.mcp.config import BESIDE, McpConfig, read
from agent_kernel.tools.mcp.connection import MAX_TOOLS, McpConnection
from agent_kernel.tools.mcp.tool import McpResources, McpTool, unusable

log = logging.getLogger(__name__)
GROUP = "mcp"
START_S = 10.0
"""Maximum seconds that a turn waits for MCP servers that are starting, all of them together."""
FOLDERS = 8
"""Maximum number of notebook directories whose own MCP servers run at the same time."""
LONGEST = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MARK = 7
"""Number of characters of the ending that makes a name unique: ``_`` and a hash."""


@dataclass(slots=True)
class ServerGroup:
    """The MCP servers of one configuration file; ``digest`` is the file's SHA-256."""

    config: McpConfig
    connections: tuple[McpConnection, ...]
    limit: asyncio.Semaphore
    digest: str = ""


class McpTools:
    """The MCP tools that this server offers.

    ``path`` is the configuration file of this server; empty means none. ``trust`` decides whether the user has trusted
    the file beside a notebook with its present content; without ``trust``, no file beside a notebook is used.
    """

    def __init__(
        self,
        path: str,
        egress: EgressPolicy,
        *,
        trust: TrustStore | None = None,
        version: str = "",
        env: Mapping[str, str] = os.environ,
        start_s: float = START_S,
    ) -> None:
        self._path = Path(path).expanduser() if path else None
        self._egress = egress
        self._trust = trust
        self._version = version
        self._env = env
        self._start_s = start_s
        self._own: ServerGroup | None = None
        self._beside: OrderedDict[Path, ServerGroup] = OrderedDict()
        self._notices = SessionNotices()
        self._ending = RunningTasks()

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        groups = [
            group
            for group in (await self._find_configured(occasion), await self._find_beside_notebook(occasion))
            if group
        ]
        requested = [
            (group, connection)
            for group in groups
            for connection in group.connections
            if _wants(occasion, group, connection)
        ]
        await self._await_start([one for _, one in requested])
        tools: dict[str, Tool] = {}
        for group, connection in requested:
            self._tell(occasion, connection)
            self._add(tools, group, connection, occasion)
        return OfferedTools(tuple(tools.values()))

    async def start(self) -> None:
        """Connect the MCP servers of this server's configuration in the background."""
        try:
            connections = await self.connections()
        except InvalidRequest as error:
            log.warning("MCP servers: %s", error)
            return
        for connection in connections:
            connection.begin()

    async def report(self) -> list[dict[str, Any]]:
        """Return one row with the state of each MCP server of this server's configuration. If the configuration cannot
        be read, return one row with the problem."""
        try:
            return [_row(connection) for connection in await self.connections()]
        except InvalidRequest as error:
            return [{"name": "", "state": "failed", "tools": 0, "left_out": [], "problem": str(error)}]

    async def connections(self) -> Sequence[McpConnection]:
        """Return the connections to the MCP servers of this server's configuration. Raises InvalidRequest if the
        configuration cannot be read."""
        if self._own is None and self._path is not None:
            self._own = self._group(await asyncio.to_thread(read, self._path))
        return self._own.connections if self._own else ()

    async def aclose(self) -> None:
        """End every MCP server that was started."""
        groups = [*([self._own] if self._own else []), *self._beside.values()]
        self._own = None
        self._beside.clear()
        await asyncio.gather(*(_close_group(group) for group in groups), self._ending.wait())

    # ------------------------------------------------------------------------------------------------ servers of a turn

    async def _find_configured(self, occasion: ToolSourceContext) -> ServerGroup | None:
        try:
            await self.connections()
        except InvalidRequest as error:
            self._notices.warn(occasion, str(error), "config")
        return self._own

    async def _find_beside_notebook(self, occasion: ToolSourceContext) -> ServerGroup | None:
        """Return the MCP servers of ``.mcp.json`` beside the notebook, if the user has trusted the folder and the file
        has not changed since."""
        folder = occasion.notebook_dir
        if folder is None or not occasion.wants(GROUP):
            return None
        digest = await asyncio.to_thread(file_digest, folder / BESIDE)
        if not digest:
            return None
        vouched = self._trust is not None and await asyncio.to_thread(
            self._trust.is_trusted_file, folder, BESIDE, digest
        )
        if not (occasion.trusted and vouched):
            changed = "is not as it was when you trusted it" if occasion.trusted else "is in no folder that you trust"
            text = (
                f"{BESIDE} beside this notebook {changed}, so its MCP servers are not used. "
                "To use them: agent-kernel trust."
            )
            self._notices.warn(occasion, text, str(folder))
            return None
        folder = folder.resolve()
        group = self._beside.get(folder)
        if group is None or group.digest != digest:
            try:
                config = await asyncio.to_thread(read, folder / BESIDE, digest)
            except InvalidRequest as error:
                self._notices.warn(occasion, str(error), digest)
                return None
            self._replace(folder, self._group(config, digest))
        self._beside.move_to_end(folder)
        return self._beside[folder]

    def _replace(self, folder: Path, group: ServerGroup) -> None:
        gone = [self._beside.pop(folder)] if folder in self._beside else []
        self._beside[folder] = group
        while len(self._beside) > FOLDERS:
            gone.append(self._beside.popitem(last=False)[1])
        for old in gone:
            self._ending.start(_close_group(old), "MCP servers of a notebook's folder")

    def _group(self, config: McpConfig, digest: str = "") -> ServerGroup:
        connections = (
            McpConnection(server, self._egress, version=self._version, env=self._env) for server in config.servers
        )
        return ServerGroup(config, tuple(connections), asyncio.Semaphore(config.at_once), digest)

    # ------------------------------------------------------------------------------------------------ tools of a server

    async def _await_start(self, connections: Sequence[McpConnection]) -> None:
        """Wait for the MCP servers that start for the first time. MCP servers that start again are not awaited, because
        their tools are known already."""
        fresh = [
            connection
            for connection in connections
            if connection.listed is None and (connection.attempt == 0 or _first(connection))
        ]
        for one in connections:
            one.begin()
        if fresh:
            await asyncio.gather(
                *(connection.wait_until_connected(max(0.0, self._start_s - connection.age)) for connection in fresh)
            )

    def _tell(self, occasion: ToolSourceContext, connection: McpConnection) -> None:
        name, attempt = connection.server.name, str(connection.attempt)
        if connection.listed is not None:
            return
        if _first(connection):
            text = (
                f"MCP server {name} did not start within {self._start_s:g} s; "
                "its tools are offered once it has started."
            )
            self._notices.warn(occasion, text, f"{name} {attempt} late")
        elif connection.problem:
            text = f"MCP server {name} cannot be used: {connection.problem}"
            self._notices.warn(occasion, text, f"{name} {attempt}")

    def _add(
        self, tools: dict[str, Tool], group: ServerGroup, connection: McpConnection, occasion: ToolSourceContext
    ) -> None:
        listed, server = connection.listed, connection.server
        if listed is None:
            return
        left_out = _list_unusable(connection)
        for tool in listed.tools:
            if unusable(tool):
                continue
            name = exposed_name(server.prefix, tool.name, tools)
            if occasion.wants(GROUP, name):
                tools[name] = McpTool(name, tool, connection, group.limit)
        name = exposed_name(server.prefix, "read_resource", tools)
        if server.resources and occasion.wants(GROUP, name):
            tools[name] = McpResources(name, connection, group.limit)
        if left_out:
            text = f"MCP server {server.name}: {', '.join(left_out[:5])} left out"
            self._notices.warn(occasion, text, f"{server.name} schemas")
        if listed.more:
            text = f"MCP server {server.name} has more than {MAX_TOOLS} tools; the others are not offered."
            self._notices.warn(occasion, text, f"{server.name} many")


def _wants(occasion: ToolSourceContext, group: ServerGroup, connection: McpConnection) -> bool:
    """Return whether the request may use the tools of this MCP server. The names of these tools begin with the server's
    prefix."""
    names = occasion.request.tools
    if names is None:
        return group.config.register
    prefix = exposed_name(connection.server.prefix, "") if connection.server.prefix else ""
    return GROUP in names or any(name.startswith(prefix) for name in names)


def _first(connection: McpConnection) -> bool:
    """Return whether the MCP server is being connected for the first time."""
    return connection.attempt == 1 and connection.starting


def _list_unusable(connection: McpConnection) -> list[str]:
    """Return one text for each listed tool that is not offered, with the tool's name and the reason."""
    tools = connection.listed.tools if connection.listed else ()
    return [f"{tool.name[:60]} ({problem})" for tool in tools if (problem := unusable(tool))]


def _row(connection: McpConnection) -> dict[str, Any]:
    """Return a row with the state of an MCP server; ``tools`` counts the tools that are offered."""
    state = "connected" if connection.connected else "starting" if connection.starting else "failed"
    left_out = _list_unusable(connection)
    listed = len(connection.listed.tools) if connection.listed else 0
    return {
        "name": connection.server.name,
        "state": state,
        "tools": listed - len(left_out),
        "left_out": left_out,
        "problem": "" if state == "connected" else connection.problem,
    }


async def _close_group(group: ServerGroup) -> None:
    await asyncio.gather(*(connection.aclose() for connection in group.connections))


# Converts tool names to the form that models can write: ``[A-Za-z0-9_-]``, at most 64 characters, unique.


def exposed_name(prefix: str, name: str, used_names: Collection[str] = ()) -> str:
    """Return ``prefix_name`` in a form that models can write.

    If the name is too long, contains characters other than ASCII letters, digits, ``_`` and ``-``, or is in
    ``used_names``, it ends with a hash of the original name. The name is therefore the same in every turn.
    """
    safe = _UNSAFE.sub("_", f"{prefix}_{name}" if prefix else name)
    if len(safe) <= LONGEST and safe not in used_names and safe.strip("_-"):
        return safe
    for salt in range(1000):
        mark = hashlib.sha256(f"{prefix}\0{name}\0{salt}".encode("utf-8", "surrogatepass")).hexdigest()[: _MARK - 1]
        shortened = f"{safe[: LONGEST - _MARK]}_{mark}"
        if shortened not in used_names:
            return shortened
    raise AssertionError(f"No short name for the tool {name!r} is free.")
