"""Tests that sessions are copied from a file into a shared store and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agent_kernel.core.session import Owner
from agent_kernel.sessions.contract_tests.fixtures import KEY, PNG, snapshot
from agent_kernel.sessions.contract_tests.snapshots import add_branches
from agent_kernel.sessions.export.store_copy import copy_stored_session
from agent_kernel.sessions.store.shared_store import SharedStore
from agent_kernel.sessions.store.sqlite import SqliteStore


async def test_a_session_that_went_through_a_shared_store_is_the_same(
    store: SharedStore, owner: Owner, tmp_path: Path
) -> None:
    first, last = SqliteStore(tmp_path / "first.db"), SqliteStore(tmp_path / "last.db")
    await add_branches(first, owner)
    assert (await copy_stored_session(first, store, KEY)).state == "copied"
    assert (await copy_stored_session(store, last, KEY)).state == "copied"
    whole, copied = await snapshot(first), await snapshot(last)
    assert replace(copied, summaries=()) == replace(whole, summaries=())
    assert await last.blob(KEY, PNG.hash) == PNG.data
    await first.aclose()
    await last.aclose()
