"""What runs in the fork: the person's kernel as it was, cut off from everything, running one piece of code at a time.

Three processes at most: the keeper, the draft, and while a call runs the draft as it was before that call.

Each process is a copy of one thread of a kernel. It must not use the kernel's sockets, its other threads, or anything
that waits for them; it ends by ``os._exit``, so that nothing of the kernel is flushed, closed or said goodbye to twice.
"""

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
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from agent_kernel.notebook.draft import fork_safety, jail
from agent_kernel.notebook.draft import framing as frames
from agent_kernel.notebook.draft import keeper as draft_keeper
from agent_kernel.notebook.draft.keeper import Ends, close
from agent_kernel.notebook.kernel.changed_names import Held
from agent_kernel.notebook.kernel.live_execution import LiveCode, Outcome

MAX_FILES = 256
"""Descriptors whose offsets a failed call gives back."""
REFUSALS = {1, 13, 30}
"""EPERM, EACCES, EROFS."""
NO_FRONT_END = "a draft has no connection to the notebook: widgets, input and comms need your kernel"
MATPLOTLIB = (".cache/matplotlib", ".config/matplotlib")
"""In the home directory: its list of fonts, which takes seconds to make, and the person's settings."""


class NoFrontEnd(PermissionError):
    """Something asked for the person or the page."""


def become_draft(shell: Any, ends: Ends) -> NoReturn:
    """Right after the fork, in the child, which becomes the keeper of the draft: the parent of the process that runs
    code, and of what that leaves behind. The keeper runs no code of the agent. Never returns."""
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


def _run_draft(shell: Any, ends: Ends, keeper: int) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        draft_keeper.lead(0)
        jail.follow_parent(keeper)
        close(ends.reports)
        _give_back_random(ends.random)
        channel = Channel(ends.results)
        _cut_off(shell)
        _own_directory(ends.directory)
        try:
            held = jail.confine(ends.directory)
        except (OSError, ValueError) as error:
            channel.send(frames.of_json(frames.READY, {"refused": str(error)}))
        else:
            channel.send(frames.of_json(frames.READY, {"held": held}))
            _serve(shell, ends, channel, keeper)
            code = 0
    finally:
        os._exit(code)


class Channel:
    """Frames to the kernel; any thread of the draft may send."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, frame: bytes) -> None:
        with self._lock:
            frames.write_all(self._fd, frame)

    def renew(self) -> None:
        """After a fork: a thread that was not copied may have held the lock."""
        self._lock = threading.Lock()

    def text(self, stream: str, text: str) -> None:
        for frame in frames.of_text(stream, text):
            self.send(frame)

    def show(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], transient: Mapping[str, Any], up: bool
    ) -> None:
        shown = {"data": _texts(data), "metadata": metadata, "transient": transient, "update": up}
        try:
            self.send(frames.of_json(frames.SHOW, shown))
        except frames.BadFrame as error:
            self.text("stderr", f"[an output was left out: {error}]\n")


def _serve(shell: Any, ends: Ends, channel: Channel, keeper: int) -> None:
    """Runs code until the kernel is gone. Before each call the process forks: when the call fails, this process ends,
    and the fork goes on from here as if the call had not been."""
    fallback: Fallback | None = None
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # it came when the code had ended already
            request = frames.read_frame(ends.requests)
            if request is None:
                return
            if fallback is not None:
                fallback.bury()
            asked = frames.mapping(request[1])
            fallback = Fallback.fork(ends, channel, keeper) if _may_fork(asked) else None
            if fallback is not None and fallback.woke:
                fallback = None
                continue
            answer = _ran(shell, str(asked["code"]), channel)
            failed = answer["status"] != "success"
            if fallback is not None and not failed:
                fallback.drop()
            channel.send(frames.of_json(frames.DONE, answer))
            if failed:
                return


def _may_fork(asked: Mapping[str, Any]) -> bool:
    return not fork_safety.unsafe_to_fork_again(fork_safety.Threads(**asked["threads"]))


@dataclass(slots=True)
class Fallback:
    """The draft as it was before a call, in a process that sleeps. It ends when the call has succeeded, and takes the
    place of its parent, which has ended then, when the kernel wakes it. ``woke``: this is that process."""

    pid: int = 0
    _pipe: int = -1

    @property
    def woke(self) -> bool:
        return self.pid == 0

    @classmethod
    def fork(cls, ends: Ends, channel: Channel, keeper: int) -> Fallback | None:
        """Returns in both processes, in the new one when it was woken. None where the system has no room for it."""
        state, offsets = random.getstate(), _offsets()
        dropped, drop = os.pipe()
        try:
            pid = draft_keeper.fork()
        except OSError:
            close(dropped, drop)
            return None
        if pid:
            close(dropped)
            channel.send(frames.of_json(frames.FORKED, {"pid": pid}))
            return cls(pid, drop)
        close(drop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _sleep(ends.wake, dropped)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        close(dropped)
        jail.follow_parent(keeper)
        channel.renew()
        _give_back_random(state)
        for fd, offset in offsets.items():  # processes that share a descriptor share where it stands
            os.lseek(fd, offset, os.SEEK_SET)
        channel.send(frames.of_json(frames.READY, {}))
        return cls()

    def drop(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._pipe, b".")
        close(self._pipe)

    def bury(self) -> None:
        """Some time after ``drop``: giving much memory back takes the system a while."""
        with contextlib.suppress(OSError):
            os.waitpid(self.pid, 0)


def _sleep(wake: int, dropped: int) -> None:
    """Returns when the kernel wakes this process; ends it when the call has succeeded, or the kernel is gone. The end
    of the parent alone means neither: the kernel will notice it."""
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
    """Where the files that are open stand."""
    found = {}
    for fd in range(3, MAX_FILES):
        with contextlib.suppress(OSError):
            found[fd] = os.lseek(fd, 0, os.SEEK_CUR)
    return found


def _ran(shell: Any, code: str, channel: Channel) -> dict[str, Any]:
    outcome = LiveCode(shell, Held).run(code, channel.text, channel.show)
    sys.stdout.flush()
    sys.stderr.flush()
    return {
        "status": outcome.status,
        "text": outcome.text,
        "traceback": outcome.traceback,
        "media": list(outcome.media),
        "refused": _refused(shell, outcome),
        "new": outcome.changes.new,
        "changed": outcome.changes.changed,
        "deleted": outcome.changes.deleted,
    }


def _refused(shell: Any, outcome: Outcome) -> bool:
    """Whether the code failed for want of something that a draft does not give."""
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


# ---------------------------------------------------------------------------------------------------- cutting off


def _detach(ends: Ends) -> None:
    """A session and signals of its own, and no descriptor of the kernel's: their numbers stay taken by something that
    can be neither read nor written, so that nothing opened later is mistaken for a socket of before."""
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
    kept = {0, 1, 2, ends.requests, ends.results, ends.reports, ends.wake, nothing}
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd not in kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.dup2(nothing, fd, inheritable=False)


def _give_back_random(state: object) -> None:
    """A fork seeds ``random`` anew; with the kernel's state the code gives what it will give when it runs for real."""
    if isinstance(state, tuple):
        random.setstate(state)


def _cut_off(shell: Any) -> None:
    """Whatever would go through a socket or a thread of the kernel fails, or goes to the draft's own streams."""
    gc.freeze()
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    sys.stdout, sys.stderr = _written_to(1), _written_to(2)
    for name, stream in streams.items():
        _redirect(stream, name)
    builtins.input = getpass.getpass = _nobody
    shell.history_manager.enabled = False
    shell.system = shell.system_raw  # the other way needs a terminal
    shell.loop_runner = _apart
    if (kernel := getattr(shell, "kernel", None)) is not None:
        kernel._allow_stdin = False
        kernel.session.send = _nobody
    for name in ("pre_run_cell", "post_run_cell", "pre_execute"):
        shell.events.callbacks[name] = []
    with contextlib.suppress(RuntimeError):
        asyncio.set_event_loop(None)


def _written_to(fd: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(os.fdopen(fd, "wb", closefd=False), "utf-8", "replace", write_through=True)


def _redirect(stream: Any, name: str) -> None:
    """Whoever holds the kernel's stream (a logger, for example) writes to what stands in its place now."""
    with contextlib.suppress(AttributeError, TypeError):
        stream.write = lambda text: getattr(sys, name).write(text)
        stream.flush = lambda: None


def _nobody(*_: object, **__: object) -> NoReturn:
    raise NoFrontEnd(13, NO_FRONT_END)


def _apart(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Top-level await: the kernel's own loop stayed behind."""
    with asyncio.Runner() as runner:
        return runner.run(coroutine)


def _own_directory(directory: str) -> None:
    """Temporary files go there, and what matplotlib wants to write when it is imported for the first time."""
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    if "matplotlib" in sys.modules:
        return
    own = os.path.join(directory, "matplotlib")
    os.makedirs(own, exist_ok=True)
    for path in _of_matplotlib():
        with contextlib.suppress(OSError):
            shutil.copy(path, own)
    os.environ["MPLCONFIGDIR"] = own


def _of_matplotlib() -> Iterator[str]:
    for below in MATPLOTLIB:
        with contextlib.suppress(OSError), os.scandir(os.path.join(os.path.expanduser("~"), below)) as entries:
            yield from (entry.path for entry in entries if entry.is_file())


def _texts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes of pictures can not travel in JSON; the kernel's own publisher would encode them too."""
    return {
        mime: base64.b64encode(value).decode() if isinstance(value, bytes) else value for mime, value in data.items()
    }
