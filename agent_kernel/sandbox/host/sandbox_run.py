"""Collects the output and the media of one run in a jailed process, and builds the result of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agent_kernel.core.messages import Media, Status
from agent_kernel.core.protocols import RunResult, Variable, VariableInfo
from agent_kernel.core.wire.framing import FrameError
from agent_kernel.sandbox.host import chart_validation
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.worker_protocol import (
    JSON_MEDIA,
    Done,
    MediaAnnounced,
    VariableAnnounced,
    VariableList,
)
from agent_kernel.sandbox.worker.bounded_output import BoundedOutput

StopReason: TypeAlias = Literal["interrupted", "output", "disk", "timeout"]
MAX_ERROR = 50_000
LARGE = 1 << 18
"""JSON with more bytes than this is checked in a thread, off the event loop."""


@dataclass(slots=True)
class SandboxRun:
    """One run in a jailed process. The caller resolves ``stop`` to end it early. ``done`` is resolved with the worker's
    answer, or with None if the process ended. ``taken`` is the name of the requested variable, if any; ``asked_list``
    is True if the list of variables was requested."""

    number: int
    policy: SandboxPolicy
    on_output: Callable[[str, str], None]
    stop: asyncio.Future[StopReason]
    done: asyncio.Future[Done | None]
    outputs: dict[str, BoundedOutput]
    taken: str = ""
    asked_list: bool = False
    variable: Variable | None = None
    listed: tuple[VariableInfo, ...] = ()
    media: list[Media] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    dropped: int = 0
    written: int = 0

    def halt(self, reason: StopReason) -> None:
        if not self.stop.done():
            self.stop.set_result(reason)

    def add_output(self, name: str, text: str) -> None:
        """Add printed output of the stream ``name``. Too much output stops the run."""
        self.written += len(text)
        displayed = self.outputs[name].add(text)
        if displayed:
            self.on_output(name, displayed)
        if self.written > self.policy.output_stop_mb << 20:
            self.halt("output")

    async def show(self, frame: MediaAnnounced, data: bytes) -> None:
        """Add a picture, table or chart. Raises FrameError if the worker sends more of them than it may."""
        if len(self.media) + self.dropped >= self.policy.figures:
            raise FrameError("the worker sent too many pictures")
        if frame.mime in JSON_MEDIA:
            try:
                check = chart_validation.validate_chart
                data = (
                    await asyncio.to_thread(check, frame.mime, data) if len(data) > LARGE else check(frame.mime, data)
                )
            except chart_validation.NotShown as why:
                self.dropped += 1
                self.notes.append(f"A table or chart was not shown: {why}.")
                return
        if sum(medium.size for medium in self.media) + len(data) > 4 * (self.policy.figure_mb << 20):
            self.dropped += 1
            self.notes.append("An image was not kept: the images of this run are too large together.")
        else:
            self.media.append(Media.of(frame.mime, data))

    def take(self, frame: VariableAnnounced, data: bytes) -> None:
        """Accept the copy of a variable. Raises FrameError if none was requested."""
        if not self.taken or self.variable is not None:
            raise FrameError("the worker sent a variable that was not requested")
        self.variable = Variable(self.taken, frame.encoding, data, frame.type)

    def list(self, frame: VariableList) -> None:
        """Accept the list of variables. Raises FrameError if it was not requested."""
        if not self.asked_list:
            raise FrameError("the worker sent a list of variables that was not requested")
        self.listed = frame.variables

    def result(self, reason: StopReason | None, ended: str, timeout_s: float, seconds: float) -> RunResult:
        """Return the result of the run. ``reason`` is why the run was stopped, or None if it was not. ``ended`` is why
        the process has ended, or "" if it has not."""
        done = self.done.result() if self.done.done() else None
        status: Status = done.status if done else "error"
        if reason is not None:
            status = reason if reason in ("timeout", "interrupted") else "error"
        notes = [done.error[:MAX_ERROR]] if done and done.error else []
        if reason is not None:
            notes.append(self._explain(reason, timeout_s))
        if ended:
            notes.append(f"The sandbox lost its process: {ended}. Variables are gone, files remain.")
        notes += dict.fromkeys(self.notes)
        texts = {name: output.text() for name, output in self.outputs.items()}
        # A worker sends less than this; frames forged by code may be longer.
        value = done.value[: 2 * self.policy.value_chars] if done and done.value else None
        return RunResult(
            status,
            texts["stdout"],
            texts["stderr"],
            value,
            "\n".join(notes) or None,
            tuple(self.media),
            seconds,
            exit_code=done.exit_code if done else None,
        )

    def _explain(self, reason: StopReason, timeout_s: float) -> str:
        return {
            "timeout": f"Stopped: the time limit of {timeout_s:g} s was reached.",
            "interrupted": "Stopped: interrupted.",
            "output": f"Stopped: it wrote more than {self.policy.output_stop_mb} MB of output.",
            "disk": f"Stopped: it left less than {self.policy.disk_reserve_mb} MB free on the disk.",
        }[reason]
