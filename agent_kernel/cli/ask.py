"""``agent-kernel ask``: one question in a terminal or a script, answered by the engine and the tools of the settings.

The answer goes to stdout, so that it can be piped; progress, code and notices go to stderr. Code runs in the sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
from collections.abc import Sequence
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, TextIO

from agent_kernel.cli.command import Command, assembly, data_argument, json_argument, settings_of
from agent_kernel.cli.output import UNPRINTABLE, printable
from agent_kernel.cli.store_access import LOCAL
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.events import (
    CallFinished,
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
from agent_kernel.core.file_receiver import FileReceiver, ReceivedFile
from agent_kernel.core.session import SessionKey, check_id, new_id
from agent_kernel.core.turn_request import TurnRequest

STDIN = "-"
STDIN_NAME = "stdin.txt"
CHUNK = 1 << 20
MAX_STATUS = 79


def ask_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question", help="the question; - reads it from stdin")
    parser.add_argument(
        "-f", "--file", dest="files", action="append", default=[], help="a file to give along, repeatable; - is stdin"
    )
    parser.add_argument(
        "-s", "--session", default="", help="the conversation to go on with or to begin (default: a new one)"
    )
    parser.add_argument("-o", "--output-dir", type=Path, help="directory for the files that the turn produces")
    parser.add_argument(
        "--model", default="", help="a model or an engine of the settings, as %%%%agent --model takes it"
    )
    parser.add_argument("--effort", default="", choices=["quick", "auto", "thorough"], help="programs to compare")
    json_argument(parser)
    data_argument(parser)


def ask(args: argparse.Namespace) -> int:
    """Return 0 if the turn was committed, else 1."""
    if args.question == STDIN and STDIN in args.files:
        raise InvalidRequest("stdin is the question or a file, not both.")
    question = sys.stdin.read() if args.question == STDIN else args.question
    return asyncio.run(_ask(args, question))


async def _ask(args: argparse.Namespace, question: str) -> int:
    settings = settings_of(args)
    runtime = assembly().Runtime.build(settings)
    try:
        key = SessionKey(settings.namespace or LOCAL, check_id(args.session) if args.session else new_id("session"))
        inputs = await _give(runtime, key, args.files)
        request = TurnRequest(
            question, model=args.model, effort=args.effort, inputs=inputs, instructions=settings.instructions
        )
        turn, answer = "", TerminalAnswer(sys.stdout, sys.stderr, quiet=args.json)
        async with aclosing(runtime.agent(key, request).stream(request)) as events:
            async for event in events:
                answer.show(event.body)
                turn = event.turn
        saved = await _save(runtime, key, answer.files, args.output_dir) if args.output_dir is not None else []
        if args.json:
            files = [str(path) for path in saved] or [file["name"] for file in answer.files]
            print(json.dumps(answer.to_json() | {"turn": turn, "session": key.id, "files": files}))
        else:
            answer.close(saved)
        return 0 if answer.state == "committed" else 1
    finally:
        await runtime.aclose()


class TerminalAnswer:
    """Shows the events of one turn. In a terminal the answer appears as it is written; otherwise only the closing
    answer is printed, since what a model writes before its calls is not the answer."""

    def __init__(self, out: TextIO, err: TextIO, *, quiet: bool) -> None:
        self._out, self._err, self._quiet = out, err, quiet
        self._live = out.isatty() and not quiet
        self._text = ""
        self._status = ""
        self._facts: dict[str, Any] = {"model": "", "usage": {}, "error": None}
        self.state = ""
        self.files: list[dict[str, Any]] = []

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
                    print(multiline(text), end="", file=self._out, flush=True)
            case CallStarted(_, name, arguments):
                self._end_text()
                code = str(arguments.get("code") or arguments.get("script") or json.dumps(dict(arguments)))
                self._line(f"{name}:\n{_indent(code)}")
                self._progress(f"{name} runs ...")
            case CallFinished(_, name, status, text, seconds):
                self._line(f"{name}: {status} after {seconds:.1f} s\n{_indent(text)}")
            case FileProduced(_, file):
                self.files.append(dict(file))
            case Notice(_, text):
                self._line(text)
            case TurnFinished(state, reason, _, usage, error):
                self._clear()
                self.state = state
                self._facts |= {"usage": dict(usage), "error": dict(error) if error else None}
                if state != "committed":
                    self._end_text()
                    self._line(f"agent-kernel: the turn was {state}{f': {reason}' if reason else ''}", always=True)

    def close(self, saved: Sequence[Path]) -> None:
        """Print what is printed only when the turn is over."""
        if self._live:
            print(file=self._out)
        elif self._text.strip():
            print(multiline(self._text.strip()), file=self._out)
        for path in saved:
            self._line(f"Saved {path}", always=True)
        if self.files and not saved:
            names = ", ".join(file["name"] for file in self.files)
            self._line(f"The turn made {names}. -o DIR saves such files.", always=True)

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state, "text": self._text.strip(), **self._facts}

    def _end_text(self) -> None:
        """Begin a new text: what follows a call replaces what was written before it."""
        self._clear()
        if self._live and self._text and not self._text.endswith("\n"):
            print(file=self._out, flush=True)
        self._text = ""

    def _line(self, text: str, *, always: bool = False) -> None:
        self._clear()
        if always or not self._quiet:
            print(multiline(text), file=self._err, flush=True)

    def _progress(self, text: str) -> None:
        """Show a state that the next one replaces; only in a terminal."""
        if self._quiet or not self._err.isatty():
            return
        self._clear()
        self._status = printable(text)[:MAX_STATUS]
        print(self._status, end="", file=self._err, flush=True)

    def _clear(self) -> None:
        if self._status:
            print(f"\r{' ' * len(self._status)}\r", end="", file=self._err, flush=True)
            self._status = ""


def multiline(text: str) -> str:
    """Return the text without control characters other than line ends and tabs: a model or a program must not control
    the terminal."""
    return "".join(char if char in "\n\t" or char.isprintable() else UNPRINTABLE for char in text.replace("\r\n", "\n"))


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())


async def _give(runtime: Any, key: SessionKey, files: Sequence[str]) -> tuple[str, ...]:
    """Store files in the session and return their ids. Raises InvalidRequest for what is no readable file."""
    if not files:
        return ()
    if runtime.files is None:
        raise InvalidRequest("The session store of these settings cannot store files.")
    await runtime.store.create(key)
    given = []
    for file in files:
        name = STDIN_NAME if file == STDIN else Path(file).name
        arrived = await asyncio.to_thread(_receive, runtime.files.incoming(), file)
        given.append((await runtime.files.receive(key, name, arrived)).id)
    return tuple(given)


def _receive(incoming: FileReceiver, file: str) -> ReceivedFile:
    try:
        if file != STDIN and not Path(file).is_file():
            raise InvalidRequest(f"There is no file {file}.")
        with nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as source:
            while chunk := source.read(CHUNK):
                incoming.write(chunk)
        return incoming.finish()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from None
    finally:
        incoming.close()


async def _save(runtime: Any, key: SessionKey, files: Sequence[dict[str, Any]], directory: Path) -> list[Path]:
    """Write the files of the turn into a directory. An existing file is never overwritten: the new one gets a
    number."""
    saved = []
    for file in files:
        _, body = await runtime.files.open(key, file["id"])
        data = body if isinstance(body, bytes) else await asyncio.to_thread(body.read_bytes)
        saved.append(await asyncio.to_thread(_write_new, directory, Path(file["name"]), data))
    return saved


def _write_new(directory: Path, name: Path, data: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = directory / (name.name if number == 1 else f"{name.stem}-{number}{name.suffix}")
        try:
            with path.open("xb") as target:
                target.write(data)
            return path
        except FileExistsError:
            continue
    raise AssertionError("unreachable")


ASK = Command("ask", "answer one question and print the answer", ask_arguments, ask)
