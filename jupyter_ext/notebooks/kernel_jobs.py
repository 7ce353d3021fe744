"""Code of the agent in kernels that no client of the notebook runs it in: jobs, which outlive whoever asked for them.

A job runs in the main shell of an idle kernel and never queues behind the person's code. It is interrupted only while
the kernel says that it executes this job.
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
from agent_kernel.core.messages import Media, Status, shorten
from agent_kernel.core.protocols import ToolContext, ToolOutput
from agent_kernel.notebook.display.media_bundle import BUNDLE, MAX_BUNDLES, bundle_medium
from agent_kernel.notebook.draft.request import OUTCOME
from agent_kernel.sandbox.worker.output import BoundedOutput
from jupyter_ext.notebooks.kernel_shell import CONNECT_WITHIN_S, LAST_WORDS_S, Execution, KernelShell, Message

HANDED_OVER_S = 60.0
"""A call waits so long for its job; then the job goes on by itself."""
STOPS_WITHIN_S = 5.0
SETTLED_S = 0.3
ALIVE_EVERY_S = 1.0
RESTARTED_WITHIN_S = 4.0
"""Jupyter looks for dead kernels every 3 s; it is heard first, because it knows more."""
KEPT_CHARS = 200_000
"""Of what a job says; of more, head and tail."""
PASSED_CHARS = 100_000
"""Of one call, shown while it runs."""
RESULT_CHARS = 4_000
MAX_IMAGES = 8
MAX_IMAGE_BYTES = 8 << 20
KEPT_JOBS = 20
"""Of a kernel; of those that have ended the oldest go."""
IMAGES = ("image/png", "image/jpeg")
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(slots=True, eq=False)
class Job:
    """``status`` is None while it runs. ``listener`` hears (stream, text) while somebody waits for it. ``outcome`` is
    what the kernel's magic says of code that it ran in a draft."""

    id: str
    code: str
    shell: KernelShell
    manager: Any
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    status: Status | None = None
    said: BoundedOutput = field(default_factory=lambda: BoundedOutput(KEPT_CHARS))
    values: list[str] = field(default_factory=list)
    media: list[Media] = field(default_factory=list)
    error: str = ""
    title: str = ""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    lost: str = ""
    stopping: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    listener: Callable[[str, str], None] = lambda stream, text: None
    execution: Execution | None = None
    interrupting: asyncio.Task[None] | None = None

    def begin(self) -> Coroutine[Any, Any, None]:
        """Sends it to the kernel; what is returned follows it to its end, whatever that is."""
        self.execution = self.shell.execute(self.code, self._take)
        return self._follow(self.execution)

    async def _follow(self, execution: Execution) -> None:
        alive = asyncio.create_task(self._while_alive())
        try:
            ends: list[asyncio.Future[Any]] = [execution.reply, alive]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if execution.reply.done() and not execution.reply.cancelled():
                await _within(LAST_WORDS_S, execution.idle)
                self._end(execution.reply.result())
            else:
                self.lose(self.lost or "the kernel died")
        finally:
            alive.cancel()

    async def stop(self) -> None:
        """Interrupts it, and waits a moment for its end. Code that the agent did not start is never interrupted: a job
        whose turn in the shell has not come is interrupted when it comes."""
        self.stopping = True
        if self.execution is None or self.ended.is_set():
            return
        if self.interrupting is None or self.interrupting.done():
            self.interrupting = asyncio.create_task(self._interrupt_when_it_runs(self.execution))
        await _within(STOPS_WITHIN_S, self.ended)

    def lose(self, reason: str) -> None:
        if self.status is None:
            self.lost = reason
            self._close("interrupted")

    @property
    def line(self) -> str:
        first = (self.title or self.code).strip().partition("\n")[0][:80]
        return f"job {self.id} ({self.state}): {first}"

    @property
    def state(self) -> str:
        took = f"{self.seconds if self.status else time.monotonic() - self.started:.0f} s"
        if self.status is None:
            return f"still running after {took}"
        return f"{self.lost or {'success': 'done', 'error': 'failed'}.get(self.status, 'stopped')}, {took}"

    @property
    def text(self) -> str:
        """What the model reads of it."""
        figures = f"[{self._figures} figure(s) shown]" if self._figures else ""
        said = [str(self.outcome["text"])] if self.outcome else [self.said.text().rstrip(), *self.values]
        parts = [*said, self.error, "" if self.outcome else figures, self.lost and f"({self.lost})"]
        return shorten("\n".join(part for part in parts if part) or "(no output)", RESULT_CHARS)

    @property
    def _figures(self) -> int:
        return sum(medium.mime in IMAGES for medium in self.media)

    async def _interrupt_when_it_runs(self, execution: Execution) -> None:
        fresh = not execution.began.is_set()
        await execution.began.wait()
        if fresh:
            # A kernel swallows an interrupt that comes before the first line of the code.
            await asyncio.sleep(SETTLED_S)
        if not self.ended.is_set() and not execution.reply.done():
            await ensure_async(self.manager.interrupt_kernel())

    async def _while_alive(self) -> None:
        while True:
            await asyncio.sleep(ALIVE_EVERY_S)
            if not await ensure_async(self.manager.is_alive()):
                await asyncio.sleep(RESTARTED_WITHIN_S)
                return

    def _end(self, reply: Mapping[str, Any]) -> None:
        failed = reply.get("status") != "ok"
        if failed and not self.error:
            self.error = f"{reply.get('ename', 'Error')}: {reply.get('evalue', '')}"
        stopped = self.stopping or reply.get("ename") == "KeyboardInterrupt"
        drafted = self.outcome.get("status")
        failed |= drafted not in (None, "success")
        self._close("interrupted" if stopped or drafted == "interrupted" else "error" if failed else "success")

    def _close(self, status: Status) -> None:
        if self.interrupting is not None:
            self.interrupting.cancel()
        self.status = status
        self.seconds = time.monotonic() - self.started
        self.ended.set()

    def _take(self, message: Message) -> None:
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                self._say(str(content["name"]), str(content["text"]))
            case "display_data" | "execute_result":
                if isinstance(told := content["data"].get(OUTCOME), Mapping):
                    self.outcome = told
                else:
                    self._show(content["data"])
            case "error":
                lines = [ESCAPES.sub("", str(line)) for line in content["traceback"]]
                self.error = shorten("\n".join(lines) or f"{content['ename']}: {content['evalue']}", RESULT_CHARS // 2)
                self.listener("stderr", self.error + "\n")

    def _say(self, stream: str, text: str) -> None:
        self.said.add(text)
        self.listener(stream, text)

    def _show(self, data: Mapping[str, Any]) -> None:
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


class Jobs:
    """Of all kernels of this server. ``manager_of`` finds a kernel's manager; KeyError: it is gone."""

    def __init__(self, manager_of: Callable[[str], Any], *, handed_over_s: float = HANDED_OVER_S) -> None:
        self._manager_of = manager_of
        self._handed_over_s = handed_over_s
        self._shells: dict[str, KernelShell] = {}
        self._jobs: dict[str, list[Job]] = {}
        self._reborn: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)

    def of(self, kernel: str) -> list[Job]:
        return self._jobs.get(kernel, [])

    def runs_in(self, kernel: str) -> bool:
        return any(job.status is None for job in self.of(kernel))

    async def run(self, kernel: str, code: str, context: ToolContext, title: str = "") -> ToolOutput:
        """The result, or after a while the job's name: it goes on. Nothing runs in a kernel that is busy. ``title`` is
        what people read of the job in place of its code."""
        try:
            if problem := await self.busy(kernel):
                return ToolOutput(problem, "error")
            job = self._start(kernel, code, title)
        except KeyError:
            return ToolOutput("The kernel of this notebook is gone.", "error")
        return await self._attended(job, context, self._handed_over_s, stop_with_turn=True)

    async def look(self, kernel: str, context: ToolContext) -> ToolOutput:
        """At a job that was started here: what it has said, after waiting for it or stopping it."""
        arguments = context.call.arguments
        jobs = self.of(kernel)
        wanted = str(arguments.get("job") or "")
        job = next((job for job in reversed(jobs) if wanted in ("", job.id)), None)
        if job is None:
            names = "; ".join(job.line for job in jobs) or "none was started"
            return ToolOutput(f"There is no such job: {names}.", "error")
        if arguments.get("stop"):
            await job.stop()
            if job.status is None:
                return ToolOutput(f"{job.line}\nIt was interrupted, and has not ended yet.", details={"job": job.id})
        return await self._attended(job, context, float(arguments.get("wait_s") or 0), stop_with_turn=False)

    async def evaluate(self, kernel: str, expression: str, within_s: float) -> ToolOutput:
        """The text of an expression in an idle kernel."""
        try:
            if problem := await self.busy(kernel):
                return ToolOutput(problem, "error")
            return ToolOutput(await self._shell(kernel).evaluate(expression, within_s))
        except KeyError:
            return ToolOutput("The kernel of this notebook is gone.", "error")
        except TimeoutError:
            return ToolOutput("The kernel did not answer in time.", "timeout")

    async def busy(self, kernel: str) -> str:
        """Why nothing can be run now; empty: the main shell is idle. Raises KeyError."""
        running = next((job for job in self.of(kernel) if job.status is None), None)
        if running is not None:
            return f"The kernel is busy with {running.line}. Look at it with running(job={running.id!r})."
        shell = self._shell(kernel)
        if await shell.is_idle():
            return ""
        if not shell.answered:
            return (
                "The kernel does not answer: it starts, or is busy with code that you did not start. Nothing was run."
            )
        what = f": {shell.runs}" if shell.runs else ""
        return f"The kernel is busy with code that you did not start{what}. Nothing was run; try again when it is idle."

    def life_ended(self, kernel: str, reason: str) -> None:
        """The kernel was restarted or is gone, and with it all that ran there."""
        self._reborn[kernel] = time.monotonic()
        for job in self.of(kernel):
            job.lose(reason)
        if shell := self._shells.pop(kernel, None):
            shell.close()

    def forget(self, kernel: str) -> None:
        self._jobs.pop(kernel, None)
        self._reborn.pop(kernel, None)

    async def aclose(self) -> None:
        """Jobs in kernels that outlive the server go on there, unheard."""
        for kernel in list(self._shells):
            self.life_ended(kernel, "the server was stopped")
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _shell(self, kernel: str) -> KernelShell:
        manager = self._manager_of(kernel)
        if kernel not in self._shells:
            reborn = time.monotonic() - self._reborn.get(kernel, float("-inf")) < CONNECT_WITHIN_S
            self._shells[kernel] = KernelShell(manager, reborn=reborn)
        return self._shells[kernel]

    def _start(self, kernel: str, code: str, title: str = "") -> Job:
        job = Job(f"j{next(self._numbers)}", code, self._shell(kernel), self._manager_of(kernel), title=title)
        jobs = self._jobs.setdefault(kernel, [])
        jobs.append(job)
        for old in [job for job in jobs if job.status is not None][: max(0, len(jobs) - KEPT_JOBS)]:
            jobs.remove(old)
        task = asyncio.create_task(job.begin(), name=f"job {job.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def _attended(self, job: Job, context: ToolContext, wait_s: float, *, stop_with_turn: bool) -> ToolOutput:
        passed = 0

        def listen(stream: str, text: str) -> None:
            nonlocal passed
            shown = text[: max(0, PASSED_CHARS - passed)]
            passed += len(text)
            if shown:
                context.emit(CallOutput(context.call.id, shown, stream))

        job.listener = listen
        try:
            await _within(wait_s, job.ended)
        except asyncio.CancelledError:
            if stop_with_turn:
                await asyncio.shield(job.stop())
            raise
        finally:
            job.listener = lambda stream, text: None
        details = {"job": job.id, "seconds": round(job.seconds, 3)}
        details |= {"drafted": job.outcome["drafted"]} if job.outcome.get("drafted") else {}
        if job.status is None:
            context.emit(Notice("info", f"{job.line} — it goes on in your kernel; interrupting the kernel stops it."))
            so_far = f"Output so far:\n{job.text}" if job.said.total or job.values else "No output so far."
            return ToolOutput(
                f"{job.line}\n{so_far}\nrunning(job={job.id!r}) waits for it or stops it.", details=details
            )
        text = job.text if stop_with_turn else f"{job.line}\n{job.text}"
        return ToolOutput(text, job.status, tuple(job.media), details=details)


async def _within(seconds: float, event: asyncio.Event) -> None:
    if event.is_set() or seconds <= 0:
        return
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return
