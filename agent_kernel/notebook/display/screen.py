"""Defines the screens on which a turn is displayed: the outputs of a notebook cell, or lines of a terminal."""

from __future__ import annotations

import html
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from agent_kernel.notebook.display.media_bundle import media_bundle
from agent_kernel.notebook.display.render import (
    QUIET,
    Bundle,
    Card,
    TurnSummary,
    joined_line,
    line_bundle,
    reasoning_bundle,
    text_bundle,
)
from agent_kernel.notebook.display.rich_screen import rich_screen
from agent_kernel.notebook.display.terminal_escape import PartialText, printable
from agent_kernel.notebook.kernel.front_end import is_jupyter_console

INTERVAL_S = 0.1
CHARS_PER_SECOND = 100_000
"""Limit for the characters sent per second. Each update sends the whole text, so long texts are updated less often: a
text of 50,000 characters twice a second."""
ROWS = re.compile(r"The result:\n\n(?P<rows> {4}[^\n]*(?:\n {4}[^\n]*)*)\n?")
"""Matches a whole answer that consists of rows."""
MORE = re.compile(r"^ *\.\.\. \d+ more rows$", re.MULTILINE)
"""Matches the line that stands for the rows that the answer leaves out."""
ABOVE = "The result is the table above."


class Screen(Protocol):
    """The interface of a display of one turn. The display is a sequence of segments, such as one output of a cell each.
    Every call starts a new segment below the previous ones; ``text`` and ``reasoning`` extend the last segment if it is
    of the same kind."""

    def text(self, delta: str) -> None: ...

    def reasoning(self, delta: str) -> None: ...

    def card(self, card: Card) -> None:
        """Show a card, or update the card if it is already shown."""
        ...

    def image(self, mime: str, data: str, alt: str) -> None: ...

    def status(self, text: str) -> None:
        """Show the reason why the turn waits. The next output replaces this line."""
        ...

    def line(self, text: str, details: str = "") -> None:
        """Show one line. ``details`` is folded below the line; on a screen that cannot fold, it follows in the same
        line."""
        ...

    def show(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], transient: Mapping[str, Any], update: bool
    ) -> None:
        """Show a MIME bundle that code in the user's kernel displayed. The bundle is not changed."""
        ...

    def summary(self, summary: TurnSummary) -> None: ...

    def flush(self, *, force: bool = False) -> None:
        """Send the updates that are due, or with ``force`` all pending updates."""
        ...

    def flush_from_thread(self, card: Card) -> None:
        """Send new output of a card from another thread, while the main thread is busy."""
        ...


class OutputSegment:
    """One output of a cell. Whenever it has grown, its whole content is sent again, at most every INTERVAL_S
    seconds."""

    def __init__(self, publisher: Any, bundle: Callable[[], Bundle], display_id: str = "") -> None:
        self.bundle = bundle
        self.display_id = display_id or secrets.token_hex(8)
        self._publisher = publisher
        self._shown = bool(display_id)
        self._sent = 0.0
        self._pause = 0.0
        self._dirty = False
        # While the model's code runs in the main thread, the thread of the claim sends updates that are due. The lock
        # is reentrant, because an interrupt may occur while the main thread holds it.
        self._lock = threading.RLock()

    def touch(self, *, force: bool = False) -> None:
        self._dirty = True
        self.flush(force=force)

    def flush(self, *, force: bool = False) -> None:
        with self._lock:
            if self._dirty and (force or time.monotonic() - self._sent >= self._pause):
                self._send()

    def flush_from_thread(self) -> None:
        """Send the pending update from another thread. Does nothing if the main thread is sending at the moment."""
        if self._lock.acquire(blocking=False):
            try:
                if self._dirty:
                    self._send()
            finally:
                self._lock.release()

    def _send(self) -> None:
        self._dirty = False
        bundle = self.bundle()
        transient = {"display_id": self.display_id}
        self._publisher.publish(bundle, {}, transient=transient, update=self._shown)
        self._shown, self._sent = True, time.monotonic()
        self._pause = max(INTERVAL_S, len(bundle["text/plain"]) / CHARS_PER_SECOND)


class CellScreen:
    """Displays a turn in the outputs of one cell. ``render`` converts the text of the answer received so far to a MIME
    bundle. With the default ``render``, an answer that repeats a table of the cell is displayed as a reference to the
    table."""

    def __init__(self, publisher: Any, render: Callable[[str], Bundle] = text_bundle) -> None:
        self._publisher = publisher
        self._render = self._render_text if render is text_bundle else render
        self._tables: list[str] = []
        self._kind = ""
        self._received: list[str] = []
        self._current: OutputSegment | None = None
        self._cards: dict[str, OutputSegment] = {}
        self._waiting: OutputSegment | None = None

    def text(self, delta: str) -> None:
        self._grow("text", delta, lambda: self._render("".join(self._received)))

    def reasoning(self, delta: str) -> None:
        self._grow("reasoning", delta, lambda: reasoning_bundle("".join(self._received), is_open=True))

    def card(self, card: Card) -> None:
        segment = self._cards.get(card.call)
        if segment is None and card.corrects is not None and card.corrects.call in self._cards:
            segment = self._cards[card.call] = self._cards.pop(card.corrects.call)
            segment.bundle = card.bundle
        if segment is None:
            self._end()
            segment = self._cards[card.call] = self._segment(card.bundle)
        segment.touch(force=card.state != "running" or not card.output)

    def image(self, mime: str, data: str, alt: str) -> None:
        bundle = media_bundle(mime, data, alt)
        self._tables.append(table_text(bundle))
        self._publish_once(bundle)

    def status(self, text: str) -> None:
        if self._kind:
            self._end()
        if self._waiting is None:
            self._waiting = OutputSegment(self._publisher, lambda: line_bundle(text))
        self._waiting.bundle = lambda: line_bundle(text)
        self._waiting.touch()

    def line(self, text: str, details: str = "") -> None:
        self._publish_once(line_bundle(text, details))

    def show(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], transient: Mapping[str, Any], update: bool
    ) -> None:
        self._end()
        self._tables.append(table_text(dict(data)))
        self._publisher.publish(dict(data), dict(metadata), transient=dict(transient), update=update)

    def summary(self, summary: TurnSummary) -> None:
        self._publish_once(summary.bundle())

    def flush(self, *, force: bool = False) -> None:
        for segment in (self._current, self._waiting, *self._cards.values()):
            if segment is not None:
                segment.flush(force=force)

    def flush_from_thread(self, card: Card) -> None:
        if segment := self._cards.get(card.call):
            segment.flush_from_thread()

    def _render_text(self, text: str) -> Bundle:
        return repetition_bundle(text) if repeats_table(text, self._tables) else text_bundle(text)

    def _grow(self, kind: str, delta: str, bundle: Callable[[], Bundle]) -> None:
        if self._kind != kind or self._current is None:
            self._end()
            self._kind, self._received = kind, []
            self._current = self._segment(bundle)
        self._received.append(delta)
        self._current.touch()

    def _publish_once(self, bundle: Bundle) -> None:
        self._end()
        self._segment(lambda: bundle).touch(force=True)

    def _segment(self, bundle: Callable[[], Bundle]) -> OutputSegment:
        """Start a segment. It takes the place of the line that says why the turn waits, so that no empty output
        remains."""
        waiting, self._waiting = self._waiting, None
        return OutputSegment(self._publisher, bundle, waiting.display_id if waiting else "")

    def _end(self) -> None:
        """Send the rest of the open segment and collapse reasoning."""
        if self._current is not None:
            text = "".join(self._received)
            final = reasoning_bundle(text, is_open=False) if self._kind == "reasoning" else self._render(text)
            self._current.bundle = lambda: final
            self._current.touch(force=True)
        self._kind, self._current, self._received = "", None, []


class TerminalScreen:
    """Prints lines as they arrive, without styles: for pipes, files, and terminals that cannot erase lines."""

    def __init__(self) -> None:
        self._out = sys.stdout  # kept here, because ``sys.stdout`` is replaced while the model's code runs
        self._kind = ""
        self._growing = PartialText()
        self._printed: dict[str, tuple[str, int]] = {}

    def text(self, delta: str) -> None:
        self._open("text")
        self._out.write(self._growing.add(delta))

    def reasoning(self, delta: str) -> None:
        if self._kind != "reasoning":
            self._open("reasoning")
            self._out.write("[reasoning] ")
        self._out.write(self._growing.add(delta))

    def card(self, card: Card) -> None:
        """Print the parts of the card that are new: its code, its output, its state."""
        self._open("")
        state, printed = self._printed.get(card.call, ("", 0))
        if not state:
            self._write(f"{card.bundle()['text/plain']}\n")
        elif len(card.output) > printed:
            self._write(card.output[printed:] if card.state == "running" else card.output[printed:].rstrip() + "\n")
        if state and state != card.state:
            self._write(f"[{card.title}]\n")
        self._printed[card.call] = card.state, len(card.output)

    def image(self, mime: str, data: str, alt: str) -> None:
        self.line(f"[{alt}]")

    def status(self, text: str) -> None:
        """Do nothing: printed lines cannot be removed."""

    def line(self, text: str, details: str = "") -> None:
        self._open("")
        self._write(f"{joined_line(text, details)}\n")

    def show(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], transient: Mapping[str, Any], update: bool
    ) -> None:
        if not update:
            self.line(str(data.get("text/plain", "")))

    def summary(self, summary: TurnSummary) -> None:
        self.line(f"({summary.line})")

    def flush(self, *, force: bool = False) -> None:
        self._out.flush()

    def flush_from_thread(self, card: Card) -> None:
        """Do nothing: lines are printed when they arrive."""

    def _open(self, kind: str) -> None:
        if self._kind and self._kind != kind:
            self._out.write(f"{self._growing.end()}\n")
        self._kind = kind

    def _write(self, text: str) -> None:
        self._out.write(printable(text))


def screen_for(shell: Any, render: Callable[[str], Bundle] = text_bundle) -> Screen:
    """Return the screen of the running cell. The screen keeps the shell's current display publisher, because the
    shell's publisher is replaced while the model's code runs. In ``jupyter console`` the screen prints lines, because
    the console ignores updates of an output."""
    if getattr(shell, "kernel", None) is not None:
        return TerminalScreen() if is_jupyter_console() else CellScreen(shell.display_pub, render)
    return rich_screen(markdown=render is text_bundle) or TerminalScreen()


# Recognizes an answer that only repeats a table which the same cell displays.
#
# If a question asks for rows, the answer of a small model consists of the rows of the output (``format_rows`` of the
# local engine). If the program has displayed a table, these rows are the text of this table. The cell then refers to
# the table instead of showing it twice; stored answers, the model's context and ``text/plain`` contain the rows.


def repeats_table(answer: str, tables: Iterable[str]) -> bool:
    """Return whether ``answer`` consists of rows, and each of them is a line of ``tables``, the texts of the displayed
    tables. Spaces do not count."""
    match = ROWS.fullmatch(answer)
    table_lines = {tuple(line.split()) for table in tables for line in table.splitlines()}
    return match is not None and all(tuple(line.split()) in {*table_lines, ()} for line in _rows(match["rows"]))


def _rows(text: str) -> list[str]:
    return MORE.sub("", text).splitlines()


def table_text(bundle: Bundle) -> str:
    """Return the text of a displayed bundle if it shows an HTML table, otherwise an empty string."""
    return str(bundle.get("text/plain", "")) if "<table" in str(bundle.get("text/html", "")) else ""


def repetition_bundle(answer: str) -> Bundle:
    """Render an answer that repeats a table. The text, for front ends without HTML and for exports, has the rows."""
    return {"text/html": f"<p style='margin:4px 0;{QUIET}'>{html.escape(ABOVE)}</p>", "text/plain": answer}
