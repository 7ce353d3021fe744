"""Directs the fetch tool to this machine in every way that URLs, redirects and name servers allow; no connection may
arrive.
"""

from __future__ import annotations

import asyncio
import ipaddress
import random
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.net.fetch import Fetcher, FetchLimits
from agent_kernel.core.net.guard import Guard, resolve_host
from tests.core.net.web import Answer, moved, says, served
from tests.soak.conftest import Soak
from tests.tcp_server import tcp_server

BOUNDS = FetchLimits(connect_s=1.0, total_s=4.0)
WIDE = str.maketrans("0123456789.", "０１２３４５６７８９。")
CIRCLED = str.maketrans("0123456789", "⓪①②③④⑤⑥⑦⑧⑨")


@dataclass
class Canary:
    """Listens on every address of this machine and counts connections."""

    port: int = 0
    met: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.met.append(str(writer.get_extra_info("sockname")))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nsecret")
        writer.close()


@asynccontextmanager
async def canary() -> AsyncIterator[Canary]:
    bird = Canary()
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    listening = socket.create_server(("", 0), family=family, dualstack_ipv6=family == socket.AF_INET6)
    bird.port = listening.getsockname()[1]
    async with tcp_server(bird.serve, sock=listening):
        yield bird


def own_addresses() -> list[str]:
    found = {"127.0.0.1", "127.9.8.7", "0.0.0.0", "::1", "::"}
    for name in (socket.gethostname(), "localhost"):
        try:
            found |= {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(name, 80)}
        except OSError:
            continue
    return sorted(found)


def spell_host(address: str, rng: random.Random) -> str:
    """Return one of the many spellings of a host."""
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        return rng.choice([f"[{ip}]", f"[{ip.exploded}]", f"[{ip}%25lo]", f"[{ip}%lo]", f"[{str(ip).upper()}]"])
    number, parts = int(ip), [int(part) for part in address.split(".")]
    spellings: list[Callable[[int], str]] = [str, hex, lambda part: f"0{part:o}", lambda part: f"{part:03}"]
    mixed = ".".join(rng.choice(spellings)(part) for part in parts)
    return rng.choice(
        [
            address,
            f"{address}.",
            str(number),
            hex(number),
            f"0{number:o}",
            mixed,
            f"{parts[0]}.{number & 0xFFFFFF}",
            f"{parts[0]}.{parts[1]}.{number & 0xFFFF}",
            address.translate(WIDE),
            address.translate(CIRCLED),
            "".join(f"%{ord(character):02x}" for character in address),
            f"[::ffff:{address}]",
            f"[::ffff:0:{address}]",
            f"[64:ff9b::{address}]",
            f"[::{address}]",
            f"[2002:{number >> 16:x}:{number & 0xFFFF:x}::]",
            f"{address}.nip.example",
            "localhost",
            "LOCALHOST.",
            "ip6-localhost",
            "foo.localhost",
            socket.gethostname(),
        ]
    )


def spell_url(host: str, port: int, rng: random.Random) -> str:
    """Return one of the many spellings of a URL of a host."""
    scheme = rng.choice(["http", "HTTP", "https", "hTTp"])
    return rng.choice(
        [
            f"{scheme}://{host}:{port}/",
            f"{scheme}://example.org@{host}:{port}/",
            f"{scheme}://example.org\\@{host}:{port}/",
            f"{scheme}:/{host}:{port}/",
            f"{scheme}:////{host}:{port}/",
            f"{scheme}://{host}:{port}#@example.org/",
            f"{scheme}://{host}:{port}?@example.org/",
            f"{scheme}://{host}:0{port}/",
            f" {scheme}://{host}:{port}/",
            f"{scheme}://{host}\t:{port}/",
            f"{scheme}://\n{host}:{port}/",
            f"{scheme}://{host}%00.example.org:{port}/",
            f"//{host}:{port}/",
        ]
    )


class Flipping:
    """An attacker's name server that gives a different answer each time; real names are resolved as usual."""

    def __init__(self, addresses: Sequence[str], rng: random.Random) -> None:
        self._addresses = addresses
        self._rng = rng

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        if not host.endswith(".example"):
            return await resolve_host(host, port)
        public = ["192.0.2.1"] * self._rng.randrange(2)
        return [*public, *self._rng.sample(self._addresses, self._rng.randrange(1, 3))]


@pytest.mark.soak(0.02)
async def test_no_url_redirect_or_name_leads_a_fetch_to_this_machine(soak: Soak) -> None:
    """Every port is open, so that nothing but the addresses decides."""
    rng, own, target = soak.random, own_addresses(), [""]

    async def leads_on(asked: object, writer: asyncio.StreamWriter) -> None:
        page: Answer = moved(target[0], rng.choice([301, 302, 303, 307, 308]))
        await page(asked, writer)  # type: ignore[arg-type]  # it is not looked at

    async with canary() as bird, served({"/": leads_on, "/fine": says(200, b"fine")}) as web:
        async with httpx.AsyncClient(trust_env=False) as plain:
            assert (await plain.get(f"http://127.0.0.1:{bird.port}/")).text == "secret"
        assert len(bird.met) == 1, "the canary is there for whoever is let through"
        fetcher = Fetcher(Guard(web.host, ports=None, resolve=Flipping(own, rng)), EgressPolicy())
        assert (await fetcher.get(web.url("/fine"), BOUNDS)).data == b"fine"
        soak.begin()
        while soak.running or not soak.counts["refused"]:
            host = rng.choice([spell_host(rng.choice(own), rng), f"rebind-{rng.random()}.example"])
            url = spell_url(host, bird.port, rng)
            if rng.random() < 0.4 and url.isascii() and url.isprintable():
                target[0], url = url, web.url()
                soak.counts["by a redirect"] += 1
            try:
                await fetcher.get(url, BOUNDS)
            except AgentKernelError:
                soak.counts["refused"] += 1
            assert len(bird.met) == 1, f"{url!r} ({target[0]!r}) came through, to {bird.met[-1]} (seed {soak.seed})"
