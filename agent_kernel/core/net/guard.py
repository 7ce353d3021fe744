"""Implements the address guard, which decides to which addresses a fetch may connect. The fetch then connects only to
the addresses that the guard has checked."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import TypeAlias

from agent_kernel.core.errors import FetchFailed, Forbidden, InvalidRequest
from agent_kernel.core.net.addresses import Address, is_own_address, refusal_reason, requires_address_rule
from agent_kernel.core.thread_offload import run_in_own_thread

PORTS = {"http": 80, "https": 443}
RESOLVE_S = 5.0
LOOKUPS = 8
"""Maximum number of concurrent name lookups, so that a resolver that hangs cannot use up all threads."""
MAX_URL = 8_192
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host name and a port to IP addresses as text. Raises OSError."""

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\x9f\\]")
_KEPT = "/%:=&?~+!$,;'@()*[]"
_HINT = "The server's administrator can allow hosts with the setting web_hosts (AGENT_KERNEL_WEB_HOSTS)."


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """A target that the guard has allowed. Connections to ``host`` and ``port`` must use one of ``addresses``, since
    only these were checked.

    ``url`` is normalized, with the host in ASCII; empty if only a host was checked.
    """

    host: str
    port: int
    addresses: tuple[str, ...]
    url: str = ""


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """One entry of ``web_hosts``: a name, an address or a network, optionally with a port (``name:8080``).

    A name matches exactly; ``*.name`` matches everything below it.
    """

    name: str = ""
    network: IPv4Network | IPv6Network | None = None
    port: int = 0

    def names(self, host: str, port: int) -> bool:
        below = self.name.startswith("*.") and host.endswith(self.name[1:])
        return self._allows_port(port) and bool(self.name) and (host == self.name or below)

    def holds(self, address: Address, port: int) -> bool:
        return self._allows_port(port) and self.network is not None and address in self.network

    def _allows_port(self, port: int) -> bool:
        return self.port in (0, port)


class Guard:
    """Checks the targets of fetches.

    ``hosts`` is the setting ``web_hosts``. These hosts may have private addresses, and may be fetched from on any port
    unless the entry names one. For all other hosts only ``ports`` are allowed; None allows all. Raises InvalidRequest
    for an invalid setting.
    """

    def __init__(
        self,
        hosts: str = "",
        *,
        ports: frozenset[int] | None = frozenset(PORTS.values()),
        resolve: Resolver | None = None,
    ) -> None:
        self._parse_allowed_host = tuple(_parse_allowed_host(entry) for entry in hosts.split(",") if entry.strip())
        self._ports = ports
        self._resolve = resolve or resolve_host
        self._lookups = asyncio.Semaphore(LOOKUPS)

    async def check(self, url: str) -> FetchTarget:
        """Check a URL. Raises InvalidRequest for anything but an http or https URL, Forbidden for a target that the
        rules do not allow, and FetchFailed for an unknown host name."""
        scheme, host, port, rest = _split_url(url)
        place = await self.admit(host, port)
        url_host = f"[{place.host}]" if ":" in place.host else place.host
        authority = url_host if port == PORTS[scheme] else f"{url_host}:{port}"
        return FetchTarget(place.host, port, place.addresses, f"{scheme}://{authority}{rest}")

    async def admit(self, host: str, port: int) -> FetchTarget:
        """Check a host and a port, for a proxy, which receives no URL. Raises Forbidden for a target that the rules
        do not allow, and FetchFailed for an unknown host name."""
        host = normalize_host(host)
        if not 0 < port < 65_536:
            raise InvalidRequest(f"{port} is not a port number.")
        listed = any(entry.names(host, port) for entry in self._parse_allowed_host)
        addresses = await self._addresses(host, port)
        for address in addresses:
            if problem := self._problem(address, port, listed):
                raise Forbidden(f"Requests to {host} are not allowed: {problem}.", hint=_HINT, details={"host": host})
        return FetchTarget(host, port, tuple(str(address) for address in addresses))

    def _problem(self, address: Address, port: int, listed: bool) -> str:
        """Return why the address is forbidden; empty if it is allowed. ``listed`` is true if ``web_hosts`` contains the
        name of its host. A host is allowed only if all its addresses are."""
        if any(entry.holds(address, port) for entry in self._parse_allowed_host):
            return ""
        if listed:
            return (
                (f"web_hosts must list its address {address} instead of its name")
                if requires_address_rule(address)
                else ""
            )
        if reason := refusal_reason(address):
            return f"{address} is {reason}"
        if is_own_address(address):
            return f"{address} is an address of this machine"
        if self._ports is not None and port not in self._ports:
            return f"port {port} is not one of the allowed ports {', '.join(map(str, sorted(self._ports)))}"
        return ""

    async def _addresses(self, host: str, port: int) -> list[Address]:
        if literal := _parse_address(host):
            return [literal]
        try:
            async with asyncio.timeout(RESOLVE_S), self._lookups:
                texts = await self._resolve(host, port)
            addresses = [ipaddress.ip_address(text) for text in dict.fromkeys(texts)]
        except TimeoutError:
            raise FetchFailed(f"{host} cannot be found: no answer within {RESOLVE_S:g} s.") from None
        except (OSError, ValueError) as error:
            raise FetchFailed(f"{host} cannot be found: {getattr(error, 'strerror', None) or error}.") from None
        if not addresses:
            raise FetchFailed(f"{host} cannot be found.")
        return addresses


async def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host in the order in which the system's resolver returns them."""
    entries = await run_in_own_thread(
        lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), "lookup of a host"
    )
    return [str(sockaddr[0]) for *_, sockaddr in entries]


def normalize_host(host: str) -> str:
    """Return a host name in lower-case ASCII without trailing dot, or an address as ``ipaddress`` writes it.

    Raises InvalidRequest for other spellings: 127.1, 0x7f000001, 017700000001, fe80::1%eth0, %31.
    """
    text = host.strip("[]") if host.startswith("[") and host.endswith("]") else host
    if ":" in text:
        try:
            return str(ipaddress.IPv6Address(text if "%" not in text else ""))
        except ValueError:
            raise InvalidRequest(f"{host[:100]!r} is not a valid IPv6 address.") from None
    text = (_ascii(text) if not text.isascii() else text).lower().removesuffix(".")
    labels = text.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            raise InvalidRequest(f"{host[:100]!r} is not four numbers without leading zeros.") from None
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidRequest(f"{host[:100]!r} is not a host name.")
    return text


def _ascii(host: str) -> str:
    import idna  # imported only for names that need its large tables

    try:
        return idna.encode(host[:500], uts46=True).decode()
    except (idna.IDNAError, UnicodeError):
        raise InvalidRequest(f"{host[:100]!r} is not a host name.") from None


def _split_url(url: str) -> tuple[str, str, int, str]:
    """Return (scheme, host, port, path and query) of a URL, without its fragment."""
    if len(url) > MAX_URL or _UNSAFE.search(url):
        raise InvalidRequest(
            "A URL cannot have spaces, control characters, backslashes, or more than 8,192 characters."
        )
    try:
        split = urllib.parse.urlsplit(url)
        scheme, host, port = split.scheme.lower(), split.hostname or "", split.port
    except ValueError as error:
        raise InvalidRequest(f"{url[:200]!r} is not a URL: {error}.") from None
    if scheme not in PORTS:
        raise InvalidRequest(f"Only http and https URLs can be fetched, not {scheme[:40] or 'URLs without a scheme'}.")
    if "@" in split.netloc:
        raise InvalidRequest("A URL that contains a user or a password cannot be fetched.")
    if not host:
        raise InvalidRequest(f"{url[:200]!r} does not contain a host.")
    path = split.path or "/"
    if split.query:
        path = f"{path}?{split.query}"
    return scheme, host, PORTS[scheme] if port is None else port, urllib.parse.quote(path, safe=_KEPT)


def _parse_address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _parse_allowed_host(entry: str) -> AllowedHost:
    """Parse ``name``, ``*.name``, ``10.0.0.0/8`` or ``[fd00::1]:8080``. Raises InvalidRequest for anything else."""
    text, port = entry.strip().lower(), 0
    if match := re.fullmatch(r"(\[.*\]|[^:]*):(\d{1,5})", text):
        text, port = match[1], int(match[2])
    text = text.strip("[]")
    try:
        return AllowedHost(network=ipaddress.ip_network(text), port=port)
    except ValueError:
        pass
    wild = "*." if text.startswith("*.") else ""
    try:
        return AllowedHost(name=wild + normalize_host(text.removeprefix("*.")), port=port)
    except InvalidRequest as error:
        raise InvalidRequest(f"web_hosts must list hosts, addresses or networks, not {entry.strip()!r}.") from error
