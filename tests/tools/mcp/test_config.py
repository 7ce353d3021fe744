"""Tests the configuration of MCP servers, in both formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.mcp.config import McpServer, parse, read

FULL = {
    "servers": [
        {
            "name": "files",
            "source": {"type": "Process", "command": "srv", "args": ["a"], "env": {"K": "v"}, "work_dir": "/tmp"},
            "tool_prefix": "fs",
            "resources": ["file:///*"],
        },
        {
            "name": "web",
            "source": {"type": "Http", "url": "https://a.example/mcp", "headers": {"X": "y"}, "timeout_secs": 5},
            "bearer_token": "secret-token",
        },
        {"name": "off", "source": {"type": "WebSocket", "url": "wss://x"}, "enabled": False},
    ],
    "auto_register_tools": False,
    "tool_timeout_secs": 12,
    "max_concurrent_calls": 3,
}


def test_the_shape_with_sources_is_read() -> None:
    config = parse(FULL)
    files, web = config.servers
    assert (config.register, config.at_once) == (False, 3)
    assert (files.kind, files.command, files.args, files.cwd, files.prefix) == ("process", "srv", ("a",), "/tmp", "fs")
    assert (files.timeout_s, files.resources) == (12.0, ("file:///*",))
    assert (web.kind, web.url, web.prefix, web.timeout_s) == ("http", "https://a.example/mcp", "web", 5.0)
    assert web.resolve({}).server.headers == {"X": "y", "Authorization": "Bearer secret-token"}


def test_the_common_shape_is_read() -> None:
    config = parse(
        {
            "mcpServers": {
                "a": {"command": "npx", "args": ["-y", "thing"], "env": {"T": "${T}"}},
                "b": {"type": "http", "url": "http://localhost/mcp"},
                "c": {"command": "x", "disabled": True},
            }
        }
    )
    assert [(server.name, server.kind, server.prefix) for server in config.servers] == [
        ("a", "process", "a"),
        ("b", "http", "b"),
    ]
    assert (config.register, config.at_once, config.servers[0].timeout_s) == (True, 10, 30.0)


def test_variables_are_filled_in_where_they_stand_and_are_secrets_from_then_on() -> None:
    server = McpServer(
        "s", "http", url="https://h.example/${PATH_PART}?key=${KEY}", headers={"Authorization": "Bearer ${TOKEN}"}
    )
    filled = server.resolve({"KEY": "abcdef123", "TOKEN": "tok-4567", "PATH_PART": "mcp"})
    assert filled.server.url == "https://h.example/mcp?key=abcdef123"
    assert filled.server.headers["Authorization"] == "Bearer tok-4567"
    assert filled.redact("GET https://h.example/mcp?key=abcdef123 with tok-4567") == (
        "GET https://h.example/mcp?key=[hidden] with [hidden]"
    )
    assert McpServer("s", "process", command="${HOME_BIN:-/usr/bin}/x").resolve({}).server.command == "/usr/bin/x"


def test_nothing_secret_is_in_what_is_shown() -> None:
    server = parse(FULL).servers[1]
    assert "secret-token" not in repr(server)
    assert "secret-token" not in repr(server.resolve({}))
    assert McpServer("s", "http", url="https://me:pw123456@h.example/mcp?key=k").public_address == "h.example/mcp"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "there is neither a key 'servers'"),
        ({"servers": 7}, "servers must be a list of servers"),
        ({"servers": [7]}, "server 1 must be an object"),
        ({"mcpServers": {"a": {}}}, "a has no url"),
        ({"mcpServers": {"a": {"type": "stdio"}}}, "a has no command"),
        ({"mcpServers": {"a": {"type": "carrier pigeon", "url": "x"}}}, "the type of a"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "args of a must be a list"),
        ({"mcpServers": {"a": {"command": "x", "env": {"K": 7}}}}, "env of a must be a string"),
        ({"mcpServers": {"a": {"command": "x\0y"}}}, "command of a must be a string"),
        ({"mcpServers": {}, "tool_timeout_secs": 0}, "tool_timeout_secs"),
        ({"mcpServers": {}, "tool_timeout_secs": 1e400}, "tool_timeout_secs"),
        ({"mcpServers": {}, "max_concurrent_calls": True}, "max_concurrent_calls"),
        ({"mcpServers": {str(n): {"command": "x"} for n in range(65)}}, "more than 64"),
        ({"servers": [{"name": "a", "source": {"command": "x"}}] * 2}, "same name"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_place(body: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        parse(body)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\0"])
def test_a_file_that_is_no_configuration_says_which_and_quotes_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text + "key-1234")
    with pytest.raises(InvalidRequest) as raised:
        read(path)
    assert "mcp.json" in str(raised.value)
    assert "key-1234" not in str(raised.value)


def test_a_file_of_more_than_a_mebibyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {}, "pad": "x" * (1 << 20)}))
    with pytest.raises(InvalidRequest, match="at most 1 MiB"):
        read(path)
