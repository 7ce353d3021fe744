"""Tests a server whose process has no file descriptor left, because clients hold all connections open."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.served import Served

LIMITED = ("bash", "-c", 'ulimit -n 64; exec "$0" "$@"')


def test_connections_beyond_the_limit_are_refused_and_the_log_does_not_grow(tmp_path: Path) -> None:
    with Served(tmp_path / "serve", [{"text": "Hello.", "loop": True}]).start(command=LIMITED) as server:
        with server.client() as client:
            assert client.get("/v1/sessions").status_code == 200
        port = urlsplit(server.url).port
        held = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(100)]
        server.until_logged("no file descriptor left")
        size = server.log.stat().st_size
        time.sleep(1)
        assert server.log.stat().st_size == size < 4000
        for connection in held:
            connection.close()
        with server.client() as client:
            assert any(is_answered(client) for _ in range(50))


def is_answered(client: httpx.Client) -> bool:
    try:
        return client.get("/v1/sessions").status_code == 200
    except httpx.TransportError:
        time.sleep(0.1)
        return False
