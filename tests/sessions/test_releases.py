"""Tests two releases on one file: nothing is lost, and nothing is written that the other one would misread."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_kernel.core.errors import StoreCorrupt
from agent_kernel.core.messages import user
from agent_kernel.core.session import Turn
from agent_kernel.sessions.store import schema_migration
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.narrowing import not_none
from tests.sessions.file import NEXT, ROOT, made, migrate, rows
from tests.sessions.talk import KEY

SECOND = "agent_kernel/sessions/migrations/0002_branches.sql"
"""Where the second version of the file was added; OLD imports what that release had."""
OLD = """
import asyncio, sys
from agent_kernel.errors import AgentKernelError
from agent_kernel.messages import user
from agent_kernel.sessions.model import Owner, SessionKey, Turn
from agent_kernel.sessions.sqlite import SqliteStore

async def say(store, text, seq):
    owner, key = Owner.here(), SessionKey("local", "s")
    turn = await store.open_turn(Turn("turn-" + text, key), owner)
    await store.append(turn, owner, [user(text)], seq)
    await store.close_turn(turn, owner, "committed")

async def main():
    store = SqliteStore(sys.argv[1])
    try:
        if sys.argv[2] == "read":
            print(await store.info(SessionKey("local", "s")))
            return
        await store.create(SessionKey("local", "s"), "of the older")
        await say(store, "before", 0)
        print("open", flush=True)
        sys.stdin.readline()
        await say(store, "after", 1)
        print("written", flush=True)
    except AgentKernelError as error:
        print(type(error).__name__, error, flush=True)
    finally:
        await store.aclose()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it was before the second version of the file format."""
    place = tmp_path_factory.mktemp("older")
    log = subprocess.run(
        ["git", "log", "--diff-filter=A", "--format=%H", "--", SECOND],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    commits = log.stdout.split()
    if not commits:
        pytest.skip("the history of the project is not here")
    archive = subprocess.run(
        ["git", "archive", f"{commits[-1]}^", "agent_kernel"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip("the history of the project is cut off before the release that is needed")
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True)
    return place


def start(older: Path, path: Path, what: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(older)}
    command = [sys.executable, "-c", OLD, str(path), what]
    pipes = subprocess.PIPE
    return subprocess.Popen(command, cwd=older, env=env, stdin=pipes, stdout=pipes, text=True)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def test_an_older_release_refuses_a_newer_file_and_changes_nothing(older: Path, path: Path) -> None:
    await made(path)
    before = digest(path)
    told, _ = start(older, path, "read").communicate(timeout=60)
    assert told.startswith("StoreCorrupt")
    assert (
        f"written by a newer agent-kernel (format {len(schema_migration.migration_scripts())}, this one knows 1)"
        in told
    )
    assert "Nothing was changed." in told
    assert digest(path) == before
    assert [file.name for file in path.parent.iterdir() if ".bak" in file.name] == []


async def test_a_newer_release_opens_an_older_file_while_the_older_has_it_open(older: Path, path: Path) -> None:
    path.parent.mkdir()
    running = start(older, path, "write")
    assert not_none(running.stdout).readline() == "open\n"
    store = SqliteStore(path)
    assert [item.message.text for item in await store.latest(KEY)] == ["before"]
    assert path.with_name(f"{path.name}.bak-v1").exists()
    told, _ = running.communicate("go on\n", timeout=60)
    assert told == "written\n", "a release from before the check goes on, and what it writes still fits"
    assert [item.message.text for item in await store.latest(KEY)] == ["before", "after"]
    await store.add_turn(Turn("newer", KEY), [user("newer")])
    assert await store.verify() == []
    assert [branch.turns for branch in await store.branches(KEY)] == [3]
    await store.aclose()


async def test_a_release_writes_no_more_to_a_file_that_was_upgraded_beneath_it(path: Path) -> None:
    store = SqliteStore(path)
    await store.create(KEY, "mine")
    migrate(path, NEXT)
    with pytest.raises(StoreCorrupt, match="written by a newer agent-kernel"):
        await store.rename(KEY, "other")
    assert not_none(await store.info(KEY)).title == "mine"
    assert rows(path, "SELECT note FROM sessions") == [("none",)]
    await store.aclose()
