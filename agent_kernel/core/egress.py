"""The egress policy: all code that connects to another machine asks it first; ``local_only`` refuses such connections.

Engines, model hub, packages, web tools, MCP over HTTP, dispatch and file URLs all ask. The policy decides by the URL,
not by what a name resolves to; fetches on behalf of a model also go through the address guard (``net/guard.py``).
"""

from __future__ import annotations

import ipaddress
import urllib.parse
from dataclasses import dataclass

from agent_kernel.core.errors import LocalOnly


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Which connections may leave this machine: all, or none with ``local_only``."""

    local_only: bool = False

    def check(self, url: str, purpose: str) -> None:
        """Raise LocalOnly if ``url`` leads to another machine and ``local_only`` is set.

        ``purpose`` is the subject of the error sentence ("the web search"). ``url`` may be a bare host; an empty one
        means another machine that only the library behind the call knows.
        """
        if not self.allows(url):
            host = host_of(url)
            raise LocalOnly(
                f"local_only is set: {purpose} was refused, because it would connect to {host or 'another machine'}.",
                hint="Use a model, file or service on this machine, or ask the administrator to unset local_only.",
                details={"host": host, "purpose": purpose},
            )

    def allows(self, url: str) -> bool:
        return not self.local_only or is_here(url)


def host_of(url: str) -> str:
    """Return the host name or address without user, password and port; empty if there is none."""
    try:
        return (urllib.parse.urlsplit(url if "//" in url else f"//{url}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_here(url: str) -> bool:
    """Return whether the address belongs to this machine. The program that listens there may still forward the data."""
    name = host_of(url)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
