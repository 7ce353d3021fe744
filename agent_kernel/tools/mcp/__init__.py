"""MCP servers as tools of a turn: their configuration, one connection to each, and what comes back."""
