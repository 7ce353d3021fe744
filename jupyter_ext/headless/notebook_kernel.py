"""Runs cells in one notebook's kernel on a Jupyter server: starts the session through REST, and sends messages through
the kernel's WebSocket. Also creates the notebooks for the tasks of an evaluation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, output_from_msg
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

from agent_kernel.evaluation.task import Task
from agent_kernel.evaluation.task_runner import NotebookFailed
from jupyter_ext.headless.sandbox_inspection import ROUTE
from jupyter_ext.headless.server_process import ServerFailed, TemporaryServer

Message = dict[str, Any]
MAX_MESSAGE = 64 * 1024 * 1024
"""Maximum bytes of one message; a figure is sent as one message."""
KEPT = {"execute_result", "stream", "display_data", "update_display_data", "error"}
NOTEBOOK = "task.ipynb"
EMPTY: Mapping[str, Any] = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
UNSAFE = re.compile(r"[^\w.-]+")


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


# Converts kernel messages to cell outputs as a front end does. A message that updates a display changes that display
# in place.


class CellOutputs:
    """The outputs of the cells of one notebook. A display belongs to the cell that created it, even if a later cell
    updates it."""

    def __init__(self) -> None:
        self._displays: dict[str, list[NotebookNode]] = {}
        self._clear_next = False

    def apply(self, message: dict[str, Any], cell: NotebookNode) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "execute_input":
            cell.execution_count = content["execution_count"]
        elif kind == "clear_output":
            self._clear_next = content.get("wait", False)
            if not self._clear_next:
                cell.outputs = []
        elif kind in KEPT:
            if self._clear_next:
                cell.outputs, self._clear_next = [], False
            self._keep(kind, content, output_from_msg(_as_display(message)), cell)

    def _keep(self, kind: str, content: dict[str, Any], output: NotebookNode, cell: NotebookNode) -> None:
        display = str((content.get("transient") or {}).get("display_id", ""))
        if kind == "update_display_data":
            for shown in self._displays.get(display, ()):
                shown.data, shown.metadata = output.data, output.metadata
            return
        last = cell.outputs[-1] if cell.outputs else None
        if kind == "stream" and last is not None and last.get("name") == output.name:
            last.text += output.text
            return
        cell.outputs.append(output)
        if display:
            self._displays.setdefault(display, []).append(output)


def _as_display(message: dict[str, Any]) -> dict[str, Any]:
    """Convert the message ``update_display_data`` to ``display_data``, because nbformat has no outputs for updates."""
    if message["msg_type"] != "update_display_data":
        return message
    return message | {"header": message["header"] | {"msg_type": "display_data"}}


# Creates the notebooks for the tasks of an evaluation, each in a directory of its own, on one temporary server.


class HeadlessNotebook:
    """A notebook in which one task runs. Implements ``agent_kernel.evaluation.task_runner.TaskNotebook``."""

    def __init__(self, server: TemporaryServer, kernel: NotebookKernel, path: str) -> None:
        self._server = server
        self._kernel = kernel
        self._path = path

    async def run_cell(self, code: str, answer: str) -> CellRun:
        with _failures():
            return await self._kernel.run_cell(code, answer)

    async def stored(self) -> Mapping[str, Any]:
        with _failures():
            binding = await self._server.call("GET", f"agent/v1/binding?path={quote(self._path)}")
            if binding["session"] is None:
                return {"items": [], "turns": []}
            stored: Mapping[str, Any] = await self._server.call(
                "GET", f"agent/v1/sessions/{quote(binding['session']['id'])}/items"
            )
            return stored

    async def run_in_sandbox(self, code: str) -> str:
        with _failures():
            result = await self._server.call("POST", ROUTE, {"notebook": self._path, "code": code})
            return str(result["stdout"])


class TaskNotebooks:
    """Opens notebooks on ``server``, each in a new directory."""

    def __init__(self, server: TemporaryServer) -> None:
        self._server = server
        self._count = 0
        # Notebooks are opened one at a time: several kernels that start together on a small machine take so long that
        # Jupyter considers them dead.
        self._opening = asyncio.Lock()

    async def engine(self) -> Mapping[str, Any]:
        """Return the server's description of the engine that it hosts. Raises NotebookFailed if the server does not
        answer."""
        with _failures():
            found: Mapping[str, Any] = (await self._server.call("GET", "agent/v1/binding"))["model"]
            return found

    async def loads_model(self, model: str) -> bool:
        """Return whether the first answer of ``model`` (empty: of the server's own engine) waits until the model is
        loaded. Raises NotebookFailed."""
        return "://" not in model if model else (await self.engine())["state"] != "ready"

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[HeadlessNotebook]:
        """Open a new notebook with the files of the task beside it. Raises NotebookFailed."""
        self._count += 1
        folder = f"{self._count:03d}-{UNSAFE.sub('-', task.name)[:60]}"
        await asyncio.to_thread(_copy_files, task, self._server.folder / folder)
        path = f"{folder}/{NOTEBOOK}"
        async with contextlib.AsyncExitStack() as closing:
            async with self._opening:
                with _failures():
                    body = {"type": "notebook", "content": EMPTY}
                    await self._server.call("PUT", f"api/contents/{quote(path)}", body)
                    kernel = await closing.enter_async_context(notebook_kernel(self._server, path))
                    # Wait until the kernel has started, so that the time of the task does not include its start.
                    await kernel.run_cell("")
            yield HeadlessNotebook(self._server, kernel, path)


def _copy_files(task: Task, folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in task.files:
        shutil.copyfile(file, folder / file.name)


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (ServerFailed, KernelDied, WebSocketClosedError, HTTPClientError, OSError) as error:
        raise NotebookFailed(str(error)) from error
