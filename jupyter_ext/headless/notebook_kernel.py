"""Runs cells in one notebook's kernel on a Jupyter server: starts the session through REST, and sends messages through
the kernel's WebSocket."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from jupyter_ext.headless.cell_outputs import CellOutputs
from jupyter_ext.headless.server_process import ServerFailed, TemporaryServer

Message = dict[str, Any]
MAX_MESSAGE = 64 * 1024 * 1024
"""Maximum bytes of one message; a figure is sent as one message."""


class KernelDied(Exception):
    """Raised if the kernel died, so that the running cell gets no reply."""


@dataclass(frozen=True, slots=True)
class CellRun:
    """The result of a cell: ``status`` is ok, error or aborted; ``outputs`` are nbformat outputs after all updates;
    ``questions`` are the prompts with which its code asked for input."""

    status: str
    outputs: tuple[NotebookNode, ...]
    questions: tuple[str, ...]


class NotebookKernel:
    def __init__(self, socket: WebSocketClientConnection, id: str) -> None:
        self.id = id
        self._socket = socket
        self._session = uuid.uuid4().hex
        self._outputs = CellOutputs()

    async def run_cell(self, code: str, answer: str | None = None) -> CellRun:
        """Run a cell to its end. ``answer`` is given to every question of its code; None: input is not allowed. Raises
        KernelDied."""
        cell, questions, status = new_code_cell(code), list[str](), ""
        async with aclosing(self.execute(code, answer)) as messages:
            async for message in messages:
                self._outputs.apply(message, cell)
                if message["msg_type"] == "input_request":
                    questions.append(message["content"]["prompt"])
                elif message["msg_type"] == "execute_reply":
                    status = message["content"]["status"]
        return CellRun(status, tuple(cell.outputs), tuple(questions))

    async def execute(self, code: str, answer: str | None = None) -> AsyncGenerator[Message, None]:
        """Yield every message of the cell until the kernel is idle again. ``answer`` has the same meaning as in
        ``run_cell``. Raises KernelDied."""
        request = self._message(
            "execute_request", code=code, allow_stdin=answer is not None, stop_on_error=True, store_history=True
        )
        await self._socket.write_message(json.dumps(request))
        waiting = {"reply", "idle"}
        while waiting:
            message = await self._receive()
            if message["parent_header"].get("msg_id") != request["header"]["msg_id"]:
                continue
            if message["msg_type"] == "input_request":
                reply = self._message("input_reply", channel="stdin", status="ok", value=answer)
                await self._socket.write_message(json.dumps(reply | {"parent_header": message["header"]}))
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

    def _message(self, kind: str, channel: str = "shell", **content: Any) -> Message:
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self._session,
            "username": "headless",
            "version": "5.3",
        }
        return {"channel": channel, "header": header, "parent_header": {}, "metadata": {}, "content": content}


@asynccontextmanager
async def notebook_kernel(server: TemporaryServer, path: str) -> AsyncIterator[NotebookKernel]:
    """Open ``path`` as a browser does: the kernel is bound to the notebook, and shut down at the end. Raises
    ServerFailed."""
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
    session = await server.call("POST", "api/sessions", body)
    kernel = str(session["kernel"]["id"])
    address = server.url.replace("http", "ws", 1) + f"api/kernels/{kernel}/channels"
    try:
        socket = await websocket_connect(HTTPRequest(address, headers=server.headers), max_message_size=MAX_MESSAGE)
        try:
            yield NotebookKernel(socket, kernel)
        finally:
            await _close(socket)
    finally:
        with contextlib.suppress(ServerFailed):
            await server.call("DELETE", f"api/sessions/{session['id']}")


async def _close(socket: WebSocketClientConnection) -> None:
    """Close the connection and wait until it is closed, at most the 5 seconds that tornado allows a server.

    The server confirms the close after all messages that it sent before. Tornado receives no further message until the
    previous one is read, so all of them are read here.
    """
    socket.close()
    while await socket.read_message() is not None:
        pass
