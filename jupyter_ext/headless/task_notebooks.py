"""Creates the notebooks for the tasks of an evaluation, each in a directory of its own, on one temporary server."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClosedError

from agent_kernel.evaluation.task import Task
from agent_kernel.evaluation.task_runner import NotebookFailed
from jupyter_ext.headless.notebook_kernel import CellRun, KernelDied, NotebookKernel, notebook_kernel
from jupyter_ext.headless.sandbox_inspection import ROUTE
from jupyter_ext.headless.server_process import ServerFailed, TemporaryServer

NOTEBOOK = "task.ipynb"
EMPTY: Mapping[str, Any] = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
UNSAFE = re.compile(r"[^\w.-]+")


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
