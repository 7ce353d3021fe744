"""Runs code of the agent in a notebook's kernel, from the server. Each such run is a job. A job can outlive the turn
that started it.

A job starts only in a kernel whose main shell is idle, so it never waits behind the person's code. The server
interrupts a job only while the kernel reports that it executes this job.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_core.utils import ensure_async

from agent_kernel.core.events import CallOutput, Notice
from agent_kernel.core.messages import Media, Status, figures_note, shorten
from agent_kernel.core.protocols import ToolContext, ToolOutput
from agent_kernel.core.shielded_await import RunningTasks
from agent_kernel.notebook.display.media_bundle import BUNDLE, MAX_BUNDLES, bundle_medium
from agent_kernel.notebook.draft.draft_request import OUTCOME
from agent_kernel.sandbox.worker.bounded_output import BoundedOutput
from jupyter_ext.notebooks.kernel_shell_client import CONNECT_WITHIN_S, LAST_WORDS_S, Execution, KernelShell, Message

HANDED_OVER_S = 60.0
"""Seconds that a tool call waits for its job. After that, the call returns and the job continues."""
STOPS_WITHIN_S = 5.0
SETTLED_S = 0.3
ALIVE_EVERY_S = 1.0
RESTARTED_WITHIN_S = 4.0
"""Seconds to wait for Jupyter's report that a kernel died, because the report says why. Jupyter polls for dead kernels
every 3 s."""
KEPT_CHARS = 200_000
"""Maximum number of characters that are kept of a job's output. Of longer output, the beginning and the end are
kept."""
PASSED_CHARS = 100_000
"""Maximum number of output characters that are shown while a call runs."""
RESULT_CHARS = 4_000
MAX_IMAGES = 8
MAX_IMAGE_BYTES = 8 << 20
KEPT_JOBS = 20
"""Maximum number of jobs that are kept for each kernel; the oldest finished ones are dropped."""
IMAGES = ("image/png", "image/jpeg")
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(slots=True, eq=False)
class KernelJob:
    """One execution of code that the server started in a kernel.

    ``status`` is None while the job runs. ``listener`` receives (stream, text) while a call waits for the job.
    ``outcome`` is the report of the kernel's magic about code that it ran in a draft.
    """

    id: str
    code: str
    shell: KernelShell
    manager: Any
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    status: Status | None = None
    output: BoundedOutput = field(default_factory=lambda: BoundedOutput(KEPT_CHARS))
    values: list[str] = field(default_factory=list)
    media: list[Media] = field(default_factory=list)
    error: str = ""
    title: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    lost_reason: str = ""
    stopping: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    listener: Callable[[str, str], None] = lambda stream, text: None
    execution: Execution | None = None
    interrupting: asyncio.Task[None] | None = None

    def begin(self) -> Coroutine[Any, Any, None]:
        """Send the code to the kernel and return a coroutine that follows the job to its end, however it ends."""
        self.execution = self.shell.execute(self.code, self._on_message)
        return self._follow(self.execution)

    async def _follow(self, execution: Execution) -> None:
        alive = asyncio.create_task(self._wait_until_dead())
        try:
            ends: list[asyncio.Future[Any]] = [execution.reply, alive]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if execution.reply.done() and not execution.reply.cancelled():
                await _wait_within(LAST_WORDS_S, execution.idle)
                self._end(execution.reply.result())
            else:
                self.mark_lost(self.lost_reason or "the kernel died")
        finally:
            alive.cancel()

    async def stop(self) -> None:
        """Interrupt the job and wait briefly for its end. Code that the agent did not start is never interrupted: if
        the job is still queued in the shell, the interrupt is sent once the job runs."""
        self.stopping = True
        if self.execution is None or self.ended.is_set():
            return
        if self.interrupting is None or self.interrupting.done():
            self.interrupting = asyncio.create_task(self._interrupt_when_it_runs(self.execution))
        await _wait_within(STOPS_WITHIN_S, self.ended)

    def mark_lost(self, reason: str) -> None:
        if self.status is None:
            self.lost_reason = reason
            self._close("interrupted")

    @property
    def summary(self) -> str:
        first = (self.title or self.code).strip().partition("\n")[0][:80]
        return f"job {self.id} ({self.state}): {first}"

    @property
    def state(self) -> str:
        took = f"{self.seconds if self.status else time.monotonic() - self.started:.0f} s"
        if self.status is None:
            return f"still running after {took}"
        return f"{self.lost_reason or {'success': 'done', 'error': 'failed'}.get(self.status, 'stopped')}, {took}"

    @property
    def text(self) -> str:
        """The text of the job's result for the model."""
        figures = "" if self.outcome else figures_note(self._figures)
        texts = [str(self.outcome["text"])] if self.outcome else [self.output.text().rstrip(), *self.values]
        parts = [*texts, self.error, figures, self.lost_reason and f"({self.lost_reason})"]
        return shorten("\n".join(part for part in parts if part) or "(no output)", RESULT_CHARS)

    @property
    def _figures(self) -> int:
        return sum(medium.mime in IMAGES for medium in self.media)

    async def _interrupt_when_it_runs(self, execution: Execution) -> None:
        fresh = not execution.began.is_set()
        await execution.began.wait()
        if fresh:
            # A kernel ignores an interrupt that arrives before the first line of the code runs.
            await asyncio.sleep(SETTLED_S)
        if not self.ended.is_set() and not execution.reply.done():
            await ensure_async(self.manager.interrupt_kernel())

    async def _wait_until_dead(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_EVERY_S)
            if not await ensure_async(self.manager.is_alive()):
                await asyncio.sleep(RESTARTED_WITHIN_S)
                return

    def _end(self, reply: Mapping[str, Any]) -> None:
        failed = reply.get("status") != "ok"
        if failed and not self.error:
            self.error = f"{reply.get('ename', 'Error')}: {reply.get('evalue', '')}"
        draft_status = self.outcome.get("status")  # None for code that ran in the kernel itself
        if self.stopping or reply.get("ename") == "KeyboardInterrupt" or draft_status == "interrupted":
            self._close("interrupted")
        elif failed or draft_status not in (None, "success"):
            self._close("error")
        else:
            self._close("success")

    def _close(self, status: Status) -> None:
        if self.interrupting is not None:
            self.interrupting.cancel()
        self.status = status
        self.seconds = time.monotonic() - self.started
        self.ended.set()

    def _on_message(self, message: Message) -> None:
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                self._add_output(str(content["name"]), str(content["text"]))
            case "display_data" | "execute_result":
                if isinstance(outcome := content["data"].get(OUTCOME), Mapping):
                    self.outcome = outcome
                else:
                    self._add_display(content["data"])
            case "error":
                lines = [ESCAPES.sub("", str(line)) for line in content["traceback"]]
                self.error = shorten("\n".join(lines) or f"{content['ename']}: {content['evalue']}", RESULT_CHARS // 2)
                self.listener("stderr", self.error + "\n")

    def _add_output(self, stream: str, text: str) -> None:
        self.output.add(text)
        self.listener(stream, text)

    def _add_display(self, data: Mapping[str, Any]) -> None:
        images = [mime for mime in IMAGES if mime in data]
        for mime in images:
            encoded = str(data[mime])
            if self._figures < MAX_IMAGES and len(encoded) * 3 // 4 <= MAX_IMAGE_BYTES:
                with contextlib.suppress(ValueError):
                    self.media.append(Media.of(mime, base64.b64decode(encoded)))
        body = bundle_medium(data)
        if body is not None and sum(medium.mime == BUNDLE for medium in self.media) < MAX_BUNDLES:
            self.media.append(Media.of(BUNDLE, body))
        if not images and "text/plain" in data and sum(map(len, self.values)) < KEPT_CHARS:
            text = shorten(str(data["text/plain"]), RESULT_CHARS)
            self.values.append(text)
            self.listener("stdout", text + "\n")


class KernelJobs:
    """The jobs in all kernels of this server. ``manager_of`` returns a kernel's manager and raises KeyError if the
    kernel is gone."""

    def __init__(self, manager_of: Callable[[str], Any], *, handed_over_s: float = HANDED_OVER_S) -> None:
        self._manager_of = manager_of
        self._handed_over_s = handed_over_s
        self._shells: dict[str, KernelShell] = {}
        self._jobs: dict[str, list[KernelJob]] = {}
        self._reborn: dict[str, float] = {}
        self._tasks = RunningTasks()
        self._numbers = itertools.count(1)

    def jobs_of(self, kernel: str) -> list[KernelJob]:
        return self._jobs.get(kernel, [])

    def runs_in(self, kernel: str) -> bool:
        return any(job.status is None for job in self.jobs_of(kernel))

    async def run(self, kernel: str, code: str, context: ToolContext, title: str = "") -> ToolOutput:
        """Run code in an idle kernel and return its result. If the code is still running after HANDED_OVER_S seconds,
        return the id of the job, which continues. ``title`` is shown to people in place of the code."""
        try:
            if problem := await self.busy_reason(kernel):
                return ToolOutput(problem, "error")
            job = self._start(kernel, code, title)
        except KeyError:
            return ToolOutput("The kernel of this notebook is gone.", "error")
        return await self._wait_and_report(job, context, self._handed_over_s, stop_with_turn=True)

    async def inspect(self, kernel: str, context: ToolContext) -> ToolOutput:
        """Return the output that a job has produced so far. If the arguments of the call say so, wait for the job or
        stop it first."""
        arguments = context.call.arguments
        jobs = self.jobs_of(kernel)
        job_id = str(arguments.get("job") or "")
        job = next((job for job in reversed(jobs) if job_id in ("", job.id)), None)
        if job is None:
            names = "; ".join(job.summary for job in jobs) or "none was started"
            return ToolOutput(f"There is no such job: {names}.", "error")
        if arguments.get("stop"):
            await job.stop()
            if job.status is None:
                return ToolOutput(f"{job.summary}\nIt was interrupted, and has not ended yet.", details={"job": job.id})
        return await self._wait_and_report(job, context, float(arguments.get("wait_s") or 0), stop_with_turn=False)

    async def evaluate(self, kernel: str, expression: str, within_s: float) -> ToolOutput:
        """Evaluate an expression in an idle kernel, and return the text of its value."""
        try:
            if problem := await self.busy_reason(kernel):
                return ToolOutput(problem, "error")
            return ToolOutput(await self._shell(kernel).evaluate(expression, within_s))
        except KeyError:
            return ToolOutput("The kernel of this notebook is gone.", "error")
        except TimeoutError:
            return ToolOutput("The kernel did not answer in time.", "timeout")

    async def busy_reason(self, kernel: str) -> str:
        """Return why no code can run in the kernel now; empty if its main shell is idle. Raises KeyError."""
        running = next((job for job in self.jobs_of(kernel) if job.status is None), None)
        if running is not None:
            return f"The kernel is busy with {running.summary}. Look at it with running(job={running.id!r})."
        shell = self._shell(kernel)
        if await shell.is_idle():
            return ""
        if not shell.has_answered:
            return (
                "The kernel does not answer: it starts, or is busy with code that you did not start. Nothing was run."
            )
        code = f": {shell.running_code}" if shell.running_code else ""
        return f"The kernel is busy with code that you did not start{code}. Nothing was run; try again when it is idle."

    def on_life_end(self, kernel: str, reason: str) -> None:
        """Mark the jobs of a kernel as lost because it was restarted or is gone."""
        self._reborn[kernel] = time.monotonic()
        for job in self.jobs_of(kernel):
            job.mark_lost(reason)
        if shell := self._shells.pop(kernel, None):
            shell.close()

    def forget(self, kernel: str) -> None:
        self._jobs.pop(kernel, None)
        self._reborn.pop(kernel, None)

    async def aclose(self) -> None:
        """Stop following all jobs. In a kernel that keeps running after the server ends, its jobs continue, but nobody
        reads their output."""
        for kernel in list(self._shells):
            self.on_life_end(kernel, "the server was stopped")
        await self._tasks.wait()

    def _shell(self, kernel: str) -> KernelShell:
        manager = self._manager_of(kernel)
        if kernel not in self._shells:
            reborn = time.monotonic() - self._reborn.get(kernel, float("-inf")) < CONNECT_WITHIN_S
            self._shells[kernel] = KernelShell(manager, reborn=reborn)
        return self._shells[kernel]

    def _start(self, kernel: str, code: str, title: str = "") -> KernelJob:
        job = KernelJob(f"j{next(self._numbers)}", code, self._shell(kernel), self._manager_of(kernel), title=title)
        jobs = self._jobs.setdefault(kernel, [])
        jobs.append(job)
        for old in [job for job in jobs if job.status is not None][: max(0, len(jobs) - KEPT_JOBS)]:
            jobs.remove(old)
        self._tasks.start(job.begin(), f"job {job.id}")
        return job

    async def _wait_and_report(
        self, job: KernelJob, context: ToolContext, wait_s: float, *, stop_with_turn: bool
    ) -> ToolOutput:
        passed = 0

        def listen(stream: str, text: str) -> None:
            nonlocal passed
            passed_text = text[: max(0, PASSED_CHARS - passed)]
            passed += len(text)
            if passed_text:
                context.emit(CallOutput(context.call.id, passed_text, stream))

        job.listener = listen
        try:
            await _wait_within(wait_s, job.ended)
        except asyncio.CancelledError:
            if stop_with_turn:
                await asyncio.shield(job.stop())
            raise
        finally:
            job.listener = lambda stream, text: None
        details = {"job": job.id, "seconds": round(job.seconds, 3)}
        details |= {name: job.outcome[name] for name in ("drafted", "tried") if job.outcome.get(name)}
        if job.status is None:
            context.emit(
                Notice("info", f"{job.summary} — it continues in your kernel; interrupting the kernel stops it.")
            )
            so_far = f"Output so far:\n{job.text}" if job.output.total or job.values else "No output so far."
            return ToolOutput(
                f"{job.summary}\n{so_far}\nrunning(job={job.id!r}) waits for it or stops it.", details=details
            )
        text = job.text if stop_with_turn else f"{job.summary}\n{job.text}"
        return ToolOutput(text, job.status, tuple(job.media), details=details)


async def _wait_within(seconds: float, event: asyncio.Event) -> None:
    if event.is_set() or seconds <= 0:
        return
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
