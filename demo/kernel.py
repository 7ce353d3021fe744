"""One notebook's kernel on a Jupyter server: a session through REST, messages through the kernel's WebSocket."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from demo.server import Server

Message = dict[str, Any]


class KernelDied(Exception):
    """The kernel died; the cell that ran has no reply."""


class Kernel:
    def __init__(self, socket: WebSocketClientConnection) -> None:
        self._socket = socket
        self._session = uuid.uuid4().hex

    async def execute(self, code: str) -> AsyncGenerator[Message, None]:
        """Yield every message of the cell until the kernel is idle again. Raises KernelDied."""
        request = self._message("execute_request", code=code, allow_stdin=False, stop_on_error=True, store_history=True)
        await self._socket.write_message(json.dumps(request))
        waiting = {"reply", "idle"}
        while waiting:
            message = await self._receive()
            if message["parent_header"].get("msg_id") != request["header"]["msg_id"]:
                continue
            yield message
            if message["msg_type"] == "execute_reply":
                waiting.discard("reply")
            elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                waiting.discard("idle")

    async def _receive(self) -> Message:
        raw = await self._socket.read_message()
        message: Message = json.loads(raw) if raw is not None else {}
        state = message.get("content", {}).get("execution_state")
        if raw is None or state in {"restarting", "autorestarting", "dead"}:
            raise KernelDied("The kernel died while a cell was running.")
        return message

    def _message(self, kind: str, **content: Any) -> Message:
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self._session,
            "username": "demo",
            "version": "5.3",
        }
        return {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content}


@asynccontextmanager
async def notebook_kernel(server: Server, http: httpx.AsyncClient, path: str) -> AsyncIterator[Kernel]:
    """Open ``path`` as a browser does: the kernel is bound to the notebook, and shut down at the end."""
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
    session = (await http.post("api/sessions", json=body)).raise_for_status().json()
    address = server.url.replace("http", "ws", 1) + f"api/kernels/{session['kernel']['id']}/channels"
    try:
        # 64 MiB: a figure is one message.
        socket = await websocket_connect(
            HTTPRequest(address, headers=server.headers), max_message_size=64 * 1024 * 1024
        )
        try:
            yield Kernel(socket)
        finally:
            socket.close()
    finally:
        await http.delete(f"api/sessions/{session['id']}")
