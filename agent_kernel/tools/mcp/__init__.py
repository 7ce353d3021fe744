"""Offers the tools of MCP servers: configuration, one connection to each server, and conversion of results."""
