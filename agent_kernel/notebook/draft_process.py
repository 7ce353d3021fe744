"""The fork as its kernel sees it: started, given code, listened to, ended. What comes from it is not trusted."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import operator
import os
import random
import select
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from agent_kernel.notebook import draft_frames as frames
from agent_kernel.notebook.draft_child import Ends, become_draft
from agent_kernel.notebook.draft_watch import Watch

START_S = 20.0
TIMEOUT_S = 600.0
"""Of one call; code that takes longer is for the kernel itself."""
GRACE_S = 3.0
LOOK_S = 1.0
CHUNK = 1 << 16
BESIDE_CHARS = 4_000
PREFIX = "agent-draft-"
"""Of the temporary directories; the number of the kernel's process follows."""
MAX_SHOWN = 96 << 20
"""Bytes of pictures and values of one call; more of them are left out."""

OnText: TypeAlias = Callable[[str, str], None]
OnShow: TypeAlias = Callable[[Mapping[str, Any]], None]


class DraftEnded(Exception):
    """The process is gone; ``str()`` says why, in words for a model and a person."""

    def __init__(self, reason: str, *, hung: bool = False, timeout: bool = False) -> None:
        super().__init__(reason)
        self.hung = hung
        self.timeout = timeout


class DraftProcess:
    """Made by ``start``. One call at a time, from the kernel's main thread."""

    def __init__(self, pid: int, requests: int, results: int, raw: Mapping[int, str], directory: str) -> None:
        self.pid = pid
        self.directory = directory
        self._requests = requests
        self._results = results
        self._raw = dict(raw)
        self._decoders = {fd: codecs.getincrementaldecoder("utf-8")("replace") for fd in raw}
        self._frames = frames.Frames()
        self._beside = ""

    @classmethod
    def start(cls, shell: Any) -> DraftProcess:
        """Forks. Raises DraftEnded when that, or the jail around it, is not possible."""
        _sweep()
        directory = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        pipes = [os.pipe() for _ in range(4)]
        (their_requests, requests), (results, their_results), (out, their_out), (err, their_err) = pipes
        ends = Ends(their_requests, their_results, their_out, their_err, directory, os.getpid(), random.getstate())
        try:
            pid = _forked(shell, ends)
        except OSError as error:
            for fd in (fd for pair in pipes for fd in pair):
                os.close(fd)
            shutil.rmtree(directory, ignore_errors=True)
            raise DraftEnded(f"the kernel can not be copied: {error.strerror}") from error
        for fd in (their_requests, their_results, their_out, their_err):
            os.close(fd)
        draft = cls(pid, requests, results, {out: "stdout", err: "stderr"}, directory)
        try:
            ready = draft._answer(frames.READY, lambda stream, text: None, lambda shown: None, START_S)
        except BaseException:
            draft.end()
            raise
        if refused := ready.get("refused"):
            draft.end()
            raise DraftEnded(f"the copy of the kernel can not be jailed: {refused}")
        return draft

    def run(
        self,
        code: str,
        on_text: OnText,
        on_show: OnShow,
        timeout_s: float = TIMEOUT_S,
        *,
        stopped: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """What the call ended with, and ``beside``: what was written past Python. Raises DraftEnded when the process
        did not survive it; an interrupt ends it, also one that ``stopped`` tells of: what an interrupt raises is lost
        when it hits a finalizer."""
        try:
            frames.write_all(self._requests, frames.of_json(frames.RUN, {"code": code}))
            return self._answer(frames.DONE, on_text, on_show, timeout_s, stopped)
        except frames.BadFrame as error:
            self.end()
            raise DraftEnded(f"what it sent can not be read: {error}") from error
        except OSError as error:
            raise DraftEnded(self._how_it_ended() or str(error)) from error
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Kills it and all that it started, and takes its files away. Harmless when it has ended."""
        if self.pid == 0:
            return
        for _ in range(3):  # a process that was being made escapes one signal, not the next
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(self.pid, 0)
        self._close()

    def _close(self) -> None:
        self.pid = 0
        for fd in (self._requests, self._results, *self._raw):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._raw = {}
        shutil.rmtree(self.directory, ignore_errors=True)

    def _answer(
        self,
        wanted: bytes,
        on_text: OnText,
        on_show: OnShow,
        timeout_s: float,
        stopped: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        rounds = _Rounds(Watch(self.pid, self.directory), timeout_s)
        self._beside = ""
        shown = 0
        while True:
            ready = select.select([self._results, *self._raw], [], [], LOOK_S)[0]
            for kind, body in self._read(ready, on_text):
                if kind == wanted:
                    self._rest(on_text)
                    late = {"status": "timeout"} if rounds.stopping else {}
                    return {**frames.mapping(body), **late, "beside": self._beside}
                shown += len(body) if kind == frames.SHOW else 0
                if kind == frames.SHOW and shown <= MAX_SHOWN:
                    on_show(frames.mapping(body))
            if stopped():
                raise KeyboardInterrupt
            if rounds.must_stop(heard=bool(ready)):
                os.kill(self.pid, signal.SIGINT)

    def _read(self, ready: list[int], on_text: OnText) -> Iterator[tuple[bytes, bytes]]:
        """Printed text goes out in one piece for each stream. Raises DraftEnded at the end of the process."""
        for fd in ready:
            if fd != self._results:
                self._raw_text(fd, on_text)
        if self._results not in ready:
            return
        data = os.read(self._results, CHUNK)
        if not data:
            raise DraftEnded(self._how_it_ended())
        try:
            found = self._frames.feed(data)
        except frames.BadFrame as error:
            raise DraftEnded(f"what it sent can not be read: {error}") from error
        for kind, bodies in itertools.groupby(found, key=operator.itemgetter(0)):
            if (stream := frames.STREAMS.get(kind)) is not None:
                on_text(stream, b"".join(body for _, body in bodies).decode(errors="replace"))
            else:
                yield from bodies

    def _raw_text(self, fd: int, on_text: OnText) -> None:
        """Written by C code or by programs that the code started."""
        data = os.read(fd, CHUNK)
        if text := self._decoders[fd].decode(data):
            self._beside = (self._beside + text)[-BESIDE_CHARS:]
            on_text(self._raw[fd], text)
        if not data:
            os.close(fd)
            del self._raw[fd]

    def _rest(self, on_text: OnText) -> None:
        while ready := select.select([*self._raw], [], [], 0)[0]:
            for fd in ready:
                self._raw_text(fd, on_text)

    def _how_it_ended(self) -> str:
        try:
            _, status = os.waitpid(self.pid, 0)
        except OSError:
            return "it ended"
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)
        self._close()
        if code < 0:
            return f"it was ended by {signal.Signals(-code).name}"
        return "it ended itself"


def _sweep() -> None:
    """What kernels that were killed left behind."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not Path("/proc", pid).exists() and path.lstat().st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)


class _Rounds:
    """The time of one call: what is looked at now and then, and when it is over."""

    def __init__(self, watch: Watch, timeout_s: float) -> None:
        self._watch = watch
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._looked = time.monotonic()
        self.stopping = False

    def must_stop(self, *, heard: bool) -> bool:
        """True once, when the time is over. Raises DraftEnded when it has to be ended."""
        now = time.monotonic()
        if heard:
            self._watch.alive()
        if now - self._looked >= LOOK_S / 2:
            self._looked = now
            if excess := self._watch.excess():
                raise DraftEnded(excess)
            if not heard and self._watch.hangs():
                raise DraftEnded("it hung: it waits for a thread of your kernel, which a copy does not have", hung=True)
        if now > self._deadline + GRACE_S:
            raise DraftEnded(f"it took longer than {self._timeout_s:g} s and did not stop", timeout=True)
        if now <= self._deadline or self.stopping:
            return False
        self.stopping = True
        return True


def _forked(shell: Any, ends: Ends) -> int:
    with warnings.catch_warnings():
        # Python warns of what is true: the other threads are not copied. What waits for them is watched for.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        become_draft(shell, ends)
    return pid
