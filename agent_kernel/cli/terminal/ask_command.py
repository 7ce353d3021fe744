"""``agent-kernel ask``: answers one question in a terminal or a script, with the engine and the tools of the settings.

The answer goes to stdout, so that it can be piped; progress, code and notices go to stderr. Code runs in the sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any

from agent_kernel.cli.base.command import DATA_DIR, JSON, Command, argument, import_runtime, settings_of
from agent_kernel.cli.base.output import printable
from agent_kernel.cli.base.store_access import LOCAL
from agent_kernel.cli.terminal.terminal_answer import EFFORT, MODEL, SESSION, TerminalAnswer, show_turn
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.file_receiver import FileReceiver, ReceivedFile
from agent_kernel.core.session import SessionKey, check_id, new_id
from agent_kernel.core.turn_request import TurnRequest

STDIN = "-"
STDIN_NAME = "stdin.txt"
CHUNK = 1 << 20
FILE_NAME = re.compile(r"(?<![\w./-])[\w./-]{1,200}\.[A-Za-z]\w{0,9}(?!\w)")
MAX_SEARCHED = 4_000
"""Maximum number of characters of a question that are searched for names of files."""


def ask(args: argparse.Namespace) -> int:
    """Ask the question and print the answer. Return 0 if the turn was committed, otherwise 1."""
    if args.question == STDIN and STDIN in args.files:
        raise InvalidRequest("The question and --file cannot both be -, because stdin can be read only once.")
    question = sys.stdin.read() if args.question == STDIN else args.question
    if not question.strip():
        raise InvalidRequest("The question is empty.")
    if args.output_dir is not None:
        args.output_dir.mkdir(parents=True, exist_ok=True)  # an error stops the command before the turn starts
    if not args.json and (left_out := list_files_left_out(question, args.files)):
        options = printable(" ".join(f"-f {shlex.quote(name)}" for name in left_out))
        advice = f"the agent sees only files that --file names. To send yours, add: {options}"
        print(f"agent-kernel: {advice}", file=sys.stderr)
    return asyncio.run(_ask(args, question))


def list_files_left_out(question: str, attached: Sequence[str]) -> list[str]:
    """Return the existing files that the question names and that are not among the ``attached`` ones."""
    names = dict.fromkeys(FILE_NAME.findall(question[:MAX_SEARCHED]))
    attached_paths = {os.path.realpath(file) for file in attached}
    return [name for name in names if os.path.isfile(name) and os.path.realpath(name) not in attached_paths]


async def _ask(args: argparse.Namespace, question: str) -> int:
    settings = settings_of(args)
    async with aclosing(import_runtime().Runtime.build(settings)) as runtime:
        key = SessionKey(settings.namespace or LOCAL, check_id(args.session) if args.session else new_id("session"))
        inputs = await _give(runtime, key, args.files)
        request = TurnRequest(
            question, model=args.model, effort=args.effort, inputs=inputs, instructions=settings.instructions
        )
        answer = TerminalAnswer(sys.stdout, sys.stderr, quiet=args.json)
        turn = await show_turn(runtime, key, request, answer)
        saved: list[Path] = []
        try:
            if args.output_dir is not None:
                await _save(runtime, key, answer.files, args.output_dir, saved)
        finally:  # the answer is shown, also if a file cannot be written
            if args.json:
                files = [str(path) for path in saved] or [file["name"] for file in answer.files]
                print(json.dumps(answer.to_json() | {"turn": turn, "session": key.id, "files": files}))
            else:
                answer.close(saved)
        return 0 if answer.state == "committed" else 1


async def _give(runtime: Any, key: SessionKey, files: Sequence[str]) -> tuple[str, ...]:
    """Store the files in the session and return their ids, in the same order. Raises InvalidRequest if a file cannot be
    read."""
    if not files:
        return ()
    if runtime.files is None:
        raise InvalidRequest("The configured session store cannot store files, so --file cannot be used.")
    await runtime.store.create(key)
    given = []
    for file in files:
        name = STDIN_NAME if file == STDIN else Path(file).name
        arrived = await asyncio.to_thread(_receive, runtime.files.incoming(), file)
        given.append((await runtime.files.receive(key, name, arrived)).id)
    return tuple(given)


def _receive(incoming: FileReceiver, file: str) -> ReceivedFile:
    try:
        if file != STDIN and not Path(file).exists():
            raise InvalidRequest(f"There is no file {file}.")
        if file != STDIN and not Path(file).is_file():
            raise InvalidRequest(f"{file} is not a regular file.")
        with nullcontext(sys.stdin.buffer) if file == STDIN else Path(file).open("rb") as source:
            while chunk := source.read(CHUNK):
                incoming.write(chunk)
        return incoming.finish()
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from None
    finally:
        incoming.close()


async def _save(
    runtime: Any, key: SessionKey, files: Sequence[dict[str, Any]], directory: Path, saved: list[Path]
) -> None:
    """Write the files of the turn into a directory and add their paths to ``saved``. An existing file is never
    overwritten; the new file gets a number in its name instead. Raises OSError, which leaves no incomplete file."""
    for file in files:
        _, body = await runtime.files.open(key, file["id"])
        data = body if isinstance(body, bytes) else await asyncio.to_thread(body.read_bytes)
        saved.append(await asyncio.to_thread(_write_new, directory, Path(file["name"]), data))


def _write_new(directory: Path, name: Path, data: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = directory / (name.name if number == 1 else f"{name.stem}-{number}{name.suffix}")
        try:
            target = path.open("xb")
        except FileExistsError:
            continue
        try:
            with target:
                target.write(data)
            return path
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from error
    raise AssertionError("unreachable")


ASK_ARGUMENTS = (
    argument("question", help="the question; - reads it from stdin"),
    argument(
        *("-f", "--file"),
        dest="files",
        metavar="FILE",
        action="append",
        default=[],
        help="an input file for the question; may be repeated; - reads stdin",
    ),
    SESSION,
    argument("-o", "--output-dir", type=Path, help="directory for the files that the turn produces"),
    MODEL,
    EFFORT,
    JSON,
    DATA_DIR,
)
ASK = Command("ask", "answer one question and print the answer", ask, ASK_ARGUMENTS)
