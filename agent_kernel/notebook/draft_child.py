"""What runs in the fork: the person's kernel as it was, cut off from everything, running one piece of code at a time.

The process is a copy of one thread of a kernel. It must not use the kernel's sockets, its other threads, or anything
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
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from agent_kernel.notebook import draft_frames as frames
from agent_kernel.notebook import draft_jail
from agent_kernel.notebook.changed_names import Held
from agent_kernel.notebook.live import LiveCode, Outcome

REFUSALS = {1, 13, 30}
"""EPERM, EACCES, EROFS."""
NO_FRONT_END = "a draft has no connection to the notebook: widgets, input and comms need your kernel"
MATPLOTLIB = (".cache/matplotlib", ".config/matplotlib")
"""In the home directory: its list of fonts, which takes seconds to make, and the person's settings."""


@dataclass(frozen=True, slots=True)
class Ends:
    """File descriptors of the child: requests come in, frames go out; ``out`` and ``err`` take what is written past
    Python. ``directory`` is where it may write."""

    requests: int
    results: int
    out: int
    err: int
    directory: str
    parent: int
    random: object


class NoFrontEnd(PermissionError):
    """Something asked for the person or the page."""


def become_draft(shell: Any, ends: Ends) -> NoReturn:
    """Right after the fork, in the child. Never returns."""
    code = 1
    try:
        _detach(ends)
        _give_back_random(ends.random)
        channel = Channel(ends.results)
        _cut_off(shell)
        _own_directory(ends.directory)
        try:
            held = draft_jail.confine(ends.directory)
        except (OSError, ValueError) as error:
            channel.send(frames.of_json(frames.READY, {"refused": str(error)}))
        else:
            channel.send(frames.of_json(frames.READY, {"held": held}))
            _serve(shell, ends.requests, channel)
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


def _serve(shell: Any, requests: int, channel: Channel) -> None:
    while True:
        with contextlib.suppress(KeyboardInterrupt):  # it came when the code had ended already
            request = frames.read_frame(requests)
            if request is None:
                return
            channel.send(frames.of_json(frames.DONE, _ran(shell, str(frames.mapping(request[1])["code"]), channel)))


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
    draft_jail.follow_parent(ends.parent)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, source in enumerate((null, ends.out, ends.err)):
        os.dup2(source, fd)
    nothing = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)
    kept = {0, 1, 2, ends.requests, ends.results, nothing}
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
