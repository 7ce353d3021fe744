"""Controls one jailed process from the server: starts it, makes it the jail of a session, runs code in it, and ends it.

Frames from the worker are not trusted; messages from the supervisor are trusted.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import SandboxUnavailable
from agent_kernel.core.protocols import RunResult, Work
from agent_kernel.core.thread_offload import run_in_own_thread
from agent_kernel.core.wire.framing import FrameError, encode_head, read_body_async
from agent_kernel.sandbox.host.jail_resources import JailResources
from agent_kernel.sandbox.host.launch_command import command, environment
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.sandbox_run import SandboxRun, StopReason
from agent_kernel.sandbox.host.worker_protocol import (
    MAX_JSON,
    Done,
    Frame,
    JailRefused,
    MediaAnnounced,
    Ready,
    VariableAnnounced,
    VariableList,
    check_size,
    decode,
    encode,
)
from agent_kernel.sandbox.jail.jail import JailSpec
from agent_kernel.sandbox.worker import variable_transfer
from agent_kernel.sandbox.worker.bounded_output import BoundedOutput, Pipe

ENTER_S = 60.0
"""Time limit in seconds for starting a process and for jailing it. It is long enough for busy machines."""
END_S = 2.0
BUFFER = 1 << 20
"""Limit in bytes of the buffer that receives messages of the worker, among them copies of variables and pictures."""


class JailedProcess:
    """Owns a supervisor process and its three channels. After ``kill``, or when the process ends by itself, none of its
    processes is left, and ``ended`` gives the reason."""

    def __init__(
        self, process: subprocess.Popen[bytes], policy: SandboxPolicy, surroundings: JailResources, way: socket.socket
    ) -> None:
        self.ended = ""
        self.layers: dict[str, dict[str, Any]] = {}
        self._process = process
        self._policy = policy
        self._surroundings = surroundings
        self._way = way
        self._counted: asyncio.Task[dict[str, str]]
        self._group = 0
        self._pipes: dict[str, Pipe] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._run: SandboxRun | None = None
        self._runs = 0
        self._follows = False
        loop = asyncio.get_running_loop()
        self._entered: asyncio.Future[Ready] = loop.create_future()
        self._refreshed = asyncio.Event()
        self._gone = asyncio.Event()

    @classmethod
    async def start(cls, interpreter: Path, policy: SandboxPolicy, surroundings: JailResources) -> JailedProcess:
        """Start a warm process: the interpreter waits, not yet jailed and without data of any session."""
        ours, theirs = socket.socketpair()
        control, supervisor = socket.socketpair()
        way, jailed = socket.socketpair()
        with theirs, supervisor, jailed:
            fds = (theirs.fileno(), supervisor.fileno(), jailed.fileno())
            process = subprocess.Popen(  # noqa: ASYNC220 - takes a few ms and leaves no thread behind
                command(interpreter, *fds),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=fds,
                env=environment(interpreter, policy),
                cwd="/",
                start_new_session=True,
            )
        self = cls(process, policy, surroundings, way)
        # This is done while the process is a spare one, because the kernel needs some ms to move it into a group.
        count = partial(surroundings.count, process.pid, policy.limits())
        self._counted = asyncio.create_task(run_in_own_thread(count, "control group of a jail"))
        await self._connect(ours, control)
        return self

    async def _connect(self, ours: socket.socket, control: socket.socket) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for name, stream in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            self._pipes[name] = Pipe(os.dup(stream.fileno()))
            stream.close()
        reader, self._protocol = await asyncio.open_unix_connection(sock=ours, limit=BUFFER)
        lines, self._control = await asyncio.open_unix_connection(sock=control)
        # Here the process cannot have been reaped yet, so the pid certainly belongs to it.
        pidfd = os.pidfd_open(self._process.pid)
        self._obeying = asyncio.create_task(self._obey(lines))
        self._tasks = [self._obeying, asyncio.create_task(self._listen(reader))]
        asyncio.get_running_loop().add_reader(pidfd, self._on_exit, pidfd)

    # --------------------------------------------------------------------------------------------- methods for the pool

    async def enter(self, spec: JailSpec) -> dict[str, dict[str, Any]]:
        """Turn the process into the jail of one session and return its layers. Raises SandboxUnavailable; the
        process has then ended."""
        self._follows = bool(spec.read)
        self._tell(asdict(spec) | {"counted": await self._counted})
        try:
            async with asyncio.timeout(ENTER_S):
                ready = await self._entered
        except TimeoutError:
            await self.kill("did not start in time")
            raise SandboxUnavailable(f"The sandbox did not start within {ENTER_S:g} s.") from None
        except SandboxUnavailable:
            await self.kill("refused")
            raise
        self.layers = ready.layers
        await self._surroundings.open(self._way)
        return ready.layers

    async def run(
        self,
        work: Work,
        *,
        stop: asyncio.Future[StopReason],
        on_output: Callable[[str, str], None] = lambda stream, text: None,
        workdir: str = "/",
    ) -> RunResult:
        """Run code and return its result. Resolving ``stop`` ends the run early. Ends at the latest after the time
        limit and the grace period; the worker is then either idle or dead."""
        started = time.monotonic()
        run = self._begin(on_output, stop)
        heads = [{"name": given.name, "encoding": given.encoding, "type": given.type} for given in work.given]
        body = {
            "type": "run",
            "id": run.number,
            "kind": work.kind,
            "code": work.code,
            "cpu_s": min(work.cpu_s or self._policy.cpu_s, self._policy.cpu_s),
            "grace_s": self._policy.grace_s,
            "given": heads,
        }
        watch = asyncio.create_task(self._watch_disk(run, workdir))
        try:
            if run.number > 1:  # before the first run, the jail shows the current entries
                await self._refresh()
            parts = [part for variable in work.given for part in (encode_head(len(variable.data), b"B"), variable.data)]
            reason = await self._exchange(run, [encode(body), *parts], work.timeout_s)
        finally:
            watch.cancel()
        return run.result(reason, self.ended, work.timeout_s, time.monotonic() - started)

    async def ask(self, timeout_s: float, *, variable: str = "") -> SandboxRun:
        """Copy the variable ``variable``, or list all variables if it is empty. If the worker did not answer, the
        returned run contains no answer."""
        run = self._begin(lambda stream, text: None, asyncio.get_running_loop().create_future())
        run.taken, run.asked_list = variable, not variable
        kind = {"type": "take", "name": variable} if variable else {"type": "variables"}
        await self._exchange(run, [encode({**kind, "id": run.number})], timeout_s)
        return run

    async def kill(self, why: str) -> None:
        """End the process and all its descendants; ``why`` becomes ``ended``. When this returns, no process is left."""
        self.ended = self.ended or why
        self._control.close()  # at the end of file, the supervisor ends all processes, then itself
        try:
            async with asyncio.timeout(END_S):
                await self._gone.wait()
        except TimeoutError:
            self._process.kill()
            await self._gone.wait()
        await self._clean()

    # ------------------------------------------------------------------------------------------------ runs

    def _begin(self, on_output: Callable[[str, str], None], stop: asyncio.Future[StopReason]) -> SandboxRun:
        self._runs += 1
        outputs = {name: BoundedOutput(self._policy.output_chars) for name in self._pipes}
        done: asyncio.Future[Done | None] = asyncio.get_running_loop().create_future()
        self._run = SandboxRun(self._runs, self._policy, on_output, stop, done, outputs)
        return self._run

    async def _exchange(self, run: SandboxRun, request: list[bytes], timeout_s: float) -> StopReason | None:
        """Send the request and wait for the end. Returns why the run was stopped, or None if it was not."""
        try:
            if self.ended and not run.done.done():
                run.done.set_result(None)
            for name, pipe in self._pipes.items():
                pipe.attach(partial(run.add_output, name))
            if run.stop.done() or self.ended:
                return run.stop.result() if run.stop.done() else None
            self._protocol.writelines(request)
            return await self._finish(run, timeout_s)
        finally:
            self._run = None
            for pipe in self._pipes.values():
                pipe.pause()
                pipe.drain()

    async def _finish(self, run: SandboxRun, timeout_s: float) -> StopReason | None:
        """Wait for the end of the run. Returns why it was stopped, or None if it ended normally."""
        either: set[asyncio.Future[Any]] = {run.done, run.stop}
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if run.done.done():
            return None
        reason: StopReason = run.stop.result() if run.stop.done() else "timeout"
        await self._interrupt(run)
        if not run.done.done():
            await self.kill("it did not react to an interrupt and was ended")
        return reason

    async def _interrupt(self, run: SandboxRun) -> None:
        """Interrupt the run twice, because an interrupt before the code has started is lost."""
        grace = self._policy.grace_s
        for wait in (grace / 3, grace - grace / 3):
            self._tell({"do": "interrupt"})
            await asyncio.wait({run.done}, timeout=wait)
            if run.done.done():
                # If the code has just ended, the signal may arrive a moment later. The next run must not receive it.
                return await asyncio.sleep(0.02)

    async def _refresh(self) -> None:
        """Make new files in shared directories visible before the code runs."""
        if self._follows and self.layers.get("mounts", {}).get("active"):
            self._refreshed.clear()
            self._tell({"do": "refresh"})
            try:
                async with asyncio.timeout(END_S):
                    await self._refreshed.wait()
            except TimeoutError:
                return  # the directory is very large: in this run, the code sees its earlier state

    async def _watch_disk(self, run: SandboxRun, workdir: str) -> None:
        free = _free_mb(workdir)
        # If the disk is nearly full already, the code may still use half of what is left.
        reserve = min(self._policy.disk_reserve_mb, free // 2)
        while True:
            await asyncio.sleep(0.5)
            if _free_mb(workdir) < reserve:
                run.halt("disk")
                return

    # ------------------------------------------------------------------------------------------------ channels

    def _tell(self, body: dict[str, Any]) -> None:
        if not self._control.is_closing():
            self._control.write(json.dumps(body).encode() + b"\n")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """Read frames of the worker and pass them to the current run, for as long as the worker lives."""
        try:
            while True:
                await self._receive(decode(await read_body_async(reader, MAX_JSON, b"J")), reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            try:
                async with asyncio.timeout(END_S):
                    await self._gone.wait()  # the process ended by itself; the supervisor reports how
            except TimeoutError:
                self._end("it closed its channel")
        except FrameError:
            self._end("it sent data that does not follow the protocol of the sandbox")

    async def _receive(self, frame: Frame, reader: asyncio.StreamReader) -> None:
        if isinstance(frame, Ready | JailRefused):
            if self._entered.done():
                raise FrameError("the worker reported twice that it is ready")
            if isinstance(frame, Ready):
                self._entered.set_result(frame)
            else:
                self._entered.set_exception(unavailable(frame.reason, frame.layers))
            return
        run = self._run
        if run is None or run.done.done() or frame.run != run.number:
            raise FrameError("the worker sent a frame for a run that is not in progress")
        match frame:
            case Done():
                run.done.set_result(frame)
            case VariableList():
                run.list(frame)
            case MediaAnnounced():
                await run.show(frame, await self._read_announced(frame, self._policy.figure_mb << 20, reader))
            case VariableAnnounced():
                run.take(frame, await self._read_announced(frame, variable_transfer.MAX_BYTES, reader))

    async def _read_announced(
        self, frame: MediaAnnounced | VariableAnnounced, limit: int, reader: asyncio.StreamReader
    ) -> bytes:
        data = await read_body_async(reader, limit, b"B")
        check_size(frame, data)
        return data

    async def _obey(self, lines: asyncio.StreamReader) -> None:
        """Read the messages of the supervisor, and record their content, until the supervisor ends."""
        while line := await lines.readline():
            message = json.loads(line)
            if "refreshed" in message:
                self._refreshed.set()
            elif "failed" in message and not self._entered.done():
                self._entered.set_exception(unavailable(message["failed"], {}))
            elif "group" in message:
                self._group = message["group"]
            elif "exit" in message:
                self._group = 0
                killed = message["exit"] == -signal.SIGKILL and self._surroundings.out_of_memory()
                self.ended = self.ended or message.get("why") or killed or _describe_exit(message["exit"])

    def _end(self, why: str) -> None:
        """Stop using the worker, and record the reason ``why``. The supervisor then ends the worker, or reports how the
        worker has ended."""
        self.ended = self.ended or why
        self._control.close()

    def _on_exit(self, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        self._process.wait()
        self._surroundings.kill()
        if self._group:  # a supervisor that was killed could not end its processes
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)
        self._tasks.append(asyncio.create_task(self._notify_ended()))

    async def _notify_ended(self) -> None:
        """Notify all waiting tasks that the process has ended."""
        await asyncio.wait({self._obeying}, timeout=END_S)  # the supervisor's last line reports how the worker ended
        self.ended = self.ended or self._surroundings.out_of_memory() or "it ended"
        if not self._entered.done():
            self._entered.set_exception(unavailable(f"its process ended at once. {self._last_words()}", {}))
        if self._run is not None and not self._run.done.done():
            self._run.done.set_result(None)
        self._gone.set()
        self._refreshed.set()

    def _last_words(self) -> str:
        output = BoundedOutput(2000)
        self._pipes["stderr"].attach(output.add)
        self._pipes["stderr"].drain()
        self._pipes["stderr"].pause()
        return output.text().strip().rpartition("\n")[2]

    async def _clean(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._entered.done() and not self._entered.cancelled():
            self._entered.exception()
        for writer in (self._protocol, self._control):
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                continue
        for pipe in self._pipes.values():
            pipe.pause()
            if self._run is None:
                pipe.close()
        self._way.close()
        await asyncio.wait([self._counted])
        await self._surroundings.aclose()


def unavailable(reason: str, layers: dict[str, Any]) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"The sandbox cannot be used on this system: {reason}.",
        hint="Run the code live in the notebook instead, or see: agent-kernel doctor",
        details={"layers": layers, "reason": reason},
    )


def _describe_exit(code: int) -> str:
    """Describe an exit code as returned by ``waitstatus_to_exitcode``."""
    if code >= 0:
        return f"the code ended it (exit code {code})"
    descriptions = {signal.SIGKILL: "it was killed (often: out of memory)", signal.SIGXCPU: "it used up its CPU time"}
    return descriptions.get(signal.Signals(-code), f"it crashed ({signal.Signals(-code).name})")


def _free_mb(path: str) -> int:
    with suppress(OSError):
        disk = os.statvfs(path)
        return disk.f_bavail * disk.f_frsize >> 20
    return 1 << 40
