"""Tests the contract itself: for each behaviour, a store that lacks it fails the contract's test of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from agent_kernel.sessions.contract_tests import maintenance, snapshots

MODULE = """
import pytest_asyncio
from agent_kernel.sessions.contract_tests.maintenance import *
from agent_kernel.sessions.contract_tests.suite import *
from broken import CLASSES

@pytest_asyncio.fixture
async def store(clock, request):
    made = CLASSES[request.node.name](clock=clock)
    yield made
    await made.aclose()
"""
HEAD = """
from dataclasses import replace as changed
from agent_kernel.sessions.store.memory import MemoryStore

CLASSES = {}

class Plain(MemoryStore):
    def __init_subclass__(cls):
        CLASSES[cls.__name__] = cls
"""
BROKEN = {
    "test_a_whole_session_has_all_branches_and_no_bytes": """
    async def whole(self, key):
        whole = await super().whole(key)
        return whole and changed(whole, items=tuple(await self.latest(key)))
""",
    "test_a_restored_session_is_the_one_that_was_read": """
    async def restore(self, whole, blobs, *, replace=False):
        return await super().restore(changed(whole, summaries=()), blobs, replace=replace)
""",
    "test_a_restored_session_goes_on_with_new_numbers": """
    async def restore(self, whole, blobs, *, replace=False):
        session = changed(whole.session, head=4)
        return await super().restore(changed(whole, session=session), blobs, replace=replace)
""",
    "test_a_restored_session_is_found_by_its_words": """
    async def search(self, namespace, query):
        return []
""",
    "test_a_turn_that_was_open_must_be_closed_in_the_copy": """
    async def restore(self, whole, blobs, *, replace=False):
        turns = tuple(changed(turn, state="interrupted") for turn in whole.turns)
        return await super().restore(changed(whole, turns=turns), blobs, replace=replace)
""",
    "test_a_session_is_not_restored_over_another_one": """
    async def restore(self, whole, blobs, *, replace=False):
        return await super().restore(whole, blobs, replace=True)
""",
    "test_a_session_without_the_bytes_of_its_media_is_not_restored": """
    async def restore(self, whole, blobs, *, replace=False):
        await self.create(whole.session.key)
        return await super().restore(whole, blobs, replace=True)
""",
    "test_a_session_that_is_replaced_keeps_its_notebooks_and_nothing_else": """
    async def restore(self, whole, blobs, *, replace=False):
        await self.delete(whole.session.key)
        return await super().restore(whole, blobs)
""",
    "test_a_replacement_that_fails_changes_nothing": """
    async def restore(self, whole, blobs, *, replace=False):
        if replace:
            await self.delete(whole.session.key)
        return await super().restore(whole, blobs)
""",
    "test_replace_restores_a_session_that_does_not_exist": """
    async def restore(self, whole, blobs, *, replace=False):
        if replace and await self.info(whole.session.key) is None:
            raise Conflict("There is nothing to replace.")
        return await super().restore(whole, blobs, replace=replace)
""",
    "test_a_session_with_an_open_turn_is_not_replaced": """
    async def restore(self, whole, blobs, *, replace=False):
        for turn in await self.turns(whole.session.key):
            await self.close_turn(turn, self.last, "interrupted", "replaced")
        return await super().restore(whole, blobs, replace=replace)

    async def open_turn(self, turn, owner):
        self.last = owner
        return await super().open_turn(turn, owner)
""",
    "test_cleared_outputs_are_replaced_and_their_media_removed": """
    async def clear_outputs(self, key, turns, text):
        every = [turn.id for turn in (await self.everything(key))[0]]
        return await super().clear_outputs(key, every, text)
""",
    "test_outputs_of_an_open_or_unknown_session_are_not_cleared": """
    async def clear_outputs(self, key, turns, text):
        return await super().clear_outputs(key, turns, text) if await self.info(key) else 0
""",
    "test_a_store_in_use_has_no_faults": """
    async def verify(self, namespace=None):
        faults = [self.fault(turn) for turn in (await self.everything(KEY))[0] if turn.state == "open"]
        return faults + await super().verify(namespace)

    def fault(self, turn):
        from agent_kernel.core.session import StoreFault
        return StoreFault("local", "s", "no_result", turn.id)
""",
    "test_a_vacuum_changes_no_conversation": """
    async def vacuum(self):
        await self.pop(KEY)
        return await super().vacuum()
""",
    "test_the_numbers_are_of_one_namespace_or_of_all": """
    async def stats(self, namespace=None):
        return await super().stats()
""",
    "test_the_bindings_are_of_one_namespace_or_of_all": """
    async def bindings(self, namespace=None):
        return await super().bindings()
""",
    "test_sessions_that_were_not_used_are_the_longest_unused_first": """
    async def idle(self, until):
        return (await super().idle(until))[::-1]
""",
    "test_sessions_beyond_the_number_are_the_longest_unused_of_each_namespace": """
    async def excess(self, cap, namespace=None):
        return await super().excess(cap, namespace or "local")
""",
}


def test_every_broken_store_fails_the_test_of_what_it_lacks(tmp_path: Path) -> None:
    classes = [f"class {name}(Plain):{body}" for name, body in BROKEN.items()]
    imports = (
        "from agent_kernel.core.errors import Conflict\nfrom agent_kernel.sessions.contract_tests.fixtures import KEY\n"
    )
    (tmp_path / "broken.py").write_text(imports + HEAD + "\n".join(classes))
    (tmp_path / "test_broken.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nasyncio_mode = strict\n")
    names = [f"test_broken.py::{name}" for name in BROKEN]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    failed = set(re.findall(r"^FAILED test_broken\.py::(\w+)", ended.stdout, re.M))
    assert set(BROKEN) - failed == set(), ended.stdout
    assert "AttributeError" not in ended.stdout, "the stores are broken only in what they say"


def test_every_test_of_whole_sessions_and_of_maintenance_has_a_broken_store() -> None:
    tests = {name for module in (maintenance, snapshots) for name in vars(module) if name.startswith("test_")}
    assert tests == set(BROKEN)
