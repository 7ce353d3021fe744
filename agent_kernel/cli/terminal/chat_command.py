"""``agent-kernel chat``: holds a conversation in a terminal, with the engine and the tools of the settings.

Ctrl-C stops a turn and keeps the conversation, Ctrl-D ends it. Without a terminal, each line of stdin is a question and
only calls of the kinds that --allow names can be approved. Code runs in the sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_kernel.cli.base.command import DATA_DIR, Command, import_runtime, settings_of
from agent_kernel.cli.base.output import printable, turn_count
from agent_kernel.cli.base.store_access import LOCAL
from agent_kernel.cli.terminal.call_approval import ALLOW, ANYBODY, CallApproval
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
from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.session import SessionKey, check_id, new_id
from agent_kernel.core.turn_request import TurnRequest

if TYPE_CHECKING:
    from agent_kernel.turn.server_runtime import Runtime

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
                        answers=ANYBODY,
                    )
                    await _run_turn(runtime, key, request, lines, args)
        return 0


async def _greeting(runtime: Runtime, key: SessionKey) -> str:
    session = await runtime.store.info(key)
    if session is None:
        return "A new conversation. /help shows the commands."
    return f"{printable(session.title) or key.id}: {turn_count(session.turn_count)} so far. /help shows the commands."


async def _run_turn(
    runtime: Runtime, key: SessionKey, request: TurnRequest, lines: LineReader, args: argparse.Namespace
) -> None:
    """Run and show a turn. Ctrl-C cancels the turn, but not the conversation. Raises AgentKernelError for a turn that
    cannot start, if there is no user who could ask again."""
    answer = TerminalAnswer(sys.stdout, sys.stderr, quiet=False)
    approval = CallApproval(args.allow, lines.read_reply)
    turn = asyncio.create_task(show_turn(runtime, key, request, answer, approval))
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
            if lines.read_reply is None:
                raise
            lines.say(f"agent-kernel: {error}")  # the user can ask again
            return
    saved: list[Path] = []
    try:
        if args.output_dir is not None:
            await save_files(runtime, key, answer.files, args.output_dir, saved)
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


CHAT = Command(
    "chat", "hold a conversation in the terminal", chat, (SESSION, OUTPUT_DIR, MODEL, EFFORT, ALLOW, DATA_DIR)
)
