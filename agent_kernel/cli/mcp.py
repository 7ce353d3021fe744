"""``agent-kernel mcp``: connects to the configured MCP servers and lists their tools."""

from __future__ import annotations

import argparse
import asyncio
import importlib
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from agent_kernel.cli.base.command import JSON, Command, argument, group, settings_of
from agent_kernel.cli.base.jupyter_configuration import report_files_left_out
from agent_kernel.cli.base.output import Column, join, show
from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.version import __version__

TIMEOUT_S = 30.0
NO_CONFIGURATION = InvalidRequest(
    "There is no MCP configuration.", hint="Name a file: --config FILE, or AGENT_KERNEL_MCP_CONFIG."
)


def mcp_list(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    if args.config is None:
        report_files_left_out()
    path = str(args.config or settings.mcp_config)
    if not path:
        raise NO_CONFIGURATION
    rows = asyncio.run(_list_servers(path, EgressPolicy(settings.local_only), args.timeout))
    columns = {
        "name": Column("SERVER"),
        "state": Column("STATE"),
        "where": Column("WHERE"),
        "tools": Column("TOOLS", join),
        "problem": Column("PROBLEM"),
    }
    show(rows, columns, as_json=args.json, empty="The configuration names no server.")
    return 0 if all(row["state"] == "ok" for row in rows) else 1


async def _list_servers(path: str, egress: EgressPolicy, timeout_s: float) -> list[dict[str, Any]]:
    """Start each MCP server of the configuration file ``path``, list its tools, and end it. Return one row per
    server."""
    mcp: Any = importlib.import_module("agent_kernel.tools.mcp.mcp_tools")  # only this command needs this slow import
    async with aclosing(mcp.McpTools(path, egress, version=__version__, start_s=timeout_s)) as source:
        connections: Sequence[Any] = await source.connections()
        await asyncio.gather(*(connection.wait_until_connected(timeout_s) for connection in connections))
        return [_row(connection, timeout_s) for connection in connections]


def _row(connection: Any, timeout_s: float) -> dict[str, Any]:
    server, listing = connection.server, connection.listed
    late = f"The server did not answer within {timeout_s:g} s." if listing is None else ""
    return {
        "name": server.name,
        "state": "ok" if listing is not None else "failed",
        "where": server.public_address,
        "tools": [tool.name for tool in listing.tools] if listing else [],
        "problem": "" if listing else connection.problem or late,
    }


LIST_ARGUMENTS = (
    argument("--config", type=Path, help="configuration file (default: AGENT_KERNEL_MCP_CONFIG)"),
    JSON,
    argument(
        "--timeout",
        type=float,
        default=TIMEOUT_S,
        help=f"timeout for each server in seconds (default: {TIMEOUT_S:g})",
    ),
)
MCP = group(
    "mcp",
    "show the MCP servers whose tools the agent can call",
    Command("list", "connect to the configured servers and list their tools", mcp_list, LIST_ARGUMENTS),
)
