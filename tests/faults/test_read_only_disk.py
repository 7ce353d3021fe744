"""Tests conversations on a disk that cannot be written, such as a backup or a snapshot."""

from __future__ import annotations

import subprocess
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_kernel.cli import main
from agent_kernel.core.errors import StoreError
from agent_kernel.core.messages import Usage, assistant, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.turn.turn_writer import TurnWriter
from tests.faults.conftest import SmallDisk

KEY = SessionKey("local", "s1")


@pytest.fixture
async def backup(small_disk: SmallDisk) -> Path:
    """A data directory with one conversation, on a read-only disk."""
    disk = small_disk("data", 8)
    store = SqliteStore(disk / "sessions.db")
    await store.create(KEY)
    opened = await TurnWriter(store).begin(Turn("t1", KEY))
    await opened.append([user("hello"), assistant("Good day.")])
    await opened.close("committed", "", Usage())
    await store.aclose()
    make_read_only(disk)
    return disk


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


async def test_conversations_on_a_read_only_disk_are_read_and_not_changed(backup: Path) -> None:
    async with aclosing(SqliteStore(backup / "sessions.db")) as store:
        _, items = await store.everything(KEY)
        assert [item.message.text for item in items] == ["hello", "Good day."]
        with pytest.raises(StoreError, match="readonly"):
            await store.rename(KEY, "other")
        assert await store.everything(KEY) == (await store.turns(KEY), items)


@pytest.mark.parametrize(
    "command", [*(f"sessions {name}" for name in ("list", "show s1", "export s1", "search day", "usage")), "where"]
)
def test_commands_that_only_read_work_on_a_read_only_disk(
    backup: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--data-dir", str(backup)]) == 0
    assert capsys.readouterr().err == ""


async def test_a_journal_that_can_not_be_read_is_named_and_not_ignored(small_disk: SmallDisk) -> None:
    disk = small_disk("data", 8)
    store = SqliteStore(disk / "sessions.db")
    await store.create(KEY)
    (disk / "copy").mkdir()
    for name in ("sessions.db", "sessions.db-wal"):
        (disk / "copy" / name).write_bytes((disk / name).read_bytes())
    await store.aclose()
    make_read_only(disk)
    killed = SqliteStore(disk / "copy" / "sessions.db")
    with pytest.raises(StoreError, match="-wal beside it may hold the last changes") as refused:
        await killed.info(KEY)
    assert f"Copy {disk / 'copy'} to a disk that can be written" in refused.value.hint
    await killed.aclose()
