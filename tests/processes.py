"""Processes as the operating system lists them, distinguished from later processes with the same pid."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.core import process_identity
from tests.waiting import until


@dataclass(frozen=True, slots=True)
class Process:
    """A process. ``command`` is its command line, arguments joined by spaces, when it was listed."""

    pid: int
    parent: int
    started: str
    command: str

    @property
    def alive(self) -> bool:
        """True while the process runs. A zombie is not alive."""
        return process_identity.is_alive(self.pid, self.started)

    def send(self, what: signal.Signals) -> None:
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, what)


def descendants(pid: int) -> list[Process]:
    """Return the children of a process, their children, and so on."""
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    everything = [one for entry in entries if (one := _process(entry)) is not None]
    family, below = {pid}, list[Process]()
    while more := [one for one in everything if one.parent in family and one.pid not in family]:
        family |= {one.pid for one in more}
        below += more
    return below


def _process(entry: Path) -> Process | None:
    try:
        fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None
    return Process(int(entry.name), int(fields[1]), fields[19], command)


async def survivors(found: list[Process], within_s: float) -> list[Process]:
    """Return the processes that are still alive after ``within_s`` seconds; return at once when none is."""
    until = time.monotonic() + within_s
    while alive := [one for one in found if one.alive]:
        if time.monotonic() > until:
            return alive
        await asyncio.sleep(0.05)
    return []


async def until_running(*words: str) -> None:
    """Wait until a process has these words next to each other in its command line."""
    await until(lambda: running(*words))


def running(*words: str) -> bool:
    """Return True if a process has these words next to each other in its command line."""
    wanted = b"\0".join(word.encode() for word in words)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if wanted in path.read_bytes():
                return True
        except OSError:
            continue
    return False
