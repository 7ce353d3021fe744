"""``agent-kernel chat``: holds a conversation in a terminal, with the engine and the tools of the settings.

Ctrl-C stops a turn and keeps the conversation, Ctrl-D ends it. Without a terminal, each line of stdin is a question,
Ctrl-C ends the command, and only calls of the kinds that --allow names can be approved. Code runs in the sandbox,
which sees only files that go with a question.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_kernel.cli.base.command import DATA_DIR, Command, import_runtime, settings_of
from agent_kernel.cli.base.output import printable, turn_count
from agent_kernel.cli.base.store_access import LOCAL
from agent_kernel.cli.base.word_wrap import print_message
from agent_kernel.cli.terminal.call_approval import ALLOW, CallApproval, explain_missing_tools
from agent_kernel.cli.terminal.input_files import check_file, file_argument, give_files, list_files_left_out
from agent_kernel.cli.terminal.line_reader import LineReader, PipedLines, TerminalLines
from agent_kernel.cli.terminal.output_files import save_files
from agent_kernel.cli.terminal.terminal_answer import (
    EFFORT,
    MODEL,
    OUTPUT_DIR,
    SESSION,
    TerminalAnswer,
    show_turn,
)
from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.session import SessionKey, check_id, new_id

if TYPE_CHECKING:
    from agent_kernel.turn.server_runtime import Runtime

HISTORY = "chat_history"
PROMPT = "> "
UNKNOWN = re.compile(r"/[a-z-]+")
"""Matches a line that looks like a command. It does not match paths such as ``/data/rain.csv``, which may be part of a
question."""
HELP = """\
Write a question and press Enter. Several pasted lines are one question.
  Esc, Enter  begin a new line in the question
  Ctrl-C      stop the answer
  Ctrl-D      end the conversation
  /file X     let the file X go with the next question
  /new        begin a new conversation
  /session    show its id; agent-kernel chat -s ID continues it
  /help       show this text
  /exit       end, as Ctrl-D does"""


def chat(args: argparse.Namespace) -> int:
    """Hold the conversation and return 0, even if a turn failed."""
    return asyncio.run(_chat(args))


async def _chat(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    lines: LineReader = TerminalLines(settings.data_dir / HISTORY) if sys.stdin.isatty() else PipedLines()
    async with contextlib.aclosing(import_runtime().Runtime.build(settings)) as runtime:
        conversation = Conversation(runtime, args, lines)
        for file in args.files:
            check_file(file)
        if missing := explain_missing_tools(args.allow, settings):
            print_message(f"agent-kernel: {missing}")
        lines.say(await conversation.greeting())
        while (question := await lines.read(PROMPT)) is not None:
            match question.strip():
                case "":
                    continue
                case "/exit" | "/quit" | "exit" | "quit":
                    break
                case "/help":
                    lines.say(HELP)
                case "/session":
                    lines.say(conversation.key.id)
                case "/new":
                    conversation.begin_new()
                case "/file":
                    lines.say("Name a file: /file sales.csv")
                case command if command.startswith("/file "):
                    conversation.add_file(command.removeprefix("/file ").strip())
                case command if UNKNOWN.fullmatch(command):
                    lines.say(f"There is no command {command}. /help shows the commands.")
                case text:
                    await conversation.ask(text)
        return 0


class Conversation:
    """The session that the user's questions belong to, and the files that go with the next question."""

    def __init__(self, runtime: Runtime, args: argparse.Namespace, lines: LineReader) -> None:
        self._runtime = runtime
        self._args = args
        self._lines = lines
        self._approval = CallApproval(args.allow, lines.read_reply)
        self._waiting: list[str] = [*args.files]
        self._given: set[str] = set()
        id = check_id(args.session) if args.session else new_id("session")
        self.key = SessionKey(runtime.settings.namespace or LOCAL, id)

    async def greeting(self) -> str:
        session = await self._runtime.store.info(self.key)
        if session is None:
            return "A new conversation. /help shows the commands."
        turns = turn_count(session.turn_count)
        return f"{printable(session.title) or self.key.id}: {turns} so far. /help shows the commands."

    def begin_new(self) -> None:
        self.key = SessionKey(self.key.namespace, new_id("session"))
        self._given.clear()
        self._lines.say(f"A new conversation: {self.key.id}")

    def add_file(self, text: str) -> None:
        """Let a file go with the next question. The name may be in quotes, and may begin with ``~``."""
        quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
        file = os.path.expanduser(text[1:-1] if quoted else text)
        try:
            check_file(file)
        except InvalidRequest as error:
            self._lines.say(f"agent-kernel: {error}")
            return
        self._waiting.append(file)
        self._lines.say(f"{printable(file)} goes with your next question.")

    async def ask(self, question: str) -> None:
        """Run and show a turn. Ctrl-C cancels the turn, but not the conversation. Raises AgentKernelError for a turn
        that cannot start, if there is no user who could ask again."""
        if left_out := list_files_left_out(question, {*self._waiting, *self._given}):
            commands = printable(", ".join(f"/file {name}" for name in left_out))
            self._lines.say(f"The agent sees only files that you give it. To send yours, enter: {commands}")
        answer = TerminalAnswer(sys.stdout, sys.stderr, quiet=False)
        turn = asyncio.create_task(self._run_turn(question, answer))
        with _interrupts(turn):
            try:
                await turn
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    raise
                answer.stop()
                if self._lines.read_reply is None:
                    raise KeyboardInterrupt from None  # the questions come from a program, so the command ends
                self._lines.say("Stopped.")
                return
            except AgentKernelError as error:
                if self._lines.read_reply is None:
                    raise
                self._lines.say(f"agent-kernel: {error}")  # the user can ask again
                return
        answer.close(await self._save(answer))

    async def _run_turn(self, question: str, answer: TerminalAnswer) -> None:
        # A file that cannot be read fails one question only, and not each question after it.
        files, self._waiting = self._waiting, []
        inputs = await give_files(self._runtime, self.key, files)
        self._given.update(files)
        await show_turn(self._runtime, self.key, question, inputs, answer, args=self._args, approval=self._approval)

    async def _save(self, answer: TerminalAnswer) -> list[Path]:
        saved: list[Path] = []
        try:
            if self._args.output_dir is not None:
                await save_files(self._runtime, self.key, answer, self._args.output_dir, saved)
        except OSError as error:
            self._lines.say(f"agent-kernel: {error.filename}: {error.strerror}.")
        return saved


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


FILES = file_argument("an input file, which goes with the first question; may be repeated")
CHAT_ARGUMENTS = (FILES, SESSION, OUTPUT_DIR, MODEL, EFFORT, ALLOW, DATA_DIR)
CHAT = Command("chat", "hold a conversation in the terminal", chat, CHAT_ARGUMENTS)
