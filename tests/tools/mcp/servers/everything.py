"""An MCP server made with the SDK that has tools of every kind: ``everything.py [stdio|http PORT|sse PORT]``.

EVERYTHING_LOG names a file to which it appends a line for each event.
"""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("everything")


def note(text: str) -> None:
    if path := os.environ.get("EVERYTHING_LOG"):
        with Path(path).open("a") as log:
            log.write(text + "\n")


class Weather(BaseModel):
    celsius: float
    words: str


@server.tool()
def add(a: int, b: int) -> str:
    """Adds two numbers."""
    note(f"add {a} {b}")
    return str(a + b)


@server.tool()
def weather(city: str) -> Weather:
    """Structured weather."""
    return Weather(celsius=21.5, words=f"mild in {city}")


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=PNG, format="png")


@server.tool()
def refuse() -> CallToolResult:
    """Says that it failed."""
    return CallToolResult(content=[TextContent(type="text", text="no such thing")], is_error=True)


@server.tool()
async def slow(seconds: float, ctx: Context[Any, Any]) -> str:
    """Takes its time, and tells how far it is."""
    note("slow began")
    try:
        await ctx.report_progress(1, 2, "half way")
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        note("slow cancelled")
        raise
    note("slow ended")
    return "done"


@server.tool()
def crash(code: int) -> str:
    """Ends the server in the middle of the call."""
    note("crash")
    print("a last word", file=sys.stderr, flush=True)
    os._exit(code)


@server.tool()
def flood(megabytes: int) -> str:
    """A very long text."""
    return "x" * (megabytes << 20)


@server.tool()
def environment() -> str:
    """The names of its environment's variables, and the value of SECRET."""
    return " ".join(sorted(os.environ)) + "|" + os.environ.get("SECRET", "")


@server.tool()
def echo_secret() -> str:
    """Fails with its secret in the message."""
    raise RuntimeError(f"the key {os.environ.get('SECRET')} is wrong")


@server.tool()
def spawn() -> str:
    """Starts a process that leaves its session; its number."""
    child = subprocess.Popen(
        ["sleep", "300"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    return f"{os.getpid()} {child.pid}"


@server.tool()
async def grow(ctx: Context[Any, Any]) -> str:
    """From now on there is a tool more."""

    def grown() -> str:
        """It was not there before."""
        return "grown"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "there is more"


@server.resource("notes://today")
def today() -> str:
    """The note of today."""
    return "buy milk"


@server.resource("notes://secret")
def secret() -> str:
    """Not to be read."""
    return "the secret note"


if __name__ == "__main__":
    note(f"started {os.getpid()} {time.time()}")
    how = sys.argv[1] if len(sys.argv) > 1 else "stdio"
    if how == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    elif how == "sse":
        server.run("sse", port=int(sys.argv[2]))
    else:
        server.run("stdio")
