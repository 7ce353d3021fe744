"""Runs the model downloads that clients start over HTTP: one process for each model, whose progress any number of
readers can follow."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.errors import PullFailed
from agent_kernel.core.settings import Settings
from agent_kernel.core.shielded_await import cancel_tasks

KEPT_ERRORS = 4096
LINE_LIMIT = 1 << 20
FINAL = frozenset({"done", "failed"})


@dataclass(slots=True, eq=False)
class ModelDownload:
    """The progress of one download.

    ``last`` is the newest progress report of each stage, in order. A reader that starts late gets these reports first.
    """

    name: str
    last: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    ended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def publish(self, line: Mapping[str, Any]) -> None:
        stage = str(line.get("stage"))
        self.last.pop(stage, None)
        self.last[stage] = line
        self.ended = self.ended or stage in FINAL
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def follow(self) -> AsyncIterator[Mapping[str, Any]]:
        """Yield progress reports up to the one with the stage ``done`` or ``failed``. A slow reader misses intermediate
        reports."""
        sent: dict[str, Mapping[str, Any]] = {}
        while True:
            changed = self.changed
            for stage, line in list(self.last.items()):
                if sent.get(stage) is not line:
                    sent[stage] = line
                    yield line
            if self.ended and changed is self.changed:
                return
            if changed is self.changed:
                await changed.wait()


class ModelDownloads:
    """The model downloads of one server. A download continues if its reader leaves. ``aclose`` stops all downloads; a
    stopped download continues where it was when it is started again."""

    def __init__(self, settings: Settings, command: tuple[str, ...] = (sys.executable, "-m", "agent_kernel")) -> None:
        self._settings = settings
        self._command = command
        self._pulls: dict[str, ModelDownload] = {}

    def start(self, name: str) -> ModelDownload:
        """Return the running download of this model, or start one. ``name`` is a name of the catalog or the id of a
        model on a model hub."""
        pull = self._pulls.get(name)
        if pull is None or pull.ended:
            pull = self._pulls[name] = ModelDownload(name)
            pull.task = asyncio.create_task(self._run(pull), name=f"pull of {name}")
        return pull

    @property
    def running(self) -> int:
        return sum(not pull.ended for pull in self._pulls.values())

    async def aclose(self) -> None:
        await cancel_tasks(*(pull.task for pull in self._pulls.values()))

    async def _run(self, pull: ModelDownload) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *("model", "pull", pull.name, "--yes", "--json"),
            env={**os.environ, **self._environment()},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT,
        )
        end, errors = "was stopped", ""
        try:
            _, errors = await asyncio.gather(_read_lines(process.stdout, pull), _read_tail(process.stderr))
            end = f"ended with exit code {await process.wait()}"
        finally:
            await _end(process)
            if not pull.ended:
                pull.publish(_failed_event(f"The download of {pull.name} {end}.", errors))

    def _environment(self) -> dict[str, str]:
        return {
            "AGENT_KERNEL_CACHE_DIR": str(self._settings.cache_dir),
            "AGENT_KERNEL_DATA_DIR": str(self._settings.data_dir),
            "AGENT_KERNEL_SOURCES": self._settings.sources,
            "AGENT_KERNEL_LOCAL_ONLY": str(self._settings.local_only).lower(),
        }


async def _read_lines(stream: asyncio.StreamReader | None, pull: ModelDownload) -> None:
    assert stream is not None
    async for raw in stream:
        try:
            line = json.loads(raw)
        except ValueError:
            continue  # other output of a library, not progress
        if event := _to_event(line):
            pull.publish(event)


def _to_event(line: Any) -> dict[str, Any] | None:
    """Convert an output line of ``agent-kernel model pull --json`` to the event for clients; None for a line that is
    not such JSON."""
    match line:
        case {"type": "progress", "stage": str(stage), **rest} if stage not in FINAL:
            return {
                "stage": stage,
                "done": rest.get("done"),
                "total": rest.get("total"),
                "message": rest.get("note", ""),
            }
        case {"type": "done", **rest}:
            return {"stage": "done", "path": rest.get("path")}
        case {"type": "error", **error}:
            return {"stage": "failed", "error": error}
    return None


async def _read_tail(stream: asyncio.StreamReader | None) -> str:
    assert stream is not None
    tail = b""
    while piece := await stream.read(4096):
        tail = (tail + piece)[-KEPT_ERRORS:]
    return tail.decode(errors="replace").strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), 5)
    except TimeoutError:
        process.kill()
        await process.wait()


def _failed_event(message: str, errors: str) -> dict[str, Any]:
    error = PullFailed(
        message, hint="Start the download again: it continues where it stopped.", details={"output": errors}
    )
    return {"stage": "failed", "error": error.to_json()}
