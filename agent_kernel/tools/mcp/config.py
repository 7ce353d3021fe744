"""Reads the configuration file of MCP servers, in mistral.rs's format or as ``{"mcpServers": {...}}``.

Reading the file starts no server and reads no secret: ``${VAR}`` is replaced only when a server is connected.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from agent_kernel.core.errors import InvalidRequest

BESIDE = ".mcp.json"
"""Name of the configuration file beside a notebook."""
MAX_FILE = 1 << 20
MAX_SERVERS = 64
TIMEOUT_S = 30.0
AT_ONCE = 10
LONGEST_S = 3600.0
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
HIDDEN_FROM = 6
"""Minimum length of a secret that is redacted from messages. Shorter values are not redacted, because they also occur
as ordinary words."""
Kind: TypeAlias = Literal["process", "http", "sse", "websocket"]
_KINDS: dict[str, Kind] = {
    "process": "process",
    "stdio": "process",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
    "websocket": "websocket",
    "ws": "websocket",
}


@dataclass(frozen=True, slots=True)
class McpServer:
    """The configuration of one MCP server.

    ``kind`` is the transport. With ``http``, streamable HTTP is tried first and then SSE; with ``sse``, SSE is used at
    once. ``resources`` contains patterns of the URIs that the model may read (``file:///docs/*``). The model sees each
    tool under the name ``prefix_name``.
    """

    name: str
    kind: Kind
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    bearer_token: str = field(default="", repr=False)
    prefix: str = ""
    resources: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S

    def resolve(self, env: Mapping[str, str] = os.environ) -> ResolvedServer:
        """Return the server with each ``${VAR}`` replaced by the variable's value. If a variable is not set, raises
        InvalidRequest, whose message names the variable."""
        secrets: set[str] = set()

        def value(text: str, *, secret: bool = False) -> str:
            filled = VARIABLE.sub(lambda found: _variable(found, env, secrets), text)
            if secret and len(filled) >= HIDDEN_FROM:
                secrets.add(filled)
            return filled

        headers = {name: value(text, secret=True) for name, text in self.headers.items()}
        if self.bearer_token:
            headers["Authorization"] = f"Bearer {value(self.bearer_token, secret=True)}"
        return ResolvedServer(
            dataclasses.replace(
                self,
                command=value(self.command),
                args=tuple(value(arg) for arg in self.args),
                env={name: value(text, secret=True) for name, text in self.env.items()},
                cwd=str(Path(value(self.cwd)).expanduser()) if self.cwd else "",
                url=value(self.url),
                headers=headers,
                bearer_token="",
            ),
            tuple(sorted(secrets, key=len, reverse=True)),
        )

    @property
    def public_address(self) -> str:
        """The server's address for display, without arguments, headers, and the parts of a URL that may contain
        a key."""
        if self.kind == "process":
            return self.command
        return self.url.partition("?")[0].partition("#")[0].rpartition("@")[2]


@dataclass(frozen=True, slots=True)
class ResolvedServer:
    """A server with its secrets inserted, and the list of secrets to redact from messages."""

    server: McpServer = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    def redact(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "[hidden]")
        return text


@dataclass(frozen=True, slots=True)
class McpConfig:
    """The servers that one configuration file contains.

    With ``register``, the tools are offered in every turn that has the group ``mcp``; otherwise only if a request names
    them. At most ``at_once`` calls run concurrently, counting all servers of the file.
    """

    servers: tuple[McpServer, ...] = ()
    register: bool = True
    at_once: int = AT_ONCE


def read(path: Path, digest: str = "") -> McpConfig:
    """Read a configuration file. ``digest`` is the SHA-256 of the only content that is allowed; empty allows any
    content.

    Raises InvalidRequest if the file is unreadable, has other content or is invalid; the message never quotes a value.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
        if digest and hashlib.sha256(raw).hexdigest() != digest:
            raise InvalidRequest(f"The MCP configuration {path} changed while it was read.", hint="Ask again.")
        body = json.loads(raw) if len(raw) <= MAX_FILE else None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"The MCP configuration {path} cannot be read ({type(error).__name__}).") from None
    if not isinstance(body, dict):
        raise InvalidRequest(f"The MCP configuration {path} must be a JSON object of at most {MAX_FILE >> 20} MiB.")
    try:
        return parse(body)
    except InvalidRequest as error:
        raise InvalidRequest(f"The MCP configuration {path}: {error.message}", hint=error.hint) from None


def parse(body: Mapping[str, Any]) -> McpConfig:
    """Parse the JSON object of a configuration file. Raises InvalidRequest if it is not a valid configuration."""
    if "servers" not in body and "mcpServers" not in body:
        raise InvalidRequest("there is neither a key 'servers' nor a key 'mcpServers'.")
    timeout_s = _seconds(body.get("tool_timeout_secs", TIMEOUT_S), "tool_timeout_secs")
    at_once = body.get("max_concurrent_calls", AT_ONCE)
    if not isinstance(at_once, int) or isinstance(at_once, bool) or not 1 <= at_once <= 1000:
        raise InvalidRequest("max_concurrent_calls must be a number from 1 to 1000.")
    named = _mapping(body.get("mcpServers", {}), "mcpServers")
    entries = [(str(name), entry, False) for name, entry in named.items()]
    listed = body.get("servers", [])
    if isinstance(listed, Mapping):  # some editors store the list of servers under this name
        entries += [(str(name), entry, False) for name, entry in listed.items()]
    elif isinstance(listed, list):
        entries += [(f"server {number}", entry, True) for number, entry in enumerate(listed, 1)]
    else:
        raise InvalidRequest("servers must be a list of servers, or an object with the servers by name.")
    if len(entries) > MAX_SERVERS:
        raise InvalidRequest(f"it has more than {MAX_SERVERS} servers.")
    parsed = [_server(name, _mapping(entry, name), timeout_s, nested) for name, entry, nested in entries]
    servers = [server for server in parsed if server is not None]
    if len({server.name for server in servers}) < len(servers):
        raise InvalidRequest("two servers have the same name.")
    register = body.get("auto_register_tools", True)
    return McpConfig(tuple(servers), register is not False, at_once)


def _server(name: str, entry: Mapping[str, Any], timeout_s: float, nested: bool) -> McpServer | None:
    """Return the configuration of one server; None if it is disabled. ``nested``: the entry has mistral.rs's form, in
    which ``source`` holds the address."""
    name = str(entry.get("name") or name)[:100]
    if entry.get("enabled") is False or entry.get("disabled") is True:
        return None
    source = _mapping(entry.get("source", {}), f"source of {name}") if nested else entry
    prefix = entry.get("tool_prefix")
    server = McpServer(
        name=name,
        kind=_kind(source, name),
        command=_text(source.get("command", ""), f"command of {name}"),
        args=_texts(source.get("args") or [], f"args of {name}"),
        env=_pairs(source.get("env") or {}, f"env of {name}"),
        cwd=_text(source.get("work_dir") or source.get("cwd") or "", f"work_dir of {name}"),
        url=_text(source.get("url", ""), f"url of {name}"),
        headers=_pairs(source.get("headers") or {}, f"headers of {name}"),
        bearer_token=_text(entry.get("bearer_token") or "", f"bearer_token of {name}"),
        prefix=name if prefix is None else _text(prefix, f"tool_prefix of {name}"),
        resources=_texts(entry.get("resources") or [], f"resources of {name}"),
        timeout_s=_seconds(source.get("timeout_secs") or timeout_s, f"timeout_secs of {name}"),
    )
    if not (server.command if server.kind == "process" else server.url):
        raise InvalidRequest(
            f"The MCP server {name} has no {'command' if server.kind == 'process' else 'url'} in the configuration."
        )
    return server


def _kind(source: Mapping[str, Any], name: str) -> Kind:
    type_name = source.get("type") or source.get("transport")
    if type_name is None:
        return "process" if source.get("command") else "http"
    kind = _KINDS.get(type_name.lower()) if isinstance(type_name, str) else None
    if kind is None:
        raise InvalidRequest(f"the type of {name} must be Process (stdio), Http, SSE or WebSocket.")
    return kind


def _variable(match: re.Match[str], env: Mapping[str, str], secrets: set[str]) -> str:
    name, fallback = match.group(1), match.group(2)
    value = env.get(name)
    if value is None and fallback is None:
        raise InvalidRequest(f"The environment variable {name}, which the MCP configuration names, is not set.")
    if value is not None and len(value) >= HIDDEN_FROM:
        secrets.add(value)
    return value if value is not None else str(fallback)


def _mapping(value: Any, field_name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{field_name} must be an object.")
    return value


def _text(value: Any, field_name: str) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise InvalidRequest(f"{field_name} must be a string.")
    return value


def _texts(value: Any, field_name: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InvalidRequest(f"{field_name} must be a list of strings.")
    return tuple(_text(item, field_name) for item in value)


def _pairs(value: Any, field_name: str) -> dict[str, str]:
    return {str(name): _text(item, field_name) for name, item in _mapping(value, field_name).items()}


def _seconds(value: Any, field_name: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= LONGEST_S:
        raise InvalidRequest(f"{field_name} must be a number of seconds, at most {LONGEST_S:.0f}.")
    return float(value)
