"""Finds the server and the credentials: given by the caller, by the environment, or by a running server of this
user."""

from __future__ import annotations

import json
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import InvalidRequest, ServerUnreachable
from agent_kernel.notebook.server_client import LOOPBACK, server_of_this_kernel

URL, TOKEN, KERNEL = "AGENT_KERNEL_URL", "AGENT_KERNEL_TOKEN", "AGENT_KERNEL_ID"
NO_SERVER = ServerUnreachable(
    "No agent-kernel server was found: you gave no address, and no server of yours runs here.",
    hint='Give the URL of a server: Client("http://127.0.0.1:8888/", token="..."). '
    f"Or set {URL} and {TOKEN}, or start Jupyter.",
)
SUFFIX = "agent/v1/"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Address and credentials. ``url`` ends in ``agent/v1/``. ``headers`` authenticate; ``kernel`` marks a kernel's own
    credential."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    kernel: bool = False

    @classmethod
    def of(cls, url: str, token: str) -> ServerAddress:
        """Build an address from a user's token.

        ``url`` is the URL of the server, including its base path, or the URL of its routes, which ends in ``agent/v1``.
        Raises InvalidRequest for an invalid URL, and for one that contains a password or a token, which would appear in
        logs.
        """
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest(
                f"{url[:80]!r} is not the URL of a server.", hint="A URL looks like http://127.0.0.1:8888/."
            )
        if parts.username or parts.password or parts.query or parts.fragment:
            raise InvalidRequest(
                "The URL of a server must not contain a token or a password.",
                hint="Pass the token as an argument: Client(url, token=...).",
            )
        return cls(_routes(url), {"Authorization": f"token {token}"} if token else {})

    @property
    def secure(self) -> bool:
        return self.url.startswith("https:")

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine."""
        return (urllib.parse.urlsplit(self.url).hostname or "") in LOOPBACK


def find(url: str | None, token: str | None) -> ServerAddress:
    """Find a server: the given one, else the server that the environment variables name (in a kernel, with the kernel's
    credential), else the running Jupyter server of this user that was started last on this machine. Raises
    ServerUnreachable, InvalidRequest."""
    if url is not None:
        return ServerAddress.of(url, _token_for(url) if token is None else token)
    if os.environ.get(KERNEL) and token is None and (server := server_of_this_kernel()) is not None:
        return ServerAddress(_routes(server.url), {"X-Agent-Kernel-Token": server.token}, kernel=True)
    if named := os.environ.get(URL):
        return ServerAddress.of(named, _token_for(named) if token is None else token)
    running = next(_running(), None)
    if running is None:
        raise NO_SERVER
    return ServerAddress.of(str(running["url"]), str(running.get("token", "")) if token is None else token)


def _token_for(url: str) -> str:
    """Return the token for the server at ``url``. This is the token in the environment variable, unless that belongs to
    another server; otherwise it is the token that a local server has written to a file for the programs of its user."""
    named, token = os.environ.get(URL, ""), os.environ.get(TOKEN, "")
    if token and (not named or _routes(named) == _routes(url)):
        return token
    return next((str(entry.get("token", "")) for entry in _running() if _routes(str(entry["url"])) == _routes(url)), "")


def _routes(url: str) -> str:
    """Return the URL of the routes, from the URL of the server, of ``agent/v1``, or of the ``v1`` that ``agent-kernel
    serve`` has for OpenAI and Anthropic clients."""
    whole = url.rstrip("/") + "/"
    for known in (SUFFIX, "v1/"):
        if whole.endswith("/" + known):
            return whole.removesuffix(known) + SUFFIX
    return whole + SUFFIX


def _running() -> Iterator[dict[str, Any]]:
    """Yield the descriptions that running servers of this user have written, newest first; only their owner can read
    them."""
    import jupyter_core.paths

    folder = Path(jupyter_core.paths.jupyter_runtime_dir())
    for file in sorted(folder.glob("jpserver-*.json"), key=_modification_time, reverse=True):
        try:
            entry = json.loads(file.read_text(encoding="utf-8"))
            lives = _lives(int(entry["pid"])) and bool(entry["url"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if lives:
            yield dict(entry)


def _modification_time(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _lives(pid: int) -> bool:
    if os.name == "nt":
        return True  # On Windows, signal 0 would end the process. A server that has ended does not answer requests.
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
