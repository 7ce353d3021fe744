"""Displays a turn on a terminal: the answer as Markdown that grows while it arrives, and a row for each tool call.
Control sequences in the text have no effect.

Finished blocks of Markdown are printed once and stay. Only the last block, which still grows, is printed again whenever
text arrives.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_kernel.notebook.display.render import Card, TurnSummary, joined_line
from agent_kernel.notebook.display.terminal_escape import PartialText, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

INTERVAL_S = 0.1
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
THEME = "ansi_dark"
"""The theme of code: the sixteen colors of the user's terminal."""
OUTPUT = "  "


def rich_screen(*, markdown: bool) -> RichScreen | None:
    """Return a RichScreen, or None if the output is not a terminal that can erase lines, or if the library rich is not
    installed. With ``markdown`` the answer is rendered as Markdown."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    return RichScreen(console, markdown=markdown) if console.is_terminal and not console.is_dumb_terminal else None


class RichScreen:
    """Displays a turn on a terminal, with styles. ``console`` must write to the terminal's original stream, because
    ``sys.stdout`` is replaced while the model's code runs."""

    def __init__(self, console: Console, *, markdown: bool = True) -> None:
        self._console = console
        self._markdown = markdown
        self._growing = PartialText()
        self._tail = ""
        self._new: list[str] = []
        self._live: Live | None = None
        self._drawn = 0.0
        self._kind = ""
        self._printed: dict[str, tuple[str, int]] = {}

    def text(self, delta: str) -> None:
        if self._kind != "text":
            self._end()
            self._kind = "text"
        self._new.append(self._growing.add(delta))
        self.flush()

    def reasoning(self, delta: str) -> None:
        if self._kind != "reasoning":
            self._end()
            self._kind = "reasoning"
            self._print("[reasoning] ", "dim italic", end="")
        self._print(self._growing.add(delta), "dim italic", end="")

    def card(self, card: Card) -> None:
        """Print the parts of the card that are new: its code, its output, its state."""
        self._end()
        state, printed = self._printed.get(card.call, ("", 0))
        if not state:
            self._print(printable(f"[{card.title}]"), "bold")
            if card.code:
                self._console.print(self._code(card.shown_code))
        # While a call runs, its output is printed in whole lines.
        end = len(card.output) if card.state != "running" else card.output.rfind("\n") + 1
        if end > printed:
            new = printable(card.output[printed:end]).rstrip("\n")
            self._print("\n".join(OUTPUT + line for line in new.split("\n")), "dim")
        if state and state != card.state:
            self._print(printable(f"[{card.title}]"), "bold" if card.open else "dim bold")
        self._printed[card.call] = card.state, max(end, printed)

    def image(self, mime: str, data: str, alt: str) -> None:
        self.line(f"[{alt}]")

    def status(self, text: str) -> None:
        self._end()
        self._draw(self._style_text(printable(text), "dim"))

    def line(self, text: str, details: str = "") -> None:
        self._end()
        self._print(printable(joined_line(text, details)), "dim")

    def show(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], transient: Mapping[str, Any], update: bool
    ) -> None:
        if not update:
            self._end()
            self._print(printable(str(data.get("text/plain", ""))), "")

    def summary(self, summary: TurnSummary) -> None:
        self.line(summary.line)

    def flush(self, *, force: bool = False) -> None:
        if force:
            self._end()
        elif (self._new or self._tail) and time.monotonic() - self._drawn >= INTERVAL_S:
            self._grow()
            self._drawn = time.monotonic()

    def flush_from_thread(self, card: Card) -> None:
        """Do nothing: only the main thread writes to a terminal, and it has printed the output already."""

    def _grow(self) -> None:
        """Redraw the growing block with the text received since the last time. Called at most every INTERVAL_S seconds,
        because every redraw parses the whole block again."""
        done, self._tail = split_finished(self._tail + "".join(self._new))
        self._new.clear()
        if done.strip():
            self._clear()
            self._console.print(self._render_text(done))
        if self._tail.strip():
            self._draw(self._render_text(self._tail))

    def _end(self) -> None:
        """Finish the growing block and remove the line that shows why the turn waits."""
        self._clear()
        self._tail += "".join(self._new) + self._growing.end()
        self._new.clear()
        if self._tail.strip():
            self._console.print(self._render_text(self._tail))
        if self._kind == "reasoning":
            self._console.print()
        self._tail, self._kind = "", ""

    def _draw(self, renderable: RenderableType) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(renderable, refresh=True)

    def _clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _render_text(self, text: str) -> RenderableType:
        from rich.markdown import Markdown

        # Without hyperlinks, the address of a link is printed and can be read.
        if not self._markdown:
            return self._style_text(text.rstrip("\n"))
        return Markdown(text, code_theme=THEME, hyperlinks=False)

    def _code(self, code: str) -> RenderableType:
        from rich.syntax import Syntax

        return Syntax(code, "python", theme=THEME, word_wrap=True, background_color="default", padding=(0, 2))

    def _style_text(self, text: str, style: str = "") -> RenderableType:
        from rich.text import Text

        return Text(text, style=style)

    def _print(self, text: str, style: str, end: str = "\n") -> None:
        self._console.print(self._style_text(text, style), end=end, soft_wrap=True)


def split_finished(text: str) -> tuple[str, str]:
    """Split Markdown into two parts: the blocks that further text cannot change, and the last block, which may still
    grow."""
    lines = text.split("\n")
    fence, cut = "", 0
    for number, line in enumerate(lines[:-1]):
        fence_line = FENCE.match(line)
        if fence:
            closes = fence_line is not None and fence_line[1].startswith(fence) and not line.strip().strip(fence[0])
            fence = "" if closes else fence
        elif fence_line:
            fence = fence_line[1]
        elif not line.strip():
            cut = number + 1
    return "\n".join(lines[:cut]), "\n".join(lines[cut:])
