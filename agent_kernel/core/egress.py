"""The one exit: what connects to another machine asks here first, and with ``local_only`` is refused.

Engines, hub, packages, web, MCP over HTTP, dispatch and URLs of files all ask. It decides by what the URL says,
not by what a name resolves to: who fetches for a model has its own guard of addresses as well.
"""

from __future__ import annotations

import ipaddress
import urllib.parse
from dataclasses import dataclass

from agent_kernel.core.errors import LocalOnly


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """``local_only``: no connection leaves this machine."""

    local_only: bool = False

    def check(self, url: str, purpose: str) -> None:
        """``purpose`` is what the connection is for, as the subject of a sentence ("the web search"). ``url`` may be a
        bare host; empty: another machine that only the library behind it knows. Raises LocalOnly."""
        if not self.allows(url):
            host = host_of(url)
            raise LocalOnly(
                f"local_only is set: {purpose} would go to {host or 'another machine'}, and was not done.",
                hint="Use what is on this machine, or have local_only unset by whoever runs the server.",
                details={"host": host, "purpose": purpose},
            )

    def allows(self, url: str) -> bool:
        return not self.local_only or is_here(url)


def host_of(url: str) -> str:
    """The name or address, without user, password and port; empty where none can be read."""
    try:
        return (urllib.parse.urlsplit(url if "//" in url else f"//{url}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_here(url: str) -> bool:
    """The address is this machine's own; what listens there may still send on what it gets."""
    name = host_of(url)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
