"""Several servers of one shared store behind a reverse proxy: HAProxy with the configuration of ``deploy/`` where it is
installed, and otherwise the small proxy of these tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from tests.served import Served
from tests.server import PLAIN, ROOT, START_S, Json, free_port

HAPROXY = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class ProxiedServers:
    """Three servers in separate processes, each with its own data directory, and one token for all."""

    def __init__(self, directory: Path, store: str, script: Sequence[Json]) -> None:
        self.token_file = directory / "token"
        self.token_file.write_text("token-of-all-servers")
        self.ports = [free_port() for _ in range(3)]
        self.port = free_port()
        self.servers = [
            Served(
                directory / f"server-{port}",
                script,
                ("--port", str(port), "--token-file", str(self.token_file), "--no-shared"),
                {"AGENT_KERNEL_STORE": store},
            )
            for port in self.ports
        ]

    def client(self, port: int = 0) -> httpx.AsyncClient:
        """Return a client of the proxy, or of the server at ``port``. It opens a new connection for each request."""
        return httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port or self.port}/",
            headers={"Authorization": f"Bearer {self.token_file.read_text()}"},
            timeout=httpx.Timeout(60, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            **PLAIN,
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with contextlib.ExitStack() as closing:
            for server in self.servers:
                closing.callback(server.sweep)
                server.start()
            proxy = self._start_proxy()
            closing.callback(proxy.wait)
            closing.callback(proxy.kill)
            self._wait_for_proxy()
            yield

    def _start_proxy(self) -> subprocess.Popen[bytes]:
        if HAPROXY is None:
            ports = [str(port) for port in (self.port, *self.ports)]
            return subprocess.Popen([sys.executable, "-m", "tests.jupyter_ext.reverse_proxy", *ports], cwd=ROOT)
        places = {f"SERVER_{number}": f"127.0.0.1:{port}" for number, port in enumerate(self.ports, 1)}
        environment = {**os.environ, "LISTEN": f"127.0.0.1:{self.port}", **places}
        return subprocess.Popen([HAPROXY, "-db", "-f", str(ROOT / "deploy" / "haproxy.cfg")], env=environment)

    def _wait_for_proxy(self) -> None:
        until = time.monotonic() + START_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{self.port}/health", **PLAIN).status_code == 200:
                    return
            assert time.monotonic() < until, "the proxy does not answer"
            time.sleep(0.1)
