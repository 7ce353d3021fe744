"""Tests files of a request: each is stored in the session once, however often it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import FileNotFound, InvalidRequest
from agent_kernel.core.files import File
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.sessions.store.sqlite import SqliteStore
from jupyter_ext.auth.callers import Caller
from jupyter_ext.turns.dialect_request import SubmittedFile
from jupyter_ext.turns.turn_input_files import TurnInputs

KEY = SessionKey("local", "s")
CALLER = Caller("local")
A, B = SubmittedFile(name="a.txt", data=b"one"), SubmittedFile(name="b.txt", data=b"two")


class Counting(FileRegistry):
    listings = 0
    written = 0

    async def files(self, key: SessionKey) -> list[File]:
        self.listings += 1
        return await super().files(key)

    def incoming(self) -> Any:
        self.written += 1
        return super().incoming()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "s.db")
    yield made
    await made.aclose()


@pytest.fixture
def files(store: SqliteStore, tmp_path: Path) -> Counting:
    return Counting(store, tmp_path / "incoming", output_bytes=1000, upload_bytes=1000)


def inputs_of(store: SqliteStore, files: FileRegistry | None) -> TurnInputs:
    nobody: Any = None
    return TurnInputs(store, files, nobody)


async def test_files_that_are_repeated_are_listed_once_and_not_written_again(
    store: SqliteStore, files: Counting
) -> None:
    inputs = inputs_of(store, files)
    first = await inputs.add(CALLER, KEY, [A, B, A])
    assert first == (first[0], first[1], first[0])
    assert len(set(first)) == 2
    listings, written = files.listings, files.written
    assert await inputs.add(CALLER, KEY, [B, A, B]) == (first[1], first[0], first[1])
    assert (files.listings - listings, files.written - written) == (1, 0)
    other = await inputs.add(CALLER, KEY, [SubmittedFile(name="a.txt", data=b"changed"), SubmittedFile(id=first[1])])
    assert other[0] not in first
    assert other[1] == first[1]


async def test_a_store_that_keeps_no_files_says_so_of_a_file_with_its_bytes(store: SqliteStore) -> None:
    inputs = inputs_of(store, None)
    with pytest.raises(InvalidRequest, match="cannot store files"):
        await inputs.add(CALLER, KEY, [A])
    assert await store.info(KEY) is None
    with pytest.raises(FileNotFound, match="file_1"):
        await inputs.add(CALLER, KEY, [SubmittedFile(id="file_1")])
