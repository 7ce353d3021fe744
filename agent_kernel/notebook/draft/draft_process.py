"""The kernel's side of a draft: starts it, sends it code, reads its output and ends it. Data from the draft is not
trusted."""

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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from agent_kernel.core.wire.framing import FrameDecoder, FrameError, parse_object
from agent_kernel.notebook.draft import framing as frames
from agent_kernel.notebook.draft import jail
from agent_kernel.notebook.draft.child_process import become_draft
from agent_kernel.notebook.draft.draft_keeper import ChildEnds, close, fork
from agent_kernel.notebook.draft.fork_safety import ThreadFacts
from agent_kernel.notebook.draft.hang_detector import HangDetector, excess_of_disk, list_group_processes, parent_of
from agent_kernel.sandbox.jail import visible_paths

START_S = 20.0
TIMEOUT_S = 600.0
"""Time limit of one call in seconds. Code that takes longer should run in the kernel itself."""
GRACE_S = 3.0
END_S = 3.0
LOOK_S = 1.0
CHUNK = 1 << 16
BESIDE_CHARS = 4_000
MAX_LEFT = 1000
"""Maximum number of output chunks to read and discard after a process ended. A pipe can contain sixteen chunks."""
PREFIX = "agent-draft-"
"""Prefix of temporary directories; the process id of the kernel follows."""
MAX_SHOWN = 96 << 20
"""Limit in bytes of pictures and values displayed per call; the others are left out."""

OnText: TypeAlias = Callable[[str, str], None]
OnShow: TypeAlias = Callable[[Mapping[str, Any]], None]


class DraftEnded(Exception):
    """The process that ran a call has ended. ``str()`` gives the reason for the model and the user. ``restored``
    means that the draft continues from the state before the call."""

    def __init__(self, reason: str, *, hung: bool = False, timeout: bool = False) -> None:
        super().__init__(reason)
        self.hung = hung
        self.timeout = timeout
        self.restored = False


class DraftProcess:
    """A running draft, created by ``start``. Runs one call at a time, from the kernel's main thread. ``pid`` is the
    process that runs code, or 0 when the draft has ended."""

    def __init__(self, keeper: int, ends: _KernelEnds, directory: str) -> None:
        self.pid = 0
        self.directory = directory
        self._keeper = keeper
        self._group = 0
        self._asleep = 0
        self._ends = ends
        self._raw = dict(ends.raw)
        self._decoders = {fd: codecs.getincrementaldecoder("utf-8")("replace") for fd in self._raw}
        self._frames = FrameDecoder(frames.MAX_FRAME)
        self._reports = FrameDecoder(frames.MAX_FRAME)
        self._status: int | None = None
        self._beside = ""

    @classmethod
    def start(cls, shell: Any) -> DraftProcess:
        """Fork the kernel. Raises DraftEnded when the fork or its jail fails."""
        _sweep()
        directory = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        pipes = [os.pipe() for _ in range(6)]
        (requests_in, requests), (results, results_out), (out, out_in), (err, err_in), (wake_in, wake) = pipes[:5]
        reports, reports_out = pipes[5]
        theirs = (requests_in, results_out, out_in, err_in, reports_out, wake_in)
        for_draft = ChildEnds(*theirs, directory, os.getpid(), random.getstate())
        try:
            with visible_paths.examining_once():
                # The draft needs these listings too. It finds them in its memory, which is a copy of this process's
                # memory.
                jail.readable_paths()
                keeper = fork()
                if keeper == 0:
                    become_draft(shell, for_draft)
        except OSError as error:
            close(*itertools.chain(*pipes))
            shutil.rmtree(directory, ignore_errors=True)
            raise DraftEnded(f"the kernel cannot be copied: {error.strerror}") from error
        close(*theirs)
        ends = _KernelEnds(requests, results, reports, wake, {out: "stdout", err: "stderr"})
        draft = cls(keeper, ends, directory)
        try:
            draft._begin()
        except BaseException:
            draft.end()
            raise
        return draft

    def run(
        self,
        code: str,
        on_text: OnText,
        on_show: OnShow,
        timeout_s: float = TIMEOUT_S,
        *,
        stopped: Callable[[], bool] = lambda: False,
        trial: Mapping[str, Any] | None = None,
        returns_value: bool = False,
    ) -> dict[str, Any]:
        """Run code and return its result. ``beside`` in the result is output that did not pass through Python's
        streams, for example output of C code. With ``returns_value`` the result has a copy of the value that the
        program ends with.

        A failed call leaves the draft in the state before the call. A ``trial`` leaves it in that state in any case. If
        ``trial`` has the key ``names``, the result describes the variables that the code changed, and those in
        ``names`` that it created. If it has the key ``describe``, ``describe_data`` is called with the value as
        arguments and no code runs. If the state could not be restored, the draft has ended and the result has ``lost``
        True. Raises DraftEnded if the process ended during the call. A keyboard interrupt ends the call. ``stopped``
        returns True after an interrupt, because Python ignores a KeyboardInterrupt that is raised in a finalizer.
        """
        try:
            request: dict[str, Any] = {"code": code, "threads": ThreadFacts.of(self.pid)._asdict()}
            if returns_value:
                request["value"] = True
            if trial is not None:
                request |= {"trial": True, **trial}
            frames.write_all(self._ends.requests, frames.json_frame(frames.RUN, request))
            answer = self._answer(frames.DONE, on_text, on_show, timeout_s, stopped)
        except FrameError as error:
            self.end()
            raise DraftEnded(f"the output of the draft cannot be read: {error}") from error
        except OSError as error:
            self.end()
            raise DraftEnded(str(error)) from error
        except DraftEnded as error:
            error.restored = not error.hung and self._restore()
            if not error.restored:
                self.end()
            raise
        except KeyboardInterrupt:
            self._restore()
            raise
        except BaseException:
            self.end()
            raise
        undone = answer.get("kept") is not True and (trial is not None or answer.get("status") != "success")
        return {**answer, "lost": undone and not self._restore()}

    def end(self) -> None:
        """Kill the draft and everything it started, and remove its files. Does nothing if it has ended."""
        if self._keeper == 0:
            return
        with contextlib.suppress(OSError):
            os.kill(self._keeper, signal.SIGTERM)
        if not _reap(self._keeper, END_S):
            for pid, kill in ((self._group or self._keeper, os.killpg), (self._keeper, os.kill)):
                with contextlib.suppress(OSError):
                    kill(pid, signal.SIGKILL)
            _reap(self._keeper, END_S)
        self.pid = self._keeper = 0
        close(*self._ends.all(), *self._raw)
        self._raw = {}
        shutil.rmtree(self.directory, ignore_errors=True)

    def _begin(self) -> None:
        """Wait until the draft runs in its jail. Raises DraftEnded."""
        while not self._group:
            if not select.select([self._ends.reports], [], [], START_S)[0]:
                raise DraftEnded("the copy of the kernel did not start", timeout=True)
            self._read_reports()
        self.pid = self._group
        ready = self._answer(frames.READY, lambda stream, text: None, lambda shown: None, START_S)
        if refused := ready.get("refused"):
            raise DraftEnded(f"the copy of the kernel cannot be jailed: {refused}")

    def _restore(self) -> bool:
        """End the process of a failed call and everything it started, and wake the sleeping fallback, the draft from
        before the call. Returns False if there is no fallback or it cannot continue; the draft has then ended."""
        asleep, self._asleep = self._asleep, 0
        try:
            if asleep == 0 or not self._wait_for_end():
                raise DraftEnded("nothing of it was kept")
            for pid in set(list_group_processes(self._group)) - {asleep}:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if parent_of(asleep) != self._keeper:
                raise DraftEnded("the process that it named does not belong to this draft")
            # Files are not rolled back, so every later call would exceed the limit too.
            if excess := excess_of_disk(self.directory):
                raise DraftEnded(excess)
            self._forget_output()
            self.pid, self._status = asleep, None
            os.write(self._ends.wake, b".")
            self._answer(frames.READY, lambda stream, text: None, lambda shown: None, START_S)
        except (DraftEnded, FrameError, OSError):
            self.end()
            return False
        except BaseException:
            self.end()
            raise
        return True

    def _wait_for_end(self) -> bool:
        """Kill the process that runs code. Returns True if its end is reported within END_S. Raises DraftEnded."""
        deadline = time.monotonic() + END_S
        while self._status is None and time.monotonic() < deadline:
            self._signal(signal.SIGKILL)
            if select.select([self._ends.reports], [], [], LOOK_S)[0]:
                self._read_reports()
        return self._status is not None

    def _signal(self, number: int) -> None:
        """Send signal ``number`` to the process that runs code. Its id is not reused: only the keeper can reap it."""
        if self._status is None and parent_of(self.pid) == self._keeper:
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    def _read_reports(self) -> None:
        """Read the keeper's reports about starts and ends of processes. Raises DraftEnded when the keeper has ended."""
        data = os.read(self._ends.reports, CHUNK)
        if not data:
            raise DraftEnded("it ended")
        for _, body in self._reports.feed(data):
            report = parse_object(body)
            self._group = report.get("began", self._group)
            if report.get("ended") == self.pid:
                self._status = report["status"]

    def _forget_output(self) -> None:
        """Discard output that an ended process left in its pipes."""
        self._frames = FrameDecoder(frames.MAX_FRAME)
        for _ in range(MAX_LEFT):
            ready = select.select([self._ends.results, *self._raw], [], [], 0)[0]
            if not ready:
                return
            for fd in ready:
                os.read(fd, CHUNK)

    def _answer(
        self,
        reply_kind: bytes,
        on_text: OnText,
        on_show: OnShow,
        timeout_s: float,
        stopped: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """Read output until a frame of kind ``reply_kind`` arrives, and return its body. Raises DraftEnded and
        KeyboardInterrupt."""
        watch = HangDetector(self.pid, self._group, self.directory, jail.MEMORY_MB)
        rounds = _Rounds(watch, timeout_s)
        self._beside = ""
        displayed_bytes = 0
        while True:
            ended = self._status
            fds = [self._ends.results, *self._raw, *([self._ends.reports] if ended is None else [])]
            ready = select.select(fds, [], [], LOOK_S if ended is None else 0)[0]
            for kind, body in self._read(ready, on_text):
                if kind == reply_kind:
                    self._drain_raw(on_text)
                    late = {"status": "timeout"} if rounds.stopping else {}
                    return {**parse_object(body), **late, "beside": self._beside}
                if kind == frames.FORKED:
                    self._asleep = watch.asleep = _pid(parse_object(body))
                displayed_bytes += len(body) if kind == frames.SHOW else 0
                if kind == frames.SHOW and displayed_bytes <= MAX_SHOWN:
                    on_show(parse_object(body))
            if ended is not None and self._ends.results not in ready:
                raise DraftEnded(_describe_end(ended))
            if self._ends.reports in ready:
                self._read_reports()
            if stopped():
                raise KeyboardInterrupt
            if rounds.must_stop(has_output=bool(ready)):
                self._signal(signal.SIGINT)

    def _read(self, ready: list[int], on_text: OnText) -> Iterator[tuple[bytes, bytes]]:
        """Yield (kind, body) of frames, except printed text, which goes to ``on_text`` in one piece per stream. Raises
        DraftEnded at the end of the process."""
        for fd in ready:
            if fd in self._raw:
                self._raw_text(fd, on_text)
        if self._ends.results not in ready:
            return
        data = os.read(self._ends.results, CHUNK)
        if not data:
            self._wait_for_end()
            raise DraftEnded(_describe_end(self._status or 0))
        try:
            received = self._frames.feed(data)
        except FrameError as error:
            raise DraftEnded(f"the output of the draft cannot be read: {error}") from error
        for kind, bodies in itertools.groupby(received, key=operator.itemgetter(0)):
            if (stream := frames.STREAMS.get(kind)) is not None:
                on_text(stream, b"".join(body for _, body in bodies).decode(errors="replace"))
            else:
                yield from bodies

    def _raw_text(self, fd: int, on_text: OnText) -> None:
        """Pass on output written by C code or by programs the code started."""
        data = os.read(fd, CHUNK)
        if text := self._decoders[fd].decode(data):
            self._beside = (self._beside + text)[-BESIDE_CHARS:]
            on_text(self._raw[fd], text)
        if not data:
            os.close(fd)
            del self._raw[fd]

    def _drain_raw(self, on_text: OnText) -> None:
        while ready := select.select([*self._raw], [], [], 0)[0]:
            for fd in ready:
                self._raw_text(fd, on_text)


class _KernelEnds(NamedTuple):
    """The kernel's ends of the pipes. ``raw`` maps the descriptors of unstructured output to "stdout" or "stderr"."""

    requests: int
    results: int
    reports: int
    wake: int
    raw: Mapping[int, str]

    def all(self) -> tuple[int, ...]:
        return self.requests, self.results, self.reports, self.wake


def _pid(body: Mapping[str, Any]) -> int:
    """Return the process id the draft reports. ``_restore`` checks that it belongs to the draft."""
    pid = body.get("pid")
    return pid if isinstance(pid, int) and pid > 1 else 0


def _reap(pid: int, within_s: float) -> bool:
    """Wait up to ``within_s`` seconds for a child and reap it. Returns True if it has ended."""
    deadline, pause = time.monotonic() + within_s, 0.001
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
        except OSError:
            return True  # other code has already reaped it
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    return False


def _describe_end(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"it was ended by {signal.Signals(-code).name}" if code < 0 else "it ended itself"


def _sweep() -> None:
    """Remove the temporary directories of drafts whose kernels were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            if pid.isdigit() and not Path("/proc", pid).exists() and path.lstat().st_uid == os.getuid():
                shutil.rmtree(path, ignore_errors=True)


class _Rounds:
    """Checks the time limit, the limits of resources, and whether the draft hangs, during one call."""

    def __init__(self, watch: HangDetector, timeout_s: float) -> None:
        self._watch = watch
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._looked = time.monotonic()
        self.stopping = False

    def must_stop(self, *, has_output: bool) -> bool:
        """Return whether the caller should interrupt the code now: True once, when the time limit has passed.
        ``has_output`` says whether output has arrived since the last call. Raises DraftEnded if the process has to be
        killed, because it hangs, uses too much, or did not stop after the interrupt."""
        now = time.monotonic()
        if has_output:
            self._watch.note_activity()
        if now - self._looked >= LOOK_S / 2:
            self._looked = now
            if excess := self._watch.excess():
                raise DraftEnded(excess)
            if not has_output and self._watch.hangs():
                raise DraftEnded("it hung: it waits for a thread of your kernel, which a copy does not have", hung=True)
        if now > self._deadline + GRACE_S:
            raise DraftEnded(f"it took longer than {self._timeout_s:g} s and did not stop", timeout=True)
        if now <= self._deadline or self.stopping:
            return False
        self.stopping = True
        return True
