"""Defines the egress policy, which decides whether this machine may connect to another machine. With ``local_only`` it
refuses all such connections.

All code that connects to another machine asks the policy first: engines, the model hub, packages, web tools, MCP over
HTTP, file URLs, and the dispatch of function calls to the server that runs them. The policy decides by the host in the
URL, not by the address to which it resolves. Fetches on behalf of a model are also checked by the address guard
(``net/guard.py``).
"""

from __future__ import annotations

import ipaddress
import urllib.parse
from dataclasses import dataclass

from agent_kernel.core.errors import LocalOnly


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """Decides which connections may leave this machine: all, or none with ``local_only``."""

    local_only: bool = False

    def check(self, url: str, purpose: str) -> None:
        """Raise LocalOnly if ``url`` leads to another machine and ``local_only`` is set.

        ``purpose`` is the subject of the error sentence ("the web search"). ``url`` may be a host without a scheme. An
        empty ``url`` stands for another machine whose name only the library in use knows.
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
    """Return whether the host of ``url`` is this machine (localhost or a loopback address). A program that listens
    there may still forward the data to another machine."""
    name = host_of(url)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
