"""Tests that lists in a terminal break between words at its width, and that a program gets whole lines."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.cli.conftest import Command

KEY = SessionKey("local", "rain")
COMMANDS = [("model", "list"), ("model", "recommend"), ("sessions", "search", "umbrella")]


async def fill_store(store: SqliteStore) -> None:
    await store.create(KEY, "Precipitation measurements of the northwestern neighbourhoods of Seattle")
    question = "Which neighbourhoods need an umbrella, considering the measurements of yesterday's precipitation?"
    await store.add_turn(Turn("t1", KEY), [user(question)])


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_list_breaks_between_words_at_the_width_of_the_terminal(
    command: Command, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    command.on_store(fill_store)
    env = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    whole = command(*arguments).out
    shown = run_in_terminal([sys.executable, "-m", "agent_kernel", *arguments], env)
    assert max(map(len, whole.splitlines())) > 80
    assert max(map(len, shown.splitlines())) <= 80
    words = {word for word in re.findall(r"\S+", whole) if len(word) <= 15}
    assert words <= set(shown.split())


def run_in_terminal(command: list[str], env: dict[str, str]) -> str:
    reading, terminal = pty.openpty()
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.DEVNULL)
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(reading, 65536):
            shown += chunk
    except OSError:  # the terminal was closed, because the command has ended
        pass
    os.close(reading)
    assert process.wait(60) == 0
    return re.sub(r"\x1b\[[\d;]*m", "", shown.decode()).replace("\r\n", "\n")
