"""A turn on a terminal: Markdown that grows, a row for each call, nothing of it able to command the terminal.

What is finished is printed and stays; only the last block, which still grows, is drawn again.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_kernel.notebook.display.render import Card, TurnSummary
from agent_kernel.notebook.display.terminal_escape import PartialText, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

INTERVAL_S = 0.1
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
THEME = "ansi_dark"
"""Of code: the sixteen colours that the person has chosen for their terminal."""
OUTPUT = "  "


def rich_screen(*, markdown: bool) -> RichScreen | None:
    """None where there is no terminal that can take lines back, or no rich in this kernel's environment."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    return RichScreen(console, markdown=markdown) if console.is_terminal and not console.is_dumb_terminal else None


class RichScreen:
    """``console`` writes to the stream that there was: while the agent's code runs another one stands in its place."""

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
        """What is new of it: its code, its output, its state."""
        self._end()
        state, printed = self._printed.get(card.call, ("", 0))
        if not state:
            self._print(printable(f"[{card.title}]"), "bold")
            if card.code:
                self._console.print(self._code(card.shown_code))
        end = len(card.output) if card.state != "running" else card.output.rfind("\n") + 1  # a line is printed whole
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
        self._draw(self._styled(printable(text), "dim"))

    def line(self, text: str) -> None:
        self._end()
        self._print(printable(text), "dim")

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

    def flush_from_aside(self, card: Card) -> None:
        """Printed when it came; a terminal has one writer."""

    def _grow(self) -> None:
        """What came since the last time. Not for each word: the block that is open is read from its beginning."""
        done, self._tail = split_finished(self._tail + "".join(self._new))
        self._new.clear()
        if done.strip():
            self._clear()
            self._console.print(self._words(done))
        if self._tail.strip():
            self._draw(self._words(self._tail))

    def _end(self) -> None:
        """What grew is finished; what was waited for is gone."""
        self._clear()
        self._tail += "".join(self._new) + self._growing.end()
        self._new.clear()
        if self._tail.strip():
            self._console.print(self._words(self._tail))
        if self._kind == "reasoning":
            self._console.print()
        self._tail, self._kind = "", ""

    def _draw(self, what: RenderableType) -> None:
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
        self._live.update(what, refresh=True)

    def _clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _words(self, text: str) -> RenderableType:
        from rich.markdown import Markdown

        # Without hyperlinks the address of a link is there to be read.
        return Markdown(text, code_theme=THEME, hyperlinks=False) if self._markdown else self._styled(text.rstrip("\n"))

    def _code(self, code: str) -> RenderableType:
        from rich.syntax import Syntax

        return Syntax(code, "python", theme=THEME, word_wrap=True, background_color="default", padding=(0, 2))

    def _styled(self, text: str, style: str = "") -> RenderableType:
        from rich.text import Text

        return Text(text, style=style)

    def _print(self, text: str, style: str, end: str = "\n") -> None:
        self._console.print(self._styled(text, style), end=end, soft_wrap=True)


def split_finished(text: str) -> tuple[str, str]:
    """(blocks that no later word can change, the block that still grows)."""
    lines = text.split("\n")
    fence, cut = "", 0
    for number, line in enumerate(lines[:-1]):
        found = FENCE.match(line)
        if fence:
            closes = found is not None and found[1].startswith(fence) and not line.strip().strip(fence[0])
            fence = "" if closes else fence
        elif found:
            fence = found[1]
        elif not line.strip():
            cut = number + 1
    return "\n".join(lines[:cut]), "\n".join(lines[cut:])
