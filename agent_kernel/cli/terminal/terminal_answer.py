"""Shows a turn in a terminal or a pipe. The answer goes to one stream; code, progress and notices go to another."""

from __future__ import annotations

import argparse
import base64
import json
import mimetypes
import shutil
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from agent_kernel.cli.base.command import argument
from agent_kernel.cli.base.output import UNPRINTABLE, printable
from agent_kernel.cli.base.word_wrap import WordWrapper, wrap_text
from agent_kernel.cli.terminal.call_approval import ANYBODY, CallApproval
from agent_kernel.core.events import (
    ApprovalRequired,
    CallFinished,
    CallOutput,
    CallStarted,
    EventBody,
    FileProduced,
    ModelLoading,
    Notice,
    Queued,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.core.files import describe_files
from agent_kernel.core.messages import VISIBLE_IMAGE_TYPES, without_image_notes
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import TurnRequest

if TYPE_CHECKING:
    from agent_kernel.turn.server_runtime import Runtime

MAX_STATUS = 79
MAX_OUTPUT = 10_000
"""How many of the last characters that a call has printed are shown if the user stops it."""
FILES = f"\n{describe_files(())}\n"
"""Separates the output of a call from the description of its files, which is for the model and has their ids."""
# All commands that run a turn in the terminal take these arguments.
SESSION = argument("-s", "--session", default="", help="id of the conversation to continue or begin (default: new)")
MODEL = argument(
    "--model",
    default="",
    help="the model that answers: a name that `agent-kernel model list` shows, an id on the Hugging Face Hub, a path, "
    "a URL, or an engine of the settings",
)
EFFORT = argument(
    "--effort",
    default="",
    choices=["quick", "auto", "thorough"],
    help="how many Python programs the model writes for a question; the agent compares their results and runs one",
)
OUTPUT_DIR = argument("-o", "--output-dir", type=Path, help="directory for the files and figures that the code creates")


async def show_turn(
    runtime: Runtime,
    key: SessionKey,
    question: str,
    inputs: tuple[str, ...],
    answer: TerminalAnswer,
    *,
    args: argparse.Namespace,
    approval: CallApproval,
) -> str:
    """Run a turn, show its events and return its id. ``inputs`` are the ids of its files. ``args`` has the options
    MODEL and EFFORT. ``approval`` answers the questions whether calls may run."""
    request = TurnRequest(
        question,
        model=args.model,
        effort=args.effort,
        inputs=inputs,
        instructions=runtime.settings.instructions,
        answers=ANYBODY,
        web={} if runtime.settings.has_web_search else None,
    )
    turn = ""
    async with aclosing(runtime.agent(key, request).stream(request)) as events:
        async for event in events:
            turn = event.turn
            if not isinstance(event.body, ApprovalRequired):
                answer.show(event.body)
                continue
            if not approval.is_allowed(event.body):
                answer.show_question(event.body, approval.explain_denial(event.body))
            decision = await approval.answer(event.body)
            await runtime.approvals.answer(key.namespace, event.body.approval, decision)
    return turn


class TerminalAnswer:
    """Shows the events of one turn. In a terminal, text appears as the model writes it. Otherwise only the text after
    the last call is printed, when the turn has ended, because the text before a call is not the answer."""

    def __init__(self, out: TextIO, err: TextIO, *, quiet: bool) -> None:
        self._out, self._err, self._quiet = out, err, quiet
        self._live = out.isatty() and not quiet
        self._text = ""
        self._wrapper = WordWrapper()
        self._name = ""
        self._code = ""
        self._output = ""
        self._status = ""
        self._facts: dict[str, Any] = {"model": "", "usage": {}, "error": None}
        self.state = ""
        self.files: list[dict[str, Any]] = []
        self._drawn: list[tuple[str, str, bytes]] = []
        """The pictures that calls have displayed: the call's id, the MIME type and the bytes."""
        self._calls_with_pictures: set[str] = set()
        """The calls that have saved a picture as a file."""

    @property
    def figures(self) -> list[tuple[str, bytes]]:
        """File names and bytes of the pictures that calls have displayed. Those of a call that saved a picture itself
        are left out, because they are usually the same."""
        drawn = [(mime, data) for call, mime, data in self._drawn if call not in self._calls_with_pictures]
        return [
            (f"figure{'' if number == 1 else f'-{number}'}{mimetypes.guess_extension(mime) or ''}", data)
            for number, (mime, data) in enumerate(drawn, 1)
        ]

    @property
    def file_names(self) -> list[str]:
        """The names of the files of the turn and of its figures."""
        return [*(file["name"] for file in self.files), *(name for name, _ in self.figures)]

    def show(self, body: EventBody) -> None:
        match body:
            case TurnStarted(model):
                self._facts["model"] = model
            case ModelLoading(model, stage, fraction):
                share = f" {fraction:.0%}" if fraction is not None else ""
                self._progress(f"{model}: {stage}{share}")
            case Queued(position, reason):
                self._progress(f"Waiting, place {position}: {reason}")
            case TextDelta(text):
                self._clear()
                self._text += text
                if self._live:
                    print(self._wrapper.feed(multiline(text)), end="", file=self._out, flush=True)
            case CallStarted(_, name, arguments):
                self._end_text()
                self._name = name
                self._code = str(arguments.get("code") or arguments.get("script") or json.dumps(dict(arguments)))
                self._line(f"{name}:\n{_indent(self._code)}")
                self._output = ""
                self._progress(f"{name} runs ...")
            case CallOutput(_, text):
                self._output = (self._output + text)[-MAX_OUTPUT:]
                last = self._output.rstrip().rpartition("\n")[2]
                self._progress(f"{self._name} runs ... {last}")
            case CallFinished():
                self._finish_call(body)
            case FileProduced(call, file):
                self._add_file(call, file)
            case Notice(_, text):
                self._say(text)
            case TurnFinished(state, reason, _, usage, error):
                self._clear()
                self.state = state
                self._facts |= {"usage": dict(usage), "error": dict(error) if error else None}
                if state != "committed":
                    self._end_text()
                    ended = "failed" if state == "failed" else f"was {state}"
                    self._say(f"agent-kernel: the turn {ended}{f': {reason}' if reason else ''}", always=True)

    def _finish_call(self, body: CallFinished) -> None:
        self._output = ""
        pictures = [one for one in body.media if one["mime"] in VISIBLE_IMAGE_TYPES and one.get("data")]
        self._drawn += [(body.call, one["mime"], base64.b64decode(one["data"])) for one in pictures]
        output = body.text.rpartition(FILES)[0] if body.files else body.text  # files are named at the end of the turn
        output = without_image_notes(output) if pictures else output
        self._line(f"{body.name}: {body.status} after {body.seconds:.1f} s\n{_indent(output)}".rstrip())

    def _add_file(self, call: str, file: Mapping[str, Any]) -> None:
        self.files.append(dict(file))
        if (mimetypes.guess_type(file["name"])[0] or "").startswith("image/"):
            self._calls_with_pictures.add(call)

    def show_question(self, request: ApprovalRequired, denial: str) -> None:
        """Show what a call wants to run, before the user is asked; or ``denial``, if nobody can be asked."""
        self._end_text()
        if not denial:
            self._line(self._question(request), always=True)
            return
        self._say(f"agent-kernel: {denial}", always=True)

    def stop(self) -> None:
        """End the line in which the user pressed Ctrl-C, so that a message begins a line of its own. Show what the
        stopped call has printed."""
        self._clear()
        self._show_held_back()
        if self._err.isatty() or self._live:
            print(file=self._err, flush=True)
        if self._output.strip():
            self._line(_indent(self._output))

    def close(self, saved: Sequence[Path]) -> None:
        """Print the answer, unless it was shown while the model wrote it. Then print the paths of the ``saved`` files
        or, if none was saved, the names of the files that the turn produced."""
        if self._live:
            self._show_held_back()
            print(file=self._out)
        elif self._text.strip():
            print(multiline(self._text.strip()), file=self._out)
        for path in saved:
            self._line(f"Saved {path}", always=True)
        if self.file_names and not saved:
            names = ", ".join(self.file_names)
            self._say(f"The turn produced {names}. To save such files, add -o DIR.", always=True)

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state, "text": self._text.strip(), **self._facts}

    def _question(self, body: ApprovalRequired) -> str:
        if body.code == self._code and not self._quiet:  # it is shown directly above
            return wrap_text(f"{body.label} wants to run this ({body.target}).", self._err)
        return f"{wrap_text(f'{body.label} wants to run ({body.target}):', self._err)}\n{_indent(body.code)}"

    def _end_text(self) -> None:
        """End the current text. The text after a call is a new text, and only the last text of a turn is the answer."""
        self._clear()
        self._show_held_back()
        if self._live and self._text and not self._text.endswith("\n"):
            print(file=self._out, flush=True)
        self._text = ""
        self._wrapper = WordWrapper()

    def _show_held_back(self) -> None:
        if self._live:
            print(self._wrapper.flush(), end="", file=self._out, flush=True)

    def _say(self, text: str, *, always: bool = False) -> None:
        """Show a line of running text."""
        self._line(wrap_text(text, self._err), always=always)

    def _line(self, text: str, *, always: bool = False) -> None:
        self._clear()
        if always or not self._quiet:
            print(multiline(text), file=self._err, flush=True)

    def _progress(self, text: str) -> None:
        """Show a line of status, which the next line replaces. Does nothing if the output is not a terminal."""
        if self._quiet or not self._err.isatty():
            return
        self._clear()
        self._status = printable(text)[: min(MAX_STATUS, shutil.get_terminal_size().columns - 1)]
        print(self._status, end="", file=self._err, flush=True)

    def _clear(self) -> None:
        if self._status:
            print(f"\r{' ' * len(self._status)}\r", end="", file=self._err, flush=True)
            self._status = ""


def multiline(text: str) -> str:
    """Return the text without control characters except line ends and tabs, so that a model or a program cannot control
    the terminal."""
    return "".join(char if char in "\n\t" or char.isprintable() else UNPRINTABLE for char in text.replace("\r\n", "\n"))


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())
