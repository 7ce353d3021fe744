"""Helpers for tests of the SQLite file: its rows, its locks, and other processes on it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

from agent_kernel.core.messages import user
from agent_kernel.core.session import Owner
from agent_kernel.sessions.store import schema_migration
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.narrowing import not_none
from tests.sessions.talk import Talk

ROOT = Path(__file__).parents[2]


class Child:
    """Another process on the same file. It runs ``code`` in an async function, with ``path``, ``owner`` and the names
    of this module. Its lines are what it prints.
    """

    def __init__(self, path: Path, code: str) -> None:
        body = textwrap.indent(textwrap.dedent(code), "    ")
        program = (
            "import asyncio, os, sys, time\n"
            "from agent_kernel.core.errors import *\n"
            "from agent_kernel.core.messages import *\n"
            "from agent_kernel.core.session import *\n"
            "from agent_kernel.sessions.store.sqlite import SqliteStore\n"
            "from tests.sessions.talk import *\n"
            f"async def main():\n    store = SqliteStore({str(path)!r})\n    owner = Owner.here()\n{body}\n"
            "    await store.aclose()\n"
            "asyncio.run(main())\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        return not_none(self.process.stdout).readline().strip()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            not_none(pipe).close()

    def done(self) -> str:
        text, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0
        return text


Start: TypeAlias = Callable[[str], Child]


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def writable_at_once(path: Path) -> bool:
    """Return True if no transaction is open on the file; otherwise SQLite raises an error."""
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    return True


NEXT = "ALTER TABLE sessions ADD COLUMN note TEXT NOT NULL DEFAULT 'none';\nCREATE TABLE extra (x);"
"""A migration that changes a table and adds one."""


def migrate(path: Path, *more: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema_migration.migrate(connection, path, [*schema_migration.migration_scripts(), *more])


async def made(path: Path) -> None:
    store = SqliteStore(path)
    talk = await Talk.begin(store, Owner.here())
    await talk.say(user("hello"))
    await talk.close()
    await store.aclose()
