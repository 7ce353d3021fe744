"""The MCP endpoint of the server."""
