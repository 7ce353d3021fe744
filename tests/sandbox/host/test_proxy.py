"""Tests the proxy of a jail with network ``full``: which connections it permits, and how."""

from __future__ import annotations

import asyncio
import hashlib
import io
import socket
import sys
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import pytest

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import Forbidden, InvalidRequest, LocalOnly
from agent_kernel.core.net import guard
from agent_kernel.core.net.guard import Guard
from agent_kernel.core.protocols import Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host import jail_resources, proxy
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.proxy import Proxy, ProxyPolicy, target_of
from tests.sandbox.conftest import Make
from tests.tcp_server import tcp_server

KEY = SessionKey("local", "proxied")
PUBLIC = "93.184.216.34"
Answer = Callable[[bytes], bytes]


@dataclass
class Elsewhere:
    """A server that the proxy takes for one of the internet. It records which addresses were dialled and what it
    received.
    """

    answer: Answer
    dialled: list[tuple[str, int]] = field(default_factory=list)
    heard: list[bytes] = field(default_factory=list)
    port: int = 0

    async def dial(self, address: str, port: int) -> proxy.Streams:
        self.dialled.append((address, port))
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return await wait_until_closed(writer)
        self.heard.append(head)
        body = self.answer(head)
        kind = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
        writer.write(kind + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await wait_until_closed(writer)


@asynccontextmanager
async def elsewhere(answer: Answer = lambda head: b"hello") -> AsyncIterator[Elsewhere]:
    one = Elsewhere(answer)
    async with tcp_server(one.serve) as port:
        one.port = port
        yield one


def resolver(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


@asynccontextmanager
async def serve_proxy(one: Elsewhere, reach: ProxyPolicy) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    port: int = listener.getsockname()[1]
    running = Proxy(reach, one.dial)
    await running.serve(listener)
    async with aclosing(running):
        yield port


def reaching(*addresses: str, hosts: str = "", local_only: bool = False) -> ProxyPolicy:
    return ProxyPolicy(Guard(hosts, ports=None, resolve=resolver(*addresses)), EgressPolicy(local_only))


async def said_to(port: int, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    async with asyncio.timeout(20):
        said = await reader.read()
    await wait_until_closed(writer)
    return said


async def wait_until_closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def test_a_tunnel_leads_to_the_address_that_was_checked() -> None:
    async with elsewhere() as one, serve_proxy(one, reaching(PUBLIC)) as port:
        said = await said_to(port, b"CONNECT example.com:443 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
    assert said.endswith(b"hello")
    assert one.dialled == [(PUBLIC, 443)]


async def test_a_request_is_passed_on_without_what_is_for_the_proxy() -> None:
    head = b"GET http://example.com:8080/a?b=c HTTP/1.1\r\nHost: other\r\nProxy-Authorization: x\r\nAccept: */*\r\n\r\n"
    async with elsewhere() as one, serve_proxy(one, reaching(PUBLIC)) as port:
        said = await said_to(port, head)
    assert said.endswith(b"hello")
    assert one.dialled == [(PUBLIC, 8080)]
    assert one.heard == [b"GET /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nConnection: close\r\nAccept: */*\r\n\r\n"]


async def test_a_name_that_also_leads_inside_is_refused_and_nothing_is_dialled() -> None:
    async with elsewhere() as one, serve_proxy(one, reaching(PUBLIC, "10.0.0.7")) as port:
        said = await said_to(port, b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 403")
    assert b"10.0.0.7" in said
    assert one.dialled == []


async def test_a_private_host_is_reached_if_the_server_allows_it_but_never_this_machine() -> None:
    async with elsewhere() as one, serve_proxy(one, reaching("10.0.0.7", hosts="inside.example")) as port:
        assert (await said_to(port, b"CONNECT inside.example:80 HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n")).endswith(
            b"hello"
        )
    assert one.dialled == [("10.0.0.7", 80)]
    for host, address in (("127.0.0.1", "127.0.0.1"), ("here.example", "127.0.0.1"), ("[::1]", "::1")):
        with pytest.raises(Forbidden):
            await reaching(address, hosts=f"{host},127.0.0.0/8,::1/128").admit(host, 8888)


async def test_with_local_only_nothing_is_reached() -> None:
    with pytest.raises(LocalOnly):
        await reaching(PUBLIC, local_only=True).admit("example.com", 443)


async def test_no_more_connections_at_once_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "MAX_CONNECTIONS", 2)
    async with elsewhere() as one, serve_proxy(one, reaching(PUBLIC)) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for _, writer in held:
            writer.write(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
        for reader, _ in held:
            await reader.readuntil(b"\r\n\r\n")
        assert (await said_to(port, b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 503")
        for _, writer in held:
            await wait_until_closed(writer)


async def test_connections_that_nobody_uses_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "IDLE_S", 0.2)
    monkeypatch.setattr(proxy, "HEAD_S", 0.2)
    async with elsewhere() as one, serve_proxy(one, reaching(PUBLIC)) as port:
        assert await said_to(port, b"CONNECT exam") == b""
        tunnel = await said_to(port, b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
    assert tunnel == b"HTTP/1.1 200 Connection established\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [b"GET / HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"CONNECT host HTTP/1.1\r\n\r\n", b"CONNECT h:x HTTP/1.1\r\n\r\n",
     b"GET https://example.com/ HTTP/1.1\r\n\r\n", b"CONNECT a:1 b HTTP/1.1\r\n\r\n",
     b"GET http:///x HTTP/1.1\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_request_to_a_proxy_is_refused(head: bytes) -> None:
    with pytest.raises(InvalidRequest):
        target_of(head)


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
async def test_libraries_and_pip_inside_the_jail_use_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = _wheel()
    page = b'<a href="http://index.example/demo_way-1-py3-none-any.whl">demo_way-1-py3-none-any.whl</a>'
    async with elsewhere(lambda head: wheel if b".whl" in head.split(b"\r\n")[0] else page) as one:
        monkeypatch.setattr(guard, "resolve_host", resolver(PUBLIC))
        monkeypatch.setattr(jail_resources, "Proxy", partial(Proxy, connect=one.dial))
        sandbox = make(SandboxPolicy(warm=0, network="full"))
        if not (await sandbox.report())["network"]["active"]:
            pytest.skip("needs a network namespace")
        read = "import urllib.request\nurllib.request.urlopen('http://example.com/x').read()"
        assert (await sandbox.run(KEY, read)).value == repr(page)
        install = (
            "import subprocess, sys\n"
            "subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--index-url', 'http://index.example/simple',"
            " '--trusted-host', 'index.example', 'demo-way'], check=True)\n"
            "import demo_way\ndemo_way.SAID"
        )
        result = await sandbox.run(KEY, Work(install, timeout_s=120))
    assert (result.error, result.value) == (None, "'by the proxy'")
    assert {address for address, _ in one.dialled} == {PUBLIC}


def _wheel() -> bytes:
    files = {
        "demo_way.py": b"SAID = 'by the proxy'\n",
        "demo_way-1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: demo-way\nVersion: 1\n",
        "demo_way-1.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in files.items()
    )
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr("demo_way-1.dist-info/RECORD", record + "demo_way-1.dist-info/RECORD,,\n")
    return held.getvalue()


async def test_a_connection_that_has_just_arrived_ends_with_the_proxy() -> None:
    async with elsewhere() as one:
        # The task of a connection begins in the fifth pass of the event loop. A server that asyncio closes one pass
        # after it accepts, the second, keeps the socket until the next garbage collection.
        for passes in range(3, 8):
            async with serve_proxy(one, reaching(PUBLIC)) as port:
                client = socket.create_connection(("127.0.0.1", port))
                for _ in range(passes):
                    await asyncio.sleep(0)
            await asyncio.sleep(0.01)
            with client, suppress(ConnectionError):
                client.settimeout(10)
                assert client.recv(1) == b""
