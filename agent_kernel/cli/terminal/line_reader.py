"""Reads the lines that a user enters in a terminal, or that a program writes to standard input."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

ReadReply: TypeAlias = Callable[[str], Awaitable[str]]
"""A function that shows a question to the user and returns the reply; an empty text if the user gives none."""


class LineReader(Protocol):
    """Reads the user's questions and decisions about calls, and shows messages."""

    async def read(self, prompt: str) -> str | None:
        """Show ``prompt`` and return the next line that the user enters, or None at the end of input."""

    @property
    def read_reply(self) -> ReadReply | None:
        """A function that asks the user a short question; None if there is no user."""

    def say(self, text: str) -> None:
        """Show the user a message that is not part of an answer."""


class PipedLines:
    """Reads each line of stdin as a question; no call can be approved."""

    read_reply = None

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
        self._replies: PromptSession[str] = PromptSession()

    async def read(self, prompt: str) -> str | None:
        while True:
            try:
                return await self._session.prompt_async(prompt)
            except KeyboardInterrupt:
                continue  # Ctrl-C discards the line
            except EOFError:
                return None

    async def read_reply(self, question: str) -> str:
        return await _read_reply(self._replies, question)

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


async def read_reply_beside_output(question: str) -> str:
    """Ask on stderr and read the reply from the terminal, also if stdin and stdout are pipes or files."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input import create_input
    from prompt_toolkit.output import create_output

    terminal = create_input(always_prefer_tty=True)
    return await _read_reply(PromptSession(input=terminal, output=create_output(sys.stderr)), question)


async def _read_reply(session: PromptSession[str], question: str) -> str:
    try:
        return await session.prompt_async(question)
    except (KeyboardInterrupt, EOFError):
        return ""
