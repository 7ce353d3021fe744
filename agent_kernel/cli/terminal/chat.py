"""``agent-kernel chat``: a conversation in a terminal, with the engine and the tools of the settings.

Ctrl-C stops a turn and keeps the conversation, Ctrl-D ends it. Without a terminal, each line of stdin is a question and
nobody can approve a call. Code runs in the sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent_kernel.cli.base.command import Command, assembly, data_argument, settings_of
from agent_kernel.cli.base.output import printable
from agent_kernel.cli.base.store_access import LOCAL
from agent_kernel.cli.terminal.terminal_answer import AskPerson, TerminalAnswer, show_turn
from agent_kernel.core.events import ApprovalRequired
from agent_kernel.core.session import SessionKey, check_id, new_id
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.permissions.approval_answer import Answer

if TYPE_CHECKING:
    from agent_kernel.turn.runtime import Runtime

ANYBODY = frozenset({"*"})
HISTORY = "chat_history"
PROMPT = "> "
HELP = """\
Write a question and press Enter. Ctrl-C stops the answer, Ctrl-D ends the conversation.
  /new      begin a new conversation
  /session  show the id of this conversation (agent-kernel chat -s ID goes on with it)
  /help     show this text
  /exit     end, as Ctrl-D does"""


def chat_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-s", "--session", default="", help="the conversation to go on with or to begin (default: a new one)"
    )
    parser.add_argument(
        "--model", default="", help="a model or an engine of the settings, as %%%%agent --model takes it"
    )
    parser.add_argument("--effort", default="", choices=["quick", "auto", "thorough"], help="programs to compare")
    data_argument(parser)


def chat(args: argparse.Namespace) -> int:
    """Return 0, also if a turn failed: the conversation went on."""
    return asyncio.run(_chat(args))


async def _chat(args: argparse.Namespace) -> int:
    settings = settings_of(args)
    namespace = settings.namespace or LOCAL
    key = SessionKey(namespace, check_id(args.session) if args.session else new_id("session"))
    lines: LineReader = TerminalLines(settings.data_dir / HISTORY) if sys.stdin.isatty() else PipedLines()
    runtime = assembly().Runtime.build(settings)
    try:
        lines.say(await _greeting(runtime, key))
        while (question := await lines.read(PROMPT)) is not None:
            match question.strip():
                case "":
                    continue
                case "/exit":
                    break
                case "/help":
                    lines.say(HELP)
                case "/session":
                    lines.say(key.id)
                case "/new":
                    key = SessionKey(namespace, new_id("session"))
                    lines.say(f"A new conversation: {key.id}")
                case text:
                    request = TurnRequest(
                        text,
                        model=args.model,
                        effort=args.effort,
                        instructions=settings.instructions,
                        answers=ANYBODY if lines.approve else frozenset(),
                    )
                    await _run_turn(runtime, key, request, lines)
        return 0
    finally:
        await runtime.aclose()


async def _greeting(runtime: Runtime, key: SessionKey) -> str:
    session = await runtime.store.info(key)
    if session is None:
        return "A new conversation. /help shows the commands."
    return f"{printable(session.title) or key.id}: {session.turn_count} turns so far. /help shows the commands."


async def _run_turn(runtime: Runtime, key: SessionKey, request: TurnRequest, lines: LineReader) -> None:
    """Show the turn. Ctrl-C cancels it, and the conversation goes on."""
    answer = TerminalAnswer(sys.stdout, sys.stderr, quiet=False)
    turn = asyncio.create_task(show_turn(runtime, key, request, answer, lines.approve))
    with _interrupts(turn):
        try:
            await turn
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            lines.say("Stopped.")
            return
    answer.close(())


@contextlib.contextmanager
def _interrupts(turn: asyncio.Task[Any]) -> Iterator[None]:
    """Let Ctrl-C cancel the turn. Where event loops take no signals (Windows), it ends the conversation."""
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
    """Where questions and decisions come from."""

    async def read(self, prompt: str) -> str | None:
        """Return the next line, or None at the end."""

    @property
    def approve(self) -> AskPerson | None:
        """Asks the person whether the call that was shown may run; None if there is no person."""

    def say(self, text: str) -> None:
        """Tell the person something that is no answer."""


class PipedLines:
    """Each line of stdin is a question."""

    approve = None

    async def read(self, prompt: str) -> str | None:
        line = await asyncio.to_thread(sys.stdin.readline)
        return line or None

    def say(self, text: str) -> None:
        """Programs do not need it."""


class TerminalLines:
    """LineReader of a person, with editing and a history that the file ``history`` keeps."""

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
                continue  # Ctrl-C drops the line
            except EOFError:
                return None

    async def approve(self, asked: ApprovalRequired) -> Answer:
        session = "session" in asked.remember
        question = f"Run it? [y]es, [n]o{', [s] yes for this conversation' if session else ''}: "
        try:
            said = (await self._decisions.prompt_async(question)).strip().lower()
        except (KeyboardInterrupt, EOFError):
            said = ""
        if session and said in ("s", "session"):
            return Answer("approve", remember="session", shown=asked.shown)
        return Answer("approve" if said in ("y", "yes") else "deny", shown=asked.shown)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


CHAT = Command("chat", "hold a conversation in the terminal", chat_arguments, chat)
