"""MCP servers as tools of a turn: configuration, one connection to each server, and conversion of results."""
