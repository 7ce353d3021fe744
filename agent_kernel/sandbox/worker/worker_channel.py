"""Sends and receives frames on the worker's side of the protocol. Runs inside the jail: standard library only.

A frame of kind J is a JSON object; a frame of kind B contains the bytes that the preceding J frame announced. Frames
from the server are trusted, so only the format limits their size.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.wire.framing import encode_frame, encode_head, read_body

MAX_LENGTH = (1 << 32) - 1


class WorkerChannel:
    """Writes all messages of the worker to the server; no other object may write to the channel. Messages from forked
    child processes are dropped."""

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
        frames = encode_frame(json.dumps(body).encode(), b"J")
        with self._lock:
            if body.get("id", self._run) != self._run:
                return
            self._run = 0 if body["type"] == "done" else self._run
            self._socket.sendall(frames if data is None else frames + encode_head(len(data), b"B"))
            if data is not None:
                self._socket.sendall(data)

    def receive(self) -> dict[str, Any] | None:
        """Read the next request with the data of its variables. Returns None at the end of file."""
        body = self._read(b"J")
        if body is None:
            return None
        request: dict[str, Any] = json.loads(body)
        for variable in request.get("given", ()):
            variable["data"] = self._read(b"B")
        self._run = int(request["id"])
        return request

    def _read(self, kind: bytes) -> bytearray | None:
        return read_body(self._socket.recv_into, MAX_LENGTH, kind)
