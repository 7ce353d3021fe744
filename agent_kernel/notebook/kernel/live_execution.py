"""Runs the model's code in the user's kernel: in the main thread and the user's namespace, interruptible."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, NamedTuple

from agent_kernel.core.messages import figures_note, shorten
from agent_kernel.notebook.kernel.capture import CapturedOutput, Listener, Show, capturing
from agent_kernel.notebook.kernel.changed_names import NameChanges, NamespaceSnapshot, StrongMark
from agent_kernel.notebook.kernel.program_value import ProgramValue, recording_value
from agent_kernel.notebook.kernel.python_syntax import to_plain_python
from agent_kernel.notebook.kernel.row_number_replacement import with_row_values
from agent_kernel.notebook.kernel.variable_fingerprints import WeakMark
from agent_kernel.sandbox.worker.error_hints import describe_error
from agent_kernel.sandbox.worker.library_warnings import short_text
from agent_kernel.sandbox.worker.missing_imports import missing_imports

RESULT_CHARS = 4_000
MAX_IMAGES = 8
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class ExecutionOutcome(NamedTuple):
    """The result of a run. ``text`` is for the model, ``traceback`` for the user. ``media`` are ``{mime, data}`` with
    data in base64. ``changes`` lists changed variables. ``value`` is the value that the program ends with, if it was
    requested and the program has one. ``needs_kernel`` means that the code failed because it tried something that the
    kernel allows, but a draft does not."""

    status: str
    text: str
    traceback: str
    media: tuple[dict[str, str], ...]
    interrupted: bool
    changes: NameChanges = NameChanges()
    value: ProgramValue | None = None
    needs_kernel: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of variables the code created or changed."""
        return (*self.changes.new, *self.changes.changed)


class LiveCode:
    """Runs code like a cell, but without an execution number or history. ``mark`` creates the objects by which a
    NamespaceSnapshot recognises values."""

    def __init__(self, shell: Any, mark: Callable[[object], StrongMark | WeakMark] = WeakMark) -> None:
        self._shell = shell
        self._mark = mark
        self._loop: asyncio.AbstractEventLoop | None = None

    def prepare_code(self, code: str) -> str:
        """Return the code that will run: ``code``, preceded by the imports that it needs but lacks."""
        return "\n".join([*missing_imports(to_plain_python(self._shell, code), self._shell.user_ns), code])

    def run(self, code: str, listener: Listener, show: Show, *, returns_value: bool = False) -> ExecutionOutcome:
        """Run code. Its errors are in the result; an interrupt ends it with the status "interrupted". With
        ``returns_value`` the result of a successful run has the value that the program ends with."""
        before = NamespaceSnapshot(self._shell.user_ns, self._shell.user_ns_hidden, self._mark)
        values: list[ProgramValue] = []
        recording = recording_value(self._shell, values) if returns_value else contextlib.nullcontext()
        with (
            capturing(self._shell, listener, show) as captured,
            interruptible() as interrupt,
            self._awaiting(),
            recording,
        ):
            try:
                result = self._shell.run_cell(code, store_history=False)
                error = result.error_before_exec or result.error_in_exec
            except (KeyboardInterrupt, RecursionError, MemoryError) as raised:
                error = raised  # an interrupt after the code ended but before its report, or code that nests too deeply
        plain = to_plain_python(self._shell, code)
        changes = before.changes(self._shell.user_ns, plain)
        outcome = _outcome(captured, error, interrupted=interrupt.is_set())
        outcome = outcome._replace(text=with_row_values(plain, outcome.text, self._shell.user_ns))
        value = values[0] if values and outcome.status == "success" else None
        return outcome._replace(changes=changes, value=value)

    def call(
        self, function: Callable[..., Any], arguments: Mapping[str, Any], listener: Listener, show: Show
    ) -> ExecutionOutcome:
        """Call a function of the user, awaiting it if it is async. A returned string is the result text; any other
        value is displayed as a cell displays it."""
        value, error = None, None
        with capturing(self._shell, listener, show) as captured, interruptible() as interrupt:
            try:
                value = function(**arguments)
                if asyncio.iscoroutine(value):
                    value = self._run_apart(value)
                if type(value) is str:
                    captured.values.append(value)
                else:
                    sys.displayhook(value)
            except BaseException as raised:  # noqa: BLE001  whatever the code raises is its outcome
                error = raised
        return _outcome(captured, error, interrupted=interrupt.is_set())

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()

    @contextlib.contextmanager
    def _awaiting(self) -> Iterator[None]:
        """Run top-level await in a second event loop of this thread, because the kernel's own loop is busy with the
        running cell."""
        outer = asyncio._get_running_loop()
        if outer is None:
            yield
            return
        before = self._shell.loop_runner
        self._shell.loop_runner = self._run_apart
        try:
            yield
        finally:
            self._shell.loop_runner = before

    def _run_apart(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        self._loop = self._loop or asyncio.new_event_loop()
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
            raise
        finally:
            asyncio._set_running_loop(outer)


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Let SIGINT raise KeyboardInterrupt in the executed code, whatever handler is installed. Yields an event that
    SIGINT sets and that stays set even if the code catches the exception."""
    hit = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield hit
        return

    def raise_interrupt(number: int, frame: object) -> None:
        hit.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, raise_interrupt)
    try:
        yield hit
    finally:
        signal.signal(signal.SIGINT, before)


def _outcome(captured: CapturedOutput, error: BaseException | None, *, interrupted: bool) -> ExecutionOutcome:
    interrupted = interrupted or isinstance(error, KeyboardInterrupt)
    status = "interrupted" if interrupted else "error" if error else "success"
    media = tuple(
        {"mime": mime, "data": base64.b64encode(data).decode()} for mime, data in captured.images[:MAX_IMAGES]
    )
    return ExecutionOutcome(status, _model_text(captured, error), _user_text(captured, error), media, interrupted)


def _model_text(captured: CapturedOutput, error: BaseException | None) -> str:
    """Return the text for the model: output, values, figures and, at the end, hints about the error and the error
    itself. The text is never empty."""
    left_out = f"[{captured.dropped} characters of output were dropped]" if captured.dropped else ""
    parts = ["".join(captured.out).rstrip(), "".join(captured.err).rstrip(), *captured.values, left_out]
    parts += [figures_note(len(captured.images)), *((describe_error(error), _short_traceback(error)) if error else ())]
    return shorten("\n".join(part for part in parts if part) or "(no output)", RESULT_CHARS)


def _short_traceback(error: BaseException) -> str:
    """Return the frames in the model's code and the exception. Frames inside libraries do not help a model."""
    if isinstance(error, SystemExit):
        return "SystemExit: the code ended itself; the kernel continues."
    frames = [
        f"  line {frame.lineno}, in {frame.name}\n    {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and not os.path.exists(frame.filename)
    ]
    raised = "".join(traceback.format_exception_only(error)).rstrip()
    if isinstance(error, Warning):
        raised = f"{type(error).__name__}: {short_text(str(error))}"
    return "\n".join(["Traceback (most recent call last):", *frames, raised] if frames else [raised])


def _user_text(captured: CapturedOutput, error: BaseException | None) -> str:
    if isinstance(error, SystemExit):
        return _short_traceback(error)
    return ANSI.sub("", "\n".join(captured.traceback)) or (_short_traceback(error) if error else "")
