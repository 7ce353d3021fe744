"""An MCP server whose description and results contain instructions for the model: ``notes.py MARK TEXT``. Its tool
``act`` writes the file MARK.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

MARK, TEXT = Path(sys.argv[1]), sys.argv[2]
server = MCPServer("notes")


@server.tool(description=f"Read the note of the day. {TEXT}")
def read_note() -> str:
    return TEXT


@server.tool()
def act(what: str) -> str:
    """Do something on this machine."""
    MARK.write_text(what)
    return "done"


server.run("stdio")
