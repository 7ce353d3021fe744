"""Executes the agent's code inside the jail, run by run, in one persistent namespace.

This module, and everything of this package that it imports, use the standard library only. Output goes to file
descriptors 1 and 2.
"""

from __future__ import annotations

import ast
import builtins
import faulthandler
import hashlib
import importlib.metadata
import io
import json
import linecache
import os
import signal
import socket
import sys
import threading
import types
import warnings
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.wire.framing import encode_frame, encode_head, read_body
from agent_kernel.sandbox.worker import cpu_limit, library_warnings, rich_display, traceback_filter, variable_transfer
from agent_kernel.sandbox.worker.figures import BACKEND, Figures
from agent_kernel.sandbox.worker.import_hooks import AfterImport
from agent_kernel.sandbox.worker.missing_imports import missing_imports
from agent_kernel.sandbox.worker.shell_script import Script

MAX_LENGTH = (1 << 32) - 1


def main(fd: int, workdir: str, limits: Mapping[str, int], layers: Mapping[str, Any]) -> None:
    """Run the requests of the server until the channel ends. ``fd`` is the descriptor of the channel."""
    channel = WorkerChannel(fd)
    _settle(workdir)
    worker = CodeWorker(channel, workdir, limits)
    channel.send({"type": "ready", "pid": os.getpid(), "layers": layers})
    while (request := channel.receive()) is not None:
        worker.serve(request)


def refuse(fd: int, reason: str, layers: Mapping[str, Any]) -> None:
    """Send the ``reason`` why the worker cannot start to the server."""
    WorkerChannel(fd).send({"type": "refused", "reason": reason, "layers": layers})


def _settle(workdir: str) -> None:
    """Prepare the process for the agent's code: directories, environment and warnings."""
    os.chdir(workdir)
    os.environ.update(
        HOME=workdir,
        TMPDIR="/tmp" if os.access("/tmp", os.W_OK) else workdir,
        MPLCONFIGDIR=os.path.join(workdir, ".cache", "matplotlib"),
        XDG_CACHE_HOME=os.path.join(workdir, ".cache"),
        MPLBACKEND=f"module://{BACKEND}",
        # Each thread of these libraries reserves tens of MB of address space, which is limited.
        OPENBLAS_NUM_THREADS="1",
        OMP_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        MALLOC_ARENA_MAX="2",
    )
    sys.dont_write_bytecode = True
    sys.argv = [""]
    warnings.filterwarnings("ignore", message=".*non-interactive.*")
    library_warnings.install()


class CodeWorker:
    """Runs code, one run at a time. The namespace is a real module named ``__main__``, so that pickle and
    dataclasses work."""

    def __init__(self, channel: WorkerChannel, workdir: str, limits: Mapping[str, int]) -> None:
        self._channel = channel
        self._limits = limits
        self._pid = os.getpid()
        self._running = False
        self._streams = Streams()
        self._script = Script(workdir, os.environ)
        self._module = types.ModuleType("__main__")
        self._namespace = self._module.__dict__
        self._namespace["__builtins__"] = builtins
        sys.modules["__main__"] = self._module
        self._figures = Figures(self._media, limits["figures"], limits["figure_mb"] << 20)
        hooks = self._figures.hooks() | {"plotly.basedatatypes": self._follow_plotly}
        sys.meta_path.insert(0, AfterImport(hooks, {BACKEND: self._figures.backend}))
        builtins.display = self._display  # type: ignore[attr-defined]  # as in a notebook
        builtins.packages = packages  # type: ignore[attr-defined]
        faulthandler.enable(2)
        self._id = 0
        self._shown = 0
        self._seen: set[bytes] = set()

    def serve(self, request: Mapping[str, Any]) -> None:
        """Run one request to its end and answer it exactly once, whatever the code does."""
        self._id, self._shown = int(request["id"]), 0
        self._seen.clear()
        self._streams.renew()
        self._figures.begin()
        signal.signal(signal.SIGINT, self._interrupt)
        answer: dict[str, Any] = {"status": "success", "value": None, "error": None}
        try:
            try:
                self._running = True
                answer |= self._answer_request(request)
            finally:
                self._running = False
        except BaseException as problem:  # noqa: BLE001 - whatever the code raises is its result
            self._running = False
            answer["status"], answer["error"] = traceback_filter.outcome(problem)
        if os.getpid() != self._pid:
            os._exit(0)  # a child that the code forked has returned here
        self._finish(answer)

    def _answer_request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        match request["type"]:
            case "take":
                return self._take(str(request["name"]))
            case "variables":
                variables = variable_transfer.list_variables(self._namespace)
                self._channel.send({"type": "variables", "id": self._id, "variables": variables})
                return {}
        code, cpu_s = str(request["code"]), float(request["cpu_s"])
        if request["kind"] == "shell":
            code_ = self._script.run(code, cpu_s=cpu_s, grace_s=0.8 * float(request["grace_s"]), calm=self._calm)
            return {"status": "error" if code_ else "success", "exit_code": code_}
        try:
            variable_transfer.give(self._namespace, request.get("given", ()))
        except variable_transfer.NotCopied as problem:
            return {"status": "error", "error": str(problem)}
        with cpu_limit.limit_cpu(cpu_s):
            return {"value": self._execute(code, f"<run {self._id}>")}

    def _take(self, name: str) -> Mapping[str, Any]:
        try:
            encoding, kind, data = variable_transfer.take(self._namespace, name)
        except LookupError:
            return {"status": "error", "error": None}
        except variable_transfer.NotCopied as problem:
            return {"status": "error", "error": str(problem)}
        body = {"type": "variable", "id": self._id, "encoding": encoding, "of": kind, "size": len(data)}
        self._channel.send(body, data)
        return {}

    def _finish(self, answer: Mapping[str, Any]) -> None:
        try:
            try:
                self._running = True  # drawing may take long, so it can be interrupted too
                self._figures.end()
            finally:
                self._running = False
        except BaseException as problem:  # noqa: BLE001 - drawing runs code of libraries; the result of the run stands
            self._running = False
            self._complain(f"A figure could not be drawn: {type(problem).__name__}: {problem}")
        rich_display.sane_frames()
        self._streams.flush()
        self._channel.send({"type": "done", "id": self._id, **answer})

    def _execute(self, code: str, filename: str) -> str | None:
        lines = code.splitlines(keepends=True)
        linecache.cache[filename] = (len(code), None, lines, filename)
        tree = ast.parse(code, filename)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        self._provide(code)
        exec(compile(tree, filename, "exec", dont_inherit=True), self._namespace)
        if not isinstance(last, ast.Expr):
            return None
        value = eval(compile(ast.Expression(last.value), filename, "eval", dont_inherit=True), self._namespace)
        if value is None:
            return None
        self._namespace["_"] = value
        return self._present(value)

    def _provide(self, code: str) -> None:
        """Import the modules that ``code`` uses but does not import."""
        for line in missing_imports(code, self._namespace):
            exec(line, self._namespace)
        rich_display.sane_frames()

    def _present(self, value: Any) -> str:
        text = rich_display.text_of(value, self._limits["value_chars"])
        if not self._figures.draw(value):
            self._show_media(value)
        return text

    def _display(self, *values: Any) -> None:
        """Display values as a notebook does."""
        for value in values:
            if not self._figures.draw(value):
                seen = self._show_media(value)
                if not seen.startswith("image/"):
                    sys.stdout.write(rich_display.text_of(value, self._limits["value_chars"]) + "\n")

    def _show_media(self, value: Any) -> str:
        """Send the picture, table or chart of a value, if it has one. Returns its MIME type, or "" if there is none."""
        try:
            medium = rich_display.media_of(value)
        except Exception as problem:  # noqa: BLE001 - a value that cannot be drawn has its text
            self._complain(f"It could not be shown as a chart: {type(problem).__name__}: {problem}")
            return ""
        if medium is None:
            return ""
        self._media(*medium)
        return medium[0]

    def _media(self, mime: str, data: bytes) -> None:
        """Send a picture, table or chart to the server. If the same bytes occur again in a run, they are not sent
        again."""
        digest = hashlib.sha256(data).digest()
        if digest in self._seen:
            return
        self._seen.add(digest)
        if len(data) > self._limits["figure_mb"] << 20 or self._shown >= self._limits["figures"]:
            self._complain("An image was not shown: too large, or too many in this run.")
            return
        self._shown += 1
        self._channel.send({"type": "media", "id": self._id, "mime": mime, "size": len(data)}, data)

    def _follow_plotly(self, module: types.ModuleType) -> None:
        """Change Plotly so that ``show`` displays the figure here and does not search for a browser."""
        module.__dict__["BaseFigure"].show = lambda this, *args, **kwargs: self._display(this)

    def _complain(self, text: str) -> None:
        sys.stderr.write(text + "\n")

    def _calm(self) -> None:
        self._running = False

    def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
        if self._running and os.getpid() == self._pid:
            raise KeyboardInterrupt


# Sends and receives frames on the worker's side of the protocol. Runs inside the jail: standard library only.
#
# A frame of kind J is a JSON object; a frame of kind B contains the bytes that the preceding J frame announced.
# Frames from the server are trusted, so only the format limits their size.


class WorkerChannel:
    """Writes all messages of the worker to the server; no other object may write to the channel. Messages from forked
    child processes are dropped."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._run = 0

    def send(self, body: Mapping[str, Any], data: bytes | None = None) -> None:
        """Send a message of the current run. Messages of an ended run (from a thread it left behind) are dropped."""
        if os.getpid() != self._owner:
            return
        frames = encode_frame(json.dumps(body).encode(), b"J")
        with self._lock:
            if body.get("id", self._run) != self._run:
                return
            self._run = 0 if body["type"] == "done" else self._run
            self._socket.sendall(frames if data is None else frames + encode_head(len(data), b"B"))
            if data is not None:
                self._socket.sendall(data)

    def receive(self) -> dict[str, Any] | None:
        """Read the next request with the data of its variables. Returns None at the end of file."""
        body = self._read(b"J")
        if body is None:
            return None
        request: dict[str, Any] = json.loads(body)
        for variable in request.get("given", ()):
            variable["data"] = self._read(b"B")
        self._run = int(request["id"])
        return request

    def _read(self, kind: bytes) -> bytearray | None:
        return read_body(self._socket.recv_into, MAX_LENGTH, kind)


# Provides the standard input, output and error of jailed code, and restores them for every run. Standard library
# only.


class NoInput(io.TextIOBase):
    """Standard input of the jailed code, which raises an error because nobody can type an answer."""

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # always raises
        raise RuntimeError("input() is not available here: nobody can type an answer. Put the value into the code.")

    def read(self, size: int | None = -1, /) -> str:
        return self.readline()

    def close(self) -> None: ...


class Streams:
    """Standard output and error, which write to the file descriptors 1 and 2, so that output of C code and child
    processes is captured too.
    """

    def __init__(self) -> None:
        self._kept = {fd: os.dup(fd) for fd in (1, 2)}
        sys.stdin = NoInput()

    def renew(self) -> None:
        """Restore the streams, whatever the last run did to them."""
        for fd, copy in self._kept.items():
            os.dup2(copy, fd)
        sys.stdout, sys.stderr = _stream(1), _stream(2)

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                continue


def _stream(fd: int) -> io.TextIOWrapper:
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw, 8192), "utf-8", "backslashreplace", line_buffering=True)


# Lists the packages installed for jailed code, on request. Standard library only.


class Packages(list[str]):
    """Entries of the form ``name version``, which are displayed one on each line."""

    def __repr__(self) -> str:
        return "\n".join(self) or "(none)"


def packages(match: str = "") -> Packages:
    """Return the installed packages whose names contain ``match``, ignoring case; without ``match`` all of them. More
    packages cannot be installed here.
    """
    pattern = match.lower().replace("_", "-")
    lines = {
        f"{name} {distribution.version}"
        for distribution in importlib.metadata.distributions()
        if (name := distribution.name) and pattern in name.lower().replace("_", "-")
    }
    return Packages(sorted(lines, key=str.lower))
