"""``agent-kernel chat``: holds a conversation in a terminal, with the engine and the tools of the settings.

Ctrl-C stops a turn and keeps the conversation, Ctrl-D ends it. Without a terminal, each line of stdin is a question and
nobody can approve a call. Code runs in the sandbox. ``agent-kernel ask``, which answers one question, is here too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent_kernel.cli.base.command import DATA_DIR, JSON, Command, argument, import_runtime, settings_of
from agent_kernel.cli.base.output import printable, turn_count
from agent_kernel.cli.base.store_access import LOCAL
from agent_kernel.cli.terminal.terminal_answer import (
    EFFORT,
    MODEL,
    OUTPUT_DIR,
    SESSION,
    AskUser,
    TerminalAnswer,
    show_turn,
)
from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.events import ApprovalRequired
from agent_kernel.core.file_receiver import FileReceiver, ReceivedFile
from agent_kernel.core.session import SessionKey, check_id, new_id
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.permissions.approval_answer import Answer

if TYPE_CHECKING:
    from agent_kernel.turn.server_runtime import Runtime

ANYBODY = frozenset({"*"})
HISTORY = "chat_history"
PROMPT = "> "
UNKNOWN = re.compile(r"/[a-z-]+")
"""Matches a line that looks like a command. It does not match paths such as ``/data/rain.csv``, which may be part of a
question."""
HELP = """\
Write a question and press Enter.
  Ctrl-C    stop the answer
  Ctrl-D    end the conversation
  /new      begin a new conversation
  /session  show its id; agent-kernel chat -s ID continues it
  /help     show this text
  /exit     end, as Ctrl-D does"""
STDIN = "-"
STDIN_NAME = "stdin.txt"
CHUNK = 1 << 20
FILE_NAME = re.compile(r"(?<![\w./-])[\w./-]{1,200}\.[A-Za-z]\w{0,9}(?!\w)")
MAX_SEARCHED = 4_000
"""Maximum number of characters of a question that are searched for names of files."""
ASK_ARGUMENTS = (
    argument("question", help="the question, in quotes; - reads it from stdin"),
    argument(
        *("-f", "--file"),
        dest="files",
        metavar="FILE",
        action="append",
        default=[],
        help="an input file for the question; may be repeated; - reads stdin",
    ),
    SESSION,
    OUTPUT_DIR,
    MODEL,
    EFFORT,
    JSON,
    DATA_DIR,
)


def chat(args: argparse.Namespace) -> int:
    """Hold the conversation and return 0, even if a turn failed."""
    return asyncio.run(_chat(args))


async def _chat(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    namespace = settings.namespace or LOCAL
    key = SessionKey(namespace, check_id(args.session) if args.session else new_id("session"))
    lines: LineReader = TerminalLines(settings.data_dir / HISTORY) if sys.stdin.isatty() else PipedLines()
    async with contextlib.aclosing(import_runtime().Runtime.build(settings)) as runtime:
        lines.say(await _greeting(runtime, key))
        while (question := await lines.read(PROMPT)) is not None:
            match question.strip():
                case "":
                    continue
                case "/exit" | "/quit" | "exit" | "quit":
                    break
                case "/help":
                    lines.say(HELP)
                case "/session":
                    lines.say(key.id)
                case "/new":
                    key = SessionKey(namespace, new_id("session"))
                    lines.say(f"A new conversation: {key.id}")
                case command if UNKNOWN.fullmatch(command):
                    lines.say(f"There is no command {command}. /help shows the commands.")
                case text:
                    request = TurnRequest(
                        text,
                        model=args.model,
                        effort=args.effort,
                        instructions=settings.instructions,
                        answers=ANYBODY if lines.approve else frozenset(),
                    )
                    await _run_turn(runtime, key, request, lines, args.output_dir)
        return 0


async def _greeting(runtime: Runtime, key: SessionKey) -> str:
    session = await runtime.store.info(key)
    if session is None:
        return "A new conversation. /help shows the commands."
    return f"{printable(session.title) or key.id}: {turn_count(session.turn_count)} so far. /help shows the commands."


async def _run_turn(
    runtime: Runtime, key: SessionKey, request: TurnRequest, lines: LineReader, directory: Path | None
) -> None:
    """Run and show a turn. Ctrl-C cancels the turn, but not the conversation. Raises AgentKernelError for a turn that
    cannot start, if there is no user who could ask again."""
    answer = TerminalAnswer(sys.stdout, sys.stderr, quiet=False)
    turn = asyncio.create_task(show_turn(runtime, key, request, answer, lines.approve))
    with _interrupts(turn):
        try:
            await turn
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            answer.stop()
            lines.say("Stopped.")
            return
        except AgentKernelError as error:
            if lines.approve is None:
                raise
            lines.say(f"agent-kernel: {error}")  # the user can ask again
            return
    saved: list[Path] = []
    try:
        if directory is not None:
            await _save(runtime, key, answer.files, directory, saved)
    except OSError as error:
        lines.say(f"agent-kernel: {error.filename}: {error.strerror}.")
    answer.close(saved)


@contextlib.contextmanager
def _interrupts(turn: asyncio.Task[Any]) -> Iterator[None]:
    """Context manager in which Ctrl-C cancels the turn. Where event loops cannot handle signals (Windows), Ctrl-C ends
    the conversation."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, turn.cancel)
    except NotImplementedError:
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class LineReader(Protocol):
    """Reads the user's questions and decisions about calls, and shows messages."""

    async def read(self, prompt: str) -> str | None:
        """Show ``prompt`` and return the next line that the user enters, or None at the end of input."""

    @property
    def approve(self) -> AskUser | None:
        """A function that asks the user whether a call may run; None if no user can be asked."""

    def say(self, text: str) -> None:
        """Show the user a message that is not part of an answer."""


class PipedLines:
    """Reads each line of stdin as a question; no call can be approved."""

    approve = None

    async def read(self, prompt: str) -> str | None:
        line = await asyncio.to_thread(sys.stdin.readline)
        return line or None

    def say(self, text: str) -> None:
        """Do nothing: the messages are for a user at a terminal."""


class TerminalLines:
    """Reads lines that the user edits in a terminal. ``history`` is the file in which the entered lines are stored."""

    def __init__(self, history: Path) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory

        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        history.touch(mode=0o600)
        self._session: PromptSession[str] = PromptSession(history=FileHistory(str(history)))
        self._decisions: PromptSession[str] = PromptSession()

    async def read(self, prompt: str) -> str | None:
        while True:
            try:
                return await self._session.prompt_async(prompt)
            except KeyboardInterrupt:
                continue  # Ctrl-C discards the line
            except EOFError:
                return None

    async def approve(self, request: ApprovalRequired) -> Answer:
        session = "session" in request.remember
        question = f"Run it? [y]es, [n]o{', [s] yes for this conversation' if session else ''}: "
        try:
            reply = (await self._decisions.prompt_async(question)).strip().lower()
        except (KeyboardInterrupt, EOFError):
            reply = ""
        if session and reply in ("s", "session"):
            return Answer("approve", remember="session", shown=request.shown)
        return Answer("approve" if reply in ("y", "yes") else "deny", shown=request.shown)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


CHAT = Command("chat", "hold a conversation in the terminal", chat, (SESSION, OUTPUT_DIR, MODEL, EFFORT, DATA_DIR))


# ``agent-kernel ask``: answers one question in a terminal or a script, with the engine and the tools of the settings.
#
# The answer goes to stdout, so that it can be piped; progress, code and notices go to stderr. Code runs in the
# sandbox.


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
    answer = TerminalAnswer(sys.stdout, sys.stderr, quiet=args.json)
    try:
        return asyncio.run(_ask(args, question, answer))
    except KeyboardInterrupt:
        answer.stop()
        print("agent-kernel: The turn was stopped.", file=sys.stderr)
        return 130


def list_files_left_out(question: str, attached: Sequence[str]) -> list[str]:
    """Return the existing files that the question names and that are not among the ``attached`` ones."""
    names = dict.fromkeys(FILE_NAME.findall(question[:MAX_SEARCHED]))
    attached_paths = {os.path.realpath(file) for file in attached}
    return [name for name in names if os.path.isfile(name) and os.path.realpath(name) not in attached_paths]


async def _ask(args: argparse.Namespace, question: str, answer: TerminalAnswer) -> int:
    settings = settings_of(args)
    async with aclosing(import_runtime().Runtime.build(settings)) as runtime:
        key = SessionKey(settings.namespace or LOCAL, check_id(args.session) if args.session else new_id("session"))
        inputs = await _give(runtime, key, args.files)
        request = TurnRequest(
            question, model=args.model, effort=args.effort, inputs=inputs, instructions=settings.instructions
        )
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
    received: list[tuple[str, ReceivedFile]] = []
    given: list[str] = []
    try:  # all files are read before the session exists, so that a missing one leaves no empty session
        for file in files:
            name = STDIN_NAME if file == STDIN else Path(file).name
            received.append((name, await asyncio.to_thread(_receive, runtime.files.incoming(), file)))
        await runtime.store.create(key)
        for name, arrived in received:
            given.append((await runtime.files.receive(key, name, arrived)).id)
    finally:
        for _, arrived in received:
            arrived.remove()
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


ASK = Command("ask", "answer one question and print the answer", ask, ASK_ARGUMENTS)
