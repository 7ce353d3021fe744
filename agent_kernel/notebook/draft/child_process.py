"""The code of the forked processes. It cuts the draft off from the kernel's resources and runs one piece of code at a
time.

There are at most three processes: the keeper, the draft, and during a call the fallback, which is the draft as it was
before the call.

Each is a copy of one thread of the kernel. It must not use the kernel's sockets or other threads, or wait for them. It
ends with ``os._exit``, because a normal exit would flush and close files that the kernel still uses."""

from __future__ import annotations

import asyncio
import base64
import builtins
import contextlib
import gc
import getpass
import io
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from agent_kernel.core.programs.program_outcome import MAX_VARIABLES
from agent_kernel.core.wire.framing import FrameError, parse_object
from agent_kernel.notebook.draft import draft_keeper, fork_safety, jail
from agent_kernel.notebook.draft import framing as frames
from agent_kernel.notebook.draft.draft_keeper import ChildEnds, close
from agent_kernel.notebook.kernel.changed_names import StrongMark
from agent_kernel.notebook.kernel.content_digest import variable_digest
from agent_kernel.notebook.kernel.live_execution import ExecutionOutcome, LiveCode
from agent_kernel.notebook.kernel.variable_summary import describe_data
from agent_kernel.notebook.kernel.variable_transfer import encode_draft_value

MAX_FILES = 256
"""Number of file descriptors whose offsets are restored after a failed call."""
NO_TRIAL = {"status": "error", "text": "This draft cannot be copied, so nothing can be tried in it.", "kept": True}
"""The answer for a program that was not tried, because the draft could not be copied and so the program's effects could
not be undone. The draft is unchanged."""
REFUSALS = {1, 13, 30}
"""The error numbers EPERM, EACCES and EROFS: the jail refused an operation of the code."""
NO_FRONT_END = "a draft has no connection to the notebook: widgets, input and comms need your kernel"
MATPLOTLIB = (".cache/matplotlib", ".config/matplotlib")
"""Directories below the home directory whose files are copied for matplotlib: the user's settings, and the font list,
which takes seconds to build anew."""


class NoFrontEnd(PermissionError):
    """Raised when code asks for input or uses widgets or comms."""


def become_draft(shell: Any, ends: ChildEnds) -> NoReturn:
    """Turn the process into the keeper of a draft; called in the child right after the fork. The keeper is the parent
    of the process that runs code, and of orphans that code leaves behind. The keeper runs no code of the model. Never
    returns."""
    try:
        draft_keeper.prepare()
        _detach(ends)
        keeper = os.getpid()
        draft = draft_keeper.fork()
        if draft == 0:
            _run_draft(shell, ends, keeper)
        draft_keeper.keep(draft, ends)
    finally:
        os._exit(1)


def _run_draft(shell: Any, ends: ChildEnds, keeper: int) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        draft_keeper.lead(0)
        jail.follow_parent(keeper)
        close(ends.reports)
        _restore_random(ends.random)
        channel = DraftChannel(ends.results)
        _cut_off(shell)
        _use_directory(ends.directory)
        try:
            held = jail.confine(ends.directory)
        except (OSError, ValueError) as error:
            channel.send(frames.json_frame(frames.READY, {"refused": str(error)}))
        else:
            channel.send(frames.json_frame(frames.READY, {"held": held}))
            _serve(shell, ends, channel, keeper)
            code = 0
    finally:
        os._exit(code)


class DraftChannel:
    """Sends frames to the kernel. Any thread of the draft may send."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, frame: bytes) -> None:
        with self._lock:
            frames.write_all(self._fd, frame)

    def renew(self) -> None:
        """Replace the lock after a fork: a thread that was not copied may have held it."""
        self._lock = threading.Lock()

    def text(self, stream: str, text: str) -> None:
        for frame in frames.text_frames(stream, text):
            self.send(frame)

    def show(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], transient: Mapping[str, Any], up: bool
    ) -> None:
        frame = {"data": _encode_bytes(data), "metadata": metadata, "transient": transient, "update": up}
        try:
            self.send(frames.json_frame(frames.SHOW, frame))
        except FrameError as error:
            self.text("stderr", f"[an output was left out: {error}]\n")


def _serve(shell: Any, ends: ChildEnds, channel: DraftChannel, keeper: int) -> None:
    """Run code until the kernel ends. The process forks before each call. When the call fails, or is only a trial, this
    process ends and the fork continues from the state before the call."""
    fallback: Fallback | None = None
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # the interrupt arrived after the end of the code
            request = frames.read_request(ends.requests)
            if request is None:
                return
            if fallback is not None:
                fallback.reap()
            call = parse_object(request)
            fallback = Fallback.fork(ends, channel, keeper) if _may_fork(call) else None
            if fallback is not None and fallback.woke:
                fallback = None
                continue
            trial = call.get("trial") is True
            if trial and fallback is None:
                channel.send(frames.json_frame(frames.DONE, NO_TRIAL))
                continue
            if trial and "describe" in call:
                answer = _describe_data(shell, call["describe"])
            else:
                answer = _run_code(shell, str(call["code"]), channel, returns_value=call.get("value") is True)
            if trial and "names" in call:
                answer["contents"] = _describe_contents(shell, answer, call["names"])
            undone = trial or answer["status"] != "success"
            if fallback is not None and not undone:
                fallback.drop()
            channel.send(frames.json_frame(frames.DONE, answer))
            if undone:
                return


def _may_fork(call: Mapping[str, Any]) -> bool:
    return not fork_safety.unsafe_pool(fork_safety.ThreadFacts(**call["threads"]))


@dataclass(slots=True)
class Fallback:
    """The draft as it was before a call, in a process that sleeps. It ends when the call succeeds. When the call fails
    and the process that ran it has ended, the kernel wakes this process, which then takes its place. ``woke`` is True
    in the process that was woken."""

    pid: int = 0
    _pipe: int = -1

    @property
    def woke(self) -> bool:
        return self.pid == 0

    @classmethod
    def fork(cls, ends: ChildEnds, channel: DraftChannel, keeper: int) -> Fallback | None:
        """Fork. Returns in both processes; in the new process only after the kernel has woken it. Returns None when the
        system cannot create a process."""
        state, offsets = random.getstate(), _offsets()
        dropped, drop = os.pipe()
        try:
            pid = draft_keeper.fork()
        except OSError:
            close(dropped, drop)
            return None
        if pid:
            close(dropped)
            channel.send(frames.json_frame(frames.FORKED, {"pid": pid}))
            return cls(pid, drop)
        close(drop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _sleep(ends.wake, dropped)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        close(dropped)
        jail.follow_parent(keeper)
        channel.renew()
        _restore_random(state)
        # A fork shares file offsets with its parent, so the failed call may have changed them.
        for fd, offset in offsets.items():
            os.lseek(fd, offset, os.SEEK_SET)
        channel.send(frames.json_frame(frames.READY, {}))
        return cls()

    def drop(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._pipe, b".")
        close(self._pipe)

    def reap(self) -> None:
        """Reap the process of the previous call's fallback, which has exited. The caller does this at the next call and
        not at once, because the system needs time to free the memory of a large process."""
        with contextlib.suppress(OSError):
            os.waitpid(self.pid, 0)


def _sleep(wake: int, dropped: int) -> None:
    """Wait until the kernel wakes this process. ``wake`` and ``dropped`` are descriptors: a byte on ``wake`` ends the
    wait; the end of ``dropped`` means that the call has succeeded, and this process exits. It also exits when the
    kernel has ended. The end of the parent alone is no reason to exit: the kernel notices it and wakes this process."""
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(dropped, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            data = os.read(fd, 1)
            if fd == wake and data:
                return
            if fd == wake or data:
                os._exit(0)
            poll.unregister(dropped)


def _offsets() -> dict[int, int]:
    """Return the position (offset in bytes) of each open file, by descriptor."""
    offsets = {}
    for fd in range(3, MAX_FILES):
        with contextlib.suppress(OSError):
            offsets[fd] = os.lseek(fd, 0, os.SEEK_CUR)
    return offsets


def _run_code(shell: Any, code: str, channel: DraftChannel, *, returns_value: bool = False) -> dict[str, Any]:
    outcome = LiveCode(shell, StrongMark).run(code, channel.text, channel.show, returns_value=returns_value)
    sys.stdout.flush()
    sys.stderr.flush()
    return {
        "status": outcome.status,
        "text": outcome.text,
        "traceback": outcome.traceback,
        "media": list(outcome.media),
        "refused": _is_refused(shell, outcome),
        **outcome.changes._asdict(),
        **({"value": encode_draft_value(outcome.value.value)} if outcome.value else {}),
    }


def _describe_data(shell: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text of ``describe_data`` for the variables of the draft; the text is empty if this takes too long."""
    lines: list[str] = []
    with contextlib.suppress(KeyboardInterrupt):
        lines = describe_data(namespace=shell.user_ns, **options)
    return {"status": "success", "text": "\n".join(lines)}


def _describe_contents(shell: Any, answer: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return digests of variables by name: of those that the code changed, and of those in ``names`` that it
    created."""
    described = {*answer["changed"], *(set(answer["new"]) & set(names))}
    return {name: variable_digest(shell.user_ns.get(name)) for name in sorted(described)[:MAX_VARIABLES]}


def _is_refused(shell: Any, outcome: ExecutionOutcome) -> bool:
    """Return True if the code failed because it tried something that a draft does not allow."""
    result = getattr(shell, "last_execution_result", None)
    error = getattr(result, "error_in_exec", None)
    seen: set[int] = set()
    while outcome.status == "error" and isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in REFUSALS:
            return True
        if type(error).__name__ == "OperationalError" and ("readonly" in str(error) or "unable to open" in str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


# ------------------------------------------------------------------------------------------- separation from the kernel


def _detach(ends: ChildEnds) -> None:
    """Start a new session, reset signals and close the kernel's descriptors. Closed numbers are replaced by a
    descriptor that can be neither read nor written, so that nothing opened later gets the number of a former socket."""
    os.setsid()
    jail.follow_parent(ends.parent, signal.SIGTERM)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, source in enumerate((null, ends.out, ends.err)):
        os.dup2(source, fd)
    nothing = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    needed_fds = {0, 1, 2, ends.requests, ends.results, ends.reports, ends.wake, nothing}
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in needed_fds:
            with contextlib.suppress(OSError):  # os.listdir has already closed its own descriptor
                os.dup2(nothing, fd, inheritable=False)


def _restore_random(state: object) -> None:
    """Restore the random state of the kernel. A fork reseeds ``random``; with the kernel's state, code gives the
    same result in a draft as later in the kernel."""
    if isinstance(state, tuple):
        random.setstate(state)


def _cut_off(shell: Any) -> None:
    """Replace everything that uses a socket or thread of the kernel. The replacements raise an error, or write to the
    draft's own streams."""
    gc.freeze()
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    sys.stdout, sys.stderr = _open_stream(1), _open_stream(2)
    for name, stream in streams.items():
        _redirect(stream, name)
    builtins.input = getpass.getpass = _refuse_front_end
    shell.history_manager.enabled = False
    shell.system = shell.system_raw  # shell.system would need a terminal
    shell.loop_runner = _run_in_new_loop
    if (kernel := getattr(shell, "kernel", None)) is not None:
        kernel._allow_stdin = False
        kernel.session.send = _refuse_front_end
    for name in ("pre_run_cell", "post_run_cell", "pre_execute"):
        shell.events.callbacks[name] = []
    with contextlib.suppress(RuntimeError):
        asyncio.set_event_loop(None)


def _open_stream(fd: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(os.fdopen(fd, "wb", closefd=False), "utf-8", "replace", write_through=True)


def _redirect(stream: Any, name: str) -> None:
    """Make a stream object that other code still holds (a logger, for example) write to the stream that ``sys`` has
    under this name."""
    with contextlib.suppress(AttributeError, TypeError):
        stream.write = lambda text: getattr(sys, name).write(text)
        stream.flush = lambda: None


def _refuse_front_end(*_: object, **__: object) -> NoReturn:
    raise NoFrontEnd(13, NO_FRONT_END)


def _run_in_new_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a top-level await in its own event loop; the kernel's loop was not copied."""
    with asyncio.Runner() as runner:
        return runner.run(coroutine)


def _use_directory(directory: str) -> None:
    """Use ``directory`` for temporary files and for the configuration that matplotlib writes on its first import."""
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    if "matplotlib" in sys.modules:
        return
    own = os.path.join(directory, "matplotlib")
    os.makedirs(own, exist_ok=True)
    for path in _matplotlib_files():
        with contextlib.suppress(OSError):
            shutil.copy(path, own)
    os.environ["MPLCONFIGDIR"] = own


def _matplotlib_files() -> Iterator[str]:
    for below in MATPLOTLIB:
        with contextlib.suppress(OSError), os.scandir(os.path.join(os.path.expanduser("~"), below)) as entries:
            yield from (entry.path for entry in entries if entry.is_file())


def _encode_bytes(data: Mapping[str, Any]) -> dict[str, Any]:
    """Encode bytes in base64, as the kernel's own publisher does, because JSON cannot hold them."""
    return {
        mime: base64.b64encode(value).decode() if isinstance(value, bytes) else value for mime, value in data.items()
    }
