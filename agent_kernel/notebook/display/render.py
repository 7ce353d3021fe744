"""Renders the parts of a turn as MIME bundles. The functions have no side effects.

Each bundle has text/plain, so every front end can display it. None depends on a script, a style sheet or a running
kernel, so it looks the same in a reopened, untrusted or printed notebook.
"""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.invisible_characters import mark_invisible
from agent_kernel.notebook.display.safe_markdown import safe_markdown

TURN_MIME = "application/vnd.agent-kernel.turn+json"
MAX_SHOWN = 16_000
"""Limit of output characters in a card. Of longer output, the card shows the beginning and the end."""
MAX_ERROR = 200
"""Maximum characters of the error in the line about a correction."""
PLACES = {
    "live": "in your kernel",
    "draft": "in a draft (sees your variables, changes nothing)",
    "sandbox": "in the sandbox",
    "server": "on the server",
    "client": "in the notebook",
}
STATES = {
    "success": "done",
    "error": "failed",
    "denied": "not run",
    "timeout": "out of time",
    "interrupted": "stopped",
}
"""Maps the status of a call that has ended to the state that its card shows."""
WAITING = "waiting for your answer"
"""The state that a card shows while its call waits for an answer of the user."""
RECORDED = ("turn", "session", "state", "model", "local", "host", "where", "cell", "stored", "private")
"""The fields of TurnSummary that are copied into the JSON of type TURN_MIME, where programs read them."""
QUIET = "color:var(--jp-ui-font-color2,inherit);font-size:var(--jp-ui-font-size1,90%)"
BOX = "border-left:3px solid var(--jp-border-color1,#9e9e9e);margin:4px 0;padding:2px 0 2px 10px"
PRE = "margin:4px 0;padding:4px 8px;white-space:pre-wrap;max-height:400px;overflow:auto;background:transparent"

Bundle = dict[str, Any]


@dataclass(slots=True)
class Card:
    """The data that are displayed for one tool call: its name, where it runs, its code, state and output. ``state`` is
    text for the user; ``open`` means that the call is running or waiting for an answer. ``corrects`` is the card of the
    failed call whose program this call repeats with a correction. The card of the failed call is shown folded in this
    card."""

    call: str
    name: str
    where: str
    code: str
    state: str = "running"
    open: bool = True
    output: str = ""
    seconds: float | None = None
    corrects: Card | None = None

    def add(self, text: str) -> None:
        """Add output. Half of a surrogate pair becomes a question mark, because Jupyter cannot send it."""
        self.output += text.encode(errors="replace").decode()
        if len(self.output) > 2 * MAX_SHOWN:
            half = MAX_SHOWN // 2
            self.output = f"{self.output[:half]}\n[... output left out ...]\n{self.output[-half:]}"

    def close(self, state: str, seconds: float | None = None) -> None:
        self.state, self.seconds, self.open = state, seconds, False

    @property
    def title(self) -> str:
        took = f", {_seconds(self.seconds)}" if self.seconds is not None else ""
        after = " · corrected" if self.corrects else ""
        place = f"{self.name} {PLACES.get(self.where, self.where)}".strip()
        return mark_invisible(f"{place} · {self.state}{took}{after}")

    @property
    def shown_code(self) -> str:
        """The code for display, with invisible characters marked. The kernel runs ``code``, without the marks."""
        return mark_invisible(self.code)

    @property
    def correction(self) -> str:
        """The line that says which error was corrected; empty if the call corrects none."""
        if self.corrects is None:
            return ""
        error = self.corrects.output.strip().rpartition("\n")[2].strip()
        return mark_invisible(f"Corrected without the model after {error[:MAX_ERROR] or 'an error'}")

    def bundle(self) -> Bundle:
        plain = [
            f"[{self.title}]",
            self.correction,
            _indent(self.shown_code, ">>> ") if self.code else "",
            self.output.rstrip(),
        ]
        return {
            "text/html": _details(self.title, self._body(), is_open=self.open),
            "text/plain": "\n".join(part for part in plain if part),
        }

    def _body(self) -> str:
        output = f"<pre style='{PRE}'>{html.escape(self.output)}</pre>" if self.output.strip() else ""
        code = f"<pre style='{PRE}'><code>{html.escape(self.shown_code)}</code></pre>" if self.code else ""
        before = _details(self.correction, self.corrects._body(), is_open=False) if self.corrects else ""
        return before + code + output


@dataclass(frozen=True, slots=True)
class AnswerVersion:
    """The answer of a turn, as one of the ``count`` answers that its cell has: answer ``number``, on the branch
    ``branch``.

    If the cell was run again, ``replaces`` is the id of the turn of its earlier answer. That turn stays on the branch
    ``kept_on``; ``later`` is the number of turns that followed it there.
    """

    branch: str = ""
    number: int = 1
    count: int = 1
    replaces: str = ""
    kept_on: str = ""
    later: int = 0

    @property
    def labels(self) -> list[str]:
        """The parts of the status line that say which version of the answer this is; empty if there is only one
        version."""
        if self.count < 2:
            return []
        return [f"version {self.number} of {self.count}", f"branch {self.branch}", "%agent versions shows the others"]

    @property
    def left_behind(self) -> str:
        """A notice for the user if the cell was run again and later turns stay on another branch, else ""."""
        if not self.later:
            return ""
        turns = "1 later turn stays" if self.later == 1 else f"{self.later} later turns stay"
        return f"Asked again from here: {turns} on the branch {self.kept_on}. To return: %agent switch {self.kept_on}"

    @property
    def record(self) -> dict[str, Any]:
        return {"branch": self.branch, "version": self.number, "versions": self.count, "replaces": self.replaces}


@dataclass(slots=True)
class TurnSummary:
    """The state of a turn and its usage. ``line`` is the status line for people; the fields in RECORDED are data for
    programs. ``stored`` is the time at which a stored answer was given, or None for a new answer."""

    turn: str
    session: str
    state: str = "open"
    model: str = ""
    local: bool = True
    host: str = ""
    where: str = ""
    cell: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    version: AnswerVersion = field(default_factory=AnswerVersion)
    stored: float | None = None
    private: bool = False

    @property
    def line(self) -> str:
        usage = {} if self.stored else self.usage
        parts = [] if self.state == "committed" else [self.state]
        parts += [f"{self.model} ({place(self.local, self.host)})"] if self.model else []
        parts += ["private: kept in memory only"] if self.private else []
        if usage.get("prompt_tokens"):
            about = "about " if usage.get("estimated") else ""
            known = not self.host or usage.get("reused_tokens")  # few servers report how many tokens they reused
            reused = f", {usage.get('reused_tokens', 0):,.0f} of them reused" if known else ""
            parts.append(f"{about}{usage['prompt_tokens']:,.0f} tokens read{reused}")
            parts.append(f"{about}{usage.get('completion_tokens', 0):,.0f} written")
        if usage.get("first_token_s", 0) >= 0.005:
            parts.append(f"first after {_seconds(usage['first_token_s'])}")
        if (took := usage.get("turn_s") or usage.get("seconds", 0)) >= 0.005:
            parts.append(f"{_seconds(took)} in all")
        return " · ".join([*parts, *self.version.labels])

    def bundle(self) -> Bundle:
        record = {name: getattr(self, name) for name in RECORDED}
        record |= {"usage": dict(self.usage), **self.version.record}
        return {
            "text/html": f"<div style='{QUIET}'>{html.escape(self.line)}</div>",
            "text/plain": self.line,
            TURN_MIME: record,
        }


def format_arguments(arguments: Mapping[str, object]) -> str:
    """Format the arguments of a call that runs no code, one argument in each line."""
    return "\n".join(f"{name} = {value!r}" for name, value in arguments.items())


def moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def turn_count(count: int) -> str:
    return "1 turn" if count == 1 else f"{count} turns"


def place(local: bool, host: str) -> str:
    """Return where the model runs, for the user: "local" or "remote", with the name of the host if there is one."""
    return ("local" if local else "remote") + (f": {host}" if host else "")


def text_bundle(text: str) -> Bundle:
    return {"text/markdown": safe_markdown(text), "text/plain": text}


def reasoning_bundle(text: str, *, is_open: bool) -> Bundle:
    body = f"<div style='white-space:pre-wrap;{QUIET}'>{html.escape(text)}</div>"
    return {"text/html": _details("reasoning", body, is_open=is_open), "text/plain": f"[reasoning]\n{text}"}


def joined_line(text: str, details: str) -> str:
    """Return a text and its details, which may have several lines, on one line."""
    return " ".join([text, *details.split()])


def line_bundle(text: str, details: str = "") -> Bundle:
    """Render one line of text, with ``details`` folded below it. Both are escaped, so they may come from anyone."""
    plain = joined_line(text, details)
    if details:
        body = f"<pre style='{PRE}'>{html.escape(mark_invisible(details))}</pre>"
        return {"text/html": _details(text, body, is_open=False), "text/plain": plain}
    return {"text/html": f"<div style='{QUIET}'>{html.escape(text)}</div>", "text/plain": plain}


def table_bundle(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Bundle:
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    plain = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [list(head), *cells]
    ]
    top = "".join(f"<th scope='col' style='text-align:left'>{html.escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in cells
    )
    return {
        "text/html": f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>",
        "text/plain": "\n".join(plain),
    }


def json_bundle(value: Any) -> Bundle:
    """Render JSON, for programs and for users who want every detail."""
    return {"application/json": value, "text/plain": json.dumps(value, ensure_ascii=False, indent=1)}


def _details(title: str, body: str, *, is_open: bool) -> str:
    opened = " open" if is_open else ""
    return (
        f"<details{opened} style='{BOX}'><summary style='cursor:pointer;{QUIET}'>{html.escape(title)}</summary>"
        f"{body}</details>"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"


def _indent(text: str, first: str) -> str:
    return "\n".join((first if not i else " " * len(first)) + line for i, line in enumerate(text.splitlines()))
