"""What runs inside the jail: one persistent namespace in which the agent's code is executed, run by run.

Standard library only and self-contained. Frames on the protocol channel are ``kind (1 byte) | length (4 bytes, big
endian) | body``: J = a JSON object, B = the bytes that the J frame before it announced. Output goes to file
descriptors 1 and 2, so that C code and child processes are heard as well.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.abc
import importlib.machinery
import io
import json
import linecache
import os
import signal
import socket
import struct
import symtable
import sys
import threading
import traceback
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

READY_MADE = {
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib.pyplot",
    **{name: name for name in ("math", "json", "re", "os", "csv", "datetime", "sys", "random", "statistics")},
}
"""Names that need no import, bound when code first mentions them: pandas costs its time only where it is used."""
BACKEND = "agent_kernel_figures"
MAX_ERROR = 20_000


def main(fd: int, workdir: str, limits: Mapping[str, int], layers: Mapping[str, Any]) -> None:
    """Serves runs until the channel ends."""
    channel = Channel(fd)
    _settle(workdir)
    worker = Worker(channel, limits)
    channel.send({"type": "ready", "pid": os.getpid(), "layers": layers})
    while True:
        request = channel.receive()
        if request is None:
            return
        worker.run(str(request["code"]), int(request["id"]))


def refuse(fd: int, reason: str, layers: Mapping[str, Any]) -> None:
    """Says why there will be no worker."""
    Channel(fd).send({"type": "refused", "reason": reason, "layers": layers})


def _settle(workdir: str) -> None:
    os.chdir(workdir)
    os.environ.update(
        HOME=workdir,
        TMPDIR="/tmp" if os.access("/tmp", os.W_OK) else workdir,
        MPLCONFIGDIR=os.path.join(workdir, ".cache", "matplotlib"),
        XDG_CACHE_HOME=os.path.join(workdir, ".cache"),
        MPLBACKEND=f"module://{BACKEND}",
        # Each thread of these reserves tens of MB of address space, which is limited.
        OPENBLAS_NUM_THREADS="1",
        OMP_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        MALLOC_ARENA_MAX="2",
    )
    sys.dont_write_bytecode = True
    sys.argv = [""]
    sys.stdin = NoInput()
    warnings.filterwarnings("ignore", message=".*non-interactive.*")


class Channel:
    """The only writer to the server; children of a fork are not heard."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._run = 0

    def send(self, body: Mapping[str, Any], data: bytes | None = None) -> None:
        """What belongs to a run that has ended (a thread that it left behind) is dropped."""
        if os.getpid() != self._owner:
            return
        frames = _frame(b"J", json.dumps(body).encode())
        with self._lock:
            if body.get("id", self._run) != self._run:
                return
            self._run = 0 if body["type"] == "done" else self._run
            self._socket.sendall(frames if data is None else frames + _frame(b"B", data))

    def receive(self) -> dict[str, Any] | None:
        head = self._exactly(5)
        if head is None:
            return None
        body = self._exactly(struct.unpack(">I", head[1:])[0])
        if body is None:
            return None
        request: dict[str, Any] = json.loads(body)
        self._run = int(request["id"])
        return request

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            data = self._socket.recv(size - len(parts))
            if not data:
                return None
            parts += data
        return bytes(parts)


def _frame(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body)) + body


class NoInput(io.TextIOBase):
    """Standard input of code that nobody can answer."""

    def readable(self) -> bool:
        return True

    def readline(self, size: int | None = -1, /) -> str:  # type: ignore[override]  # always raises
        raise RuntimeError("input() is not available here: nobody can type an answer. Put the value into the code.")

    def read(self, size: int | None = -1, /) -> str:
        return self.readline()

    def close(self) -> None: ...


class Worker:
    """One run at a time; the namespace is a real module named ``__main__``, so that pickle and dataclasses work."""

    def __init__(self, channel: Channel, limits: Mapping[str, int]) -> None:
        self._channel = channel
        self._limits = limits
        self._pid = os.getpid()
        self._running = False
        self._kept = {fd: os.dup(fd) for fd in (1, 2)}
        self._module = types.ModuleType("__main__")
        self._namespace = self._module.__dict__
        self._namespace["__builtins__"] = builtins
        sys.modules["__main__"] = self._module
        self._figures = Figures(self._media, limits["figures"])
        sys.meta_path.append(self._figures)
        builtins.display = self._display  # type: ignore[attr-defined]  # as in a notebook
        self._id = 0
        self._shown = 0

    def run(self, code: str, number: int) -> None:
        self._id, self._shown = number, 0
        self._fresh_streams()
        signal.signal(signal.SIGINT, self._interrupt)
        status, value, error = "success", None, None
        try:
            try:
                self._running = True
                value = self._execute(code, f"<run {number}>")
            finally:
                self._running = False
        except BaseException as problem:  # noqa: BLE001 - whatever the code raises is its result
            self._running = False
            status, error = _outcome(problem)
        if os.getpid() != self._pid:
            os._exit(0)  # a child that the code forked came back here
        self._finish(status, value, error)

    def _finish(self, status: str, value: str | None, error: str | None) -> None:
        try:
            self._figures.flush()
        except Exception as problem:  # noqa: BLE001 - drawing failed: the run stands, the reason is shown
            sys.stderr.write(f"A figure could not be drawn: {type(problem).__name__}: {problem}" + "\n")
        _sane_frames()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        body = {"type": "done", "id": self._id, "status": status, "value": value, "error": error}
        self._channel.send(body)

    def _execute(self, code: str, filename: str) -> str | None:
        lines = code.splitlines(keepends=True)
        linecache.cache[filename] = (len(code), None, lines, filename)
        tree = ast.parse(code, filename)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        self._provide(code, filename)
        exec(compile(tree, filename, "exec", dont_inherit=True), self._namespace)
        if not isinstance(last, ast.Expr):
            return None
        value = eval(compile(ast.Expression(last.value), filename, "eval", dont_inherit=True), self._namespace)
        if value is None:
            return None
        self._namespace["_"] = value
        return self._present(value)

    def _provide(self, code: str, filename: str) -> None:
        for name in _free_names(symtable.symtable(code, filename, "exec")):
            if name in READY_MADE and name not in self._namespace:
                try:
                    self._namespace[name] = importlib.import_module(READY_MADE[name])
                except ModuleNotFoundError:
                    continue  # not installed: the code gets its NameError
        _sane_frames()

    def _present(self, value: Any) -> str:
        _sane_frames()
        picture = _picture(value)
        if picture is not None:
            self._media("image/png", picture)
        return _cut(repr(value), self._limits["value_chars"])

    def _display(self, *values: Any) -> None:
        """Shows values as a notebook would."""
        for value in values:
            _sane_frames()
            picture = _picture(value) or self._figures.picture(value)
            if picture is None:
                sys.stdout.write(_cut(repr(value), self._limits["value_chars"]) + "\n")
            else:
                self._media("image/png", picture)

    def _media(self, mime: str, data: bytes) -> None:
        if len(data) > self._limits["figure_mb"] << 20 or self._shown >= self._limits["figures"]:
            sys.stderr.write("An image was not shown: too large, or too many in this run." + "\n")
            return
        self._shown += 1
        self._channel.send({"type": "media", "id": self._id, "mime": mime, "size": len(data)}, data)

    def _fresh_streams(self) -> None:
        """Standard output and error as they were, whatever the last run did to them."""
        for fd, kept in self._kept.items():
            os.dup2(kept, fd)
        sys.stdout, sys.stderr = _stream(1), _stream(2)

    def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
        if self._running and os.getpid() == self._pid:
            raise KeyboardInterrupt


class Figures(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The matplotlib backend, made when matplotlib asks for it: Agg, whose ``show`` hands the open figures over as PNG,
    as in a notebook."""

    def __init__(self, media: Callable[[str, bytes], None], limit: int) -> None:
        self._media = media
        self._limit = limit

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(BACKEND, self) if fullname == BACKEND else None

    def exec_module(self, module: types.ModuleType) -> None:
        agg = importlib.import_module("matplotlib.backends.backend_agg")
        module.__dict__.update(FigureCanvas=agg.FigureCanvas, FigureManager=agg.FigureManager, show=self.show)

    def show(self, *args: Any, **kwargs: Any) -> None:
        self.flush()

    def flush(self) -> None:
        """Every open figure in the order of creation, then all are closed, also when one could not be drawn."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        try:
            for number in pyplot.get_fignums()[: self._limit]:
                self._media("image/png", _png(pyplot.figure(number)))
        finally:
            pyplot.close("all")

    def picture(self, value: Any) -> bytes | None:
        """``value`` drawn and closed if it is a figure."""
        figure = sys.modules.get("matplotlib.figure")
        if figure is None or not isinstance(value, figure.Figure):
            return None
        sys.modules["matplotlib.pyplot"].close(value)
        return _png(value)


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100, bbox_inches="tight")
    return buffer.getvalue()


def _picture(value: Any) -> bytes | None:
    """PNG of a value that can draw itself (PIL images and others that follow IPython's display protocol)."""
    try:
        data = type(value)._repr_png_(value)
    except Exception:  # noqa: BLE001 - a value that can not be drawn has its repr
        return None
    return data if isinstance(data, bytes) and data.startswith(b"\x89PNG\r\n\x1a\n") else None


def _stream(fd: int) -> io.TextIOWrapper:
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw, 8192), "utf-8", "backslashreplace", line_buffering=True)


def _free_names(table: symtable.SymbolTable) -> set[str]:
    """Names that the code reads and nowhere binds: looked up globally in some scope, not assigned at the top."""
    bound = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    found: set[str] = set()
    scopes = [table]
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        top = scope is table
        found |= {s.get_name() for s in scope.get_symbols() if s.is_referenced() and (top or s.is_global())}
    return found - bound


def _sane_frames() -> None:
    """Tables are shown wide enough to be read and short enough for a model, unless the code chose otherwise."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "set_option") or getattr(pandas, "_agent_kernel_seen", False):
        return
    pandas._agent_kernel_seen = True  # type: ignore[attr-defined]
    for option, usual, value in (("width", 80, 120), ("max_columns", 0, 20), ("max_rows", 60, 30)):
        if pandas.get_option(f"display.{option}") in (usual, 20):
            pandas.set_option(f"display.{option}", value)


def _outcome(problem: BaseException) -> tuple[str, str | None]:
    """(status, what a person would see)."""
    if isinstance(problem, SystemExit):
        if problem.code in (None, 0):
            return "success", None
        return "error", f"SystemExit: {problem.code} (the session goes on)"
    try:
        text = _traceback(problem)
    except Exception:  # noqa: BLE001 - an exception whose own repr fails, or no stack left to format it
        text = type(problem).__name__
    return ("interrupted" if isinstance(problem, KeyboardInterrupt) else "error"), _cut(text, MAX_ERROR)


def _traceback(problem: BaseException) -> str:
    shown = traceback.TracebackException.from_exception(problem, compact=True)
    _only_their_frames(shown, set())
    return "".join(shown.format()).rstrip()


def _only_their_frames(shown: traceback.TracebackException, seen: set[int]) -> None:
    """Frames of the code itself and of modules in the work directory; the libraries' own are left out."""
    if id(shown) in seen:
        return
    seen.add(id(shown))
    workdir = os.environ.get("HOME", "") + os.sep
    kept = [frame for frame in shown.stack if frame.filename.startswith(("<run ", workdir))]
    shown.stack = traceback.StackSummary.from_list(kept)
    for other in (shown.__cause__, shown.__context__, *(getattr(shown, "exceptions", None) or ())):
        if other is not None:
            _only_their_frames(other, seen)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"
