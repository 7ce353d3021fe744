"""Classifies IP addresses. Fetches are allowed only from addresses of the public internet.

All other addresses are refused: those in the registries of special addresses (IANA, RFC 6890 and its updates). An IPv6
address that embeds an IPv4 address is also judged by the embedded one.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

_IPV4 = {
    "0.0.0.0/8": "an address of this network",
    "10.0.0.0/8": "a private address",
    "100.64.0.0/10": "an address inside a carrier's network",
    "127.0.0.0/8": "an address of this machine",
    "169.254.0.0/16": "a link-local address",
    "172.16.0.0/12": "a private address",
    "192.0.0.0/24": "an address reserved for a protocol",
    "192.0.2.0/24": "an address reserved for documentation",
    "192.31.196.0/24": "an address reserved for a protocol",
    "192.52.193.0/24": "an address reserved for a protocol",
    "192.88.99.0/24": "a relay of 6to4",
    "192.168.0.0/16": "a private address",
    "192.175.48.0/24": "an address reserved for a protocol",
    "198.18.0.0/15": "an address reserved for benchmarks",
    "198.51.100.0/24": "an address reserved for documentation",
    "203.0.113.0/24": "an address reserved for documentation",
    "224.0.0.0/4": "a multicast address",
    "255.255.255.255/32": "the broadcast address",
    "240.0.0.0/4": "a reserved address",
}
_IPV6 = {
    "::/128": "the unspecified address",
    "::1/128": "an address of this machine",
    "::/96": "an IPv4 address in an old form",
    "64:ff9b:1::/48": "an address of a local IPv4 translator",
    "100::/64": "an address whose packets are discarded",
    "2001::/32": "a Teredo tunnel",
    "2001::/23": "an address reserved for a protocol",
    "2001:db8::/32": "an address reserved for documentation",
    "2002::/16": "a 6to4 tunnel",
    "2620:4f:8000::/48": "an address reserved for a protocol",
    "3fff::/20": "an address reserved for documentation",
    "5f00::/16": "an identifier of a route segment",
    "fc00::/7": "a private address",
    "fe80::/10": "a link-local address",
    "fec0::/10": "a private address",
    "ff00::/8": "a multicast address",
}
_REFUSED = tuple((ipaddress.ip_network(network), reason) for network, reason in {**_IPV4, **_IPV6}.items())
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_TRANSLATED = (_MAPPED, ipaddress.IPv6Network("::ffff:0:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
"""Networks whose last 32 bits are an IPv4 address: mapped (RFC 4291), SIIT (RFC 2765), NAT64 (RFC 6052)."""
_UNICAST = ipaddress.IPv6Network("2000::/3")
_ISATAP = (0x00005EFE, 0x02005EFE)
_METADATA = ("169.254.0.0/16", "fe80::/10", "100.100.100.200/32", "fd00:ec2::254/128")
"""Addresses where cloud platforms serve a machine its credentials."""
_NOBODY = ("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/128", "ff00::/8")
_BY_ADDRESS_ONLY = tuple(ipaddress.ip_network(network) for network in (*_METADATA, *_NOBODY))


def refusal_reason(address: Address) -> str:
    """Return why fetches from this address are refused, for example that it is private; empty for an address of the
    public internet."""
    for form in _embedded_addresses(address):
        for network, reason in _REFUSED:
            if form in network:
                return reason
    if isinstance(address, IPv6Address):
        return "" if any(address in network for network in (_UNICAST, *_TRANSLATED)) else "a reserved address"
    return "" if address.is_global else "a reserved address"


def requires_address_rule(address: Address) -> bool:
    """Return whether fetches from this address are allowed only if ``web_hosts`` names the address or its network. For
    these addresses an entry with a host name is not enough, since the name may later resolve to another address."""
    return any(form in network for form in _embedded_addresses(address) for network in _BY_ADDRESS_ONLY)


def is_own_address(address: Address) -> bool:
    """Return whether the address belongs to this machine. This asks the system which source address it would use for
    packets to the address; no packet is sent."""
    return any(_source_address(form) == form for form in _embedded_addresses(address))


def _source_address(address: Address) -> Address | None:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
    except OSError:
        return None


def _embedded_addresses(address: Address) -> Iterator[Address]:
    """Yield the address itself, and the IPv4 address that it embeds, if any."""
    yield address
    if not isinstance(address, IPv6Address):
        return
    isatap = int(address) >> 32 & 0xFFFFFFFF in _ISATAP
    if isatap or any(address in network for network in _TRANSLATED):
        yield IPv4Address(int(address) & 0xFFFFFFFF)
