"""The worker's side of the protocol. Runs inside the jail: standard library only.

A frame is ``kind (1 byte) | length (4 bytes, big endian) | body``. J is a JSON object, B the bytes that the preceding J
frame announced.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any


class WorkerChannel:
    """The only writer to the server. Forked children are ignored."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._run = 0

    def send(self, body: Mapping[str, Any], data: bytes | None = None) -> None:
        """Send a message of the current run. Messages of an ended run (from a thread it left behind) are dropped."""
        if os.getpid() != self._owner:
            return
        frames = _frame(b"J", json.dumps(body).encode())
        with self._lock:
            if body.get("id", self._run) != self._run:
                return
            self._run = 0 if body["type"] == "done" else self._run
            self._socket.sendall(frames if data is None else frames + b"B" + struct.pack(">I", len(data)))
            if data is not None:
                self._socket.sendall(data)

    def receive(self) -> dict[str, Any] | None:
        """Read the next request with the data of its variables. Returns None at the end."""
        body = self._body()
        if body is None:
            return None
        request: dict[str, Any] = json.loads(body)
        for given in request.get("given", ()):
            given["data"] = self._body()
        self._run = int(request["id"])
        return request

    def _body(self) -> bytearray | None:
        head = self._exactly(5)
        return None if head is None else self._exactly(struct.unpack(">I", head[1:])[0])

    def _exactly(self, size: int) -> bytearray | None:
        whole = bytearray(size)
        view, got = memoryview(whole), 0
        while got < size:
            count = self._socket.recv_into(view[got:])
            if not count:
                return None
            got += count
        return whole


def _frame(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body)) + body
