"""Reads the lines that a user enters in a terminal, or that a program writes to standard input."""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from agent_kernel.cli.base.word_wrap import print_message

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.key_binding.key_processor import KeyPress

CONTINUATION = "  "
"""Stands before the lines of a question after the first, below the prompt ``> ``."""
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
    """Reads questions of one or several lines that the user edits in a terminal. ``history`` is the file in which they
    are stored."""

    def __init__(self, history: Path) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory

        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        history.touch(mode=0o600)
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)), key_bindings=_line_keys(), prompt_continuation=CONTINUATION
        )
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
        print_message(text)


def _line_keys() -> KeyBindings:
    """Return the keys that end a line of a question. Esc followed by Enter does, and so does each line end in a pasted
    text: a terminal without bracketed paste sends it as Enter, with the next characters right behind it."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        if any(map(_is_text, event.key_processor.input_queue)) or _has_typed_more(event.app.input.fileno()):
            event.current_buffer.insert_text("\n")
        else:
            event.current_buffer.validate_and_handle()

    return keys


def _is_text(key: KeyPress) -> bool:
    """Return whether the key is a character or Enter; terminals also send answers to requests as keys."""
    return key.key == key.data or key.data in ("\r", "\n")


def _has_typed_more(terminal: int) -> bool:
    """Return whether the terminal has characters that were not read yet. Windows cannot say so."""
    return sys.platform != "win32" and bool(select.select([terminal], [], [], 0)[0])


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
