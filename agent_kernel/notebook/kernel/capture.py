"""Captures the output of code that runs in the user's kernel: streams, displayed values, figures, its traceback.

Displayed MIME bundles are sent to the notebook at once, as separate outputs; printed text is passed to a listener.
"""

from __future__ import annotations

import base64
import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.sandbox.worker import library_warnings

IMAGES = ("image/png", "image/jpeg")
MAX_KEPT = 200_000
"""Limit of printed characters that are kept; the middle of a longer text is dropped. The listener receives all of the
text."""

Listener = Callable[[str, str], None]
Show = Callable[[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], bool], None]
"""``show(data, metadata, transient, update)`` displays a MIME bundle."""


@dataclass(slots=True)
class CapturedOutput:
    """The captured output. ``values`` are texts of displayed values, ``images`` pairs of MIME type and bytes."""

    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    images: list[tuple[str, bytes]] = field(default_factory=list)
    traceback: list[str] = field(default_factory=list)
    dropped: int = 0
    size: int = 0

    def keep(self, lines: list[str], text: str) -> None:
        self.size += len(text)
        lines.append(text)
        if self.size > MAX_KEPT and len(lines) > 2:
            gone = lines.pop(len(lines) // 2)
            self.size -= len(gone)
            self.dropped += len(gone)


class Tee(io.TextIOBase):
    """Replaces ``sys.stdout`` or ``sys.stderr``: keeps the text that is written and passes it to the listener. Any
    thread may write."""

    def __init__(self, name: str, lines: list[str], captured: CapturedOutput, listener: Listener) -> None:
        super().__init__()
        self.name = name
        self._lines = lines
        self._captured = captured
        self._listener = listener
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            with self._lock:
                self._captured.keep(self._lines, text)
            self._listener(self.name, text)
        return len(text)

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]  # TextIOBase returns None; programs expect a name
        return "utf-8"


class Publisher:
    """Replaces ``shell.display_pub``: stores the bundles that the code displays and passes them on to ``show``."""

    is_publishing = False

    def __init__(self, captured: CapturedOutput, show: Show) -> None:
        self._captured = captured
        self._show = show

    def publish(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        *,
        transient: Mapping[str, Any] | None = None,
        update: bool = False,
        **_: Any,
    ) -> None:
        images = [(mime, _bytes(data[mime])) for mime in IMAGES if mime in data]
        if not update:  # all updates of one display count as one output
            self._captured.images += images
            if not images and "text/plain" in data:
                self._captured.values.append(str(data["text/plain"]))
        self._show(data, metadata or {}, transient or {}, update)

    def clear_output(self, wait: bool = False) -> None:
        """Do nothing: clearing would remove the agent's own output in this cell."""


class ValueHook:
    """Replaces ``sys.displayhook``: keeps and displays the value of the last expression."""

    def __init__(self, shell: Any, publisher: Publisher, captured: CapturedOutput, listener: Listener) -> None:
        self._shell = shell
        self._publisher = publisher
        self._captured = captured
        self._listener = listener

    def __call__(self, value: object) -> None:
        if value is None or _is_plot(value) or _is_open_figure(value):
            return
        data, metadata = self._shell.display_formatter.format(value)
        if set(data) == {"text/plain"}:
            self._captured.values.append(data["text/plain"])
            self._listener("value", data["text/plain"] + "\n")
        elif data:
            self._publisher.publish(data, metadata)


@contextlib.contextmanager
def capturing(shell: Any, listener: Listener, show: Show) -> Iterator[CapturedOutput]:
    """Capture stdout, stderr, displays, the last value and the traceback of one run; restore everything afterwards."""
    captured = CapturedOutput()
    publisher = Publisher(captured, show)
    saved = sys.stdout, sys.stderr, sys.displayhook, shell.display_pub
    own = vars(shell)
    overridden = {"_showtraceback": _keep_traceback(captured), "ask_exit": _exit_the_code}
    before = {name: own[name] for name in overridden if name in own}
    sys.stdout = Tee("stdout", captured.out, captured, listener)
    sys.stderr = Tee("stderr", captured.err, captured, listener)
    sys.displayhook = ValueHook(shell, publisher, captured, listener)
    shell.display_pub = publisher
    own.update(overridden)
    try:
        with library_warnings.install_for_run():
            yield captured
    finally:
        for name in overridden:
            own.pop(name, None)
        own.update(before)
        sys.stdout, sys.stderr, sys.displayhook, shell.display_pub = saved


def _keep_traceback(captured: CapturedOutput) -> Callable[[type[BaseException], BaseException, list[str]], None]:
    def keep(kind: type[BaseException], error: BaseException, lines: list[str]) -> None:
        captured.traceback[:] = lines

    return keep


def _exit_the_code() -> None:
    """End the model's code, not the user's kernel, on ``exit()`` and ``quit()``."""
    raise SystemExit("exit")


def _is_plot(value: object) -> bool:
    """Return True for objects that calls of matplotlib return, such as lines and axes. Their text is not shown, because
    the figure itself is displayed."""
    item = value[0] if isinstance(value, list | tuple) and value else value
    return type(item).__module__.startswith("matplotlib.") and not hasattr(type(item), "savefig")


def _is_open_figure(value: object) -> bool:
    """Return True for an open figure: the inline backend displays it when the code ends, so displaying it as a value
    would show it twice.
    """
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or type(value).__module__ != "matplotlib.figure" or "inline" not in pyplot.get_backend():
        return False
    return any(pyplot.figure(number) is value for number in pyplot.get_fignums())


def _bytes(data: Any) -> bytes:
    return data if isinstance(data, bytes) else base64.b64decode(data)
