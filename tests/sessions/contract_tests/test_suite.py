"""Tests that another project can run our contract with its own store."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MODULE = """
import pytest_asyncio
from agent_kernel.sessions.contract_tests.suite import *
from theirs import TheirStore

@pytest_asyncio.fixture
async def store(clock):
    made = TheirStore(clock=clock)
    yield made
    await made.aclose()
"""
THEIRS = """
from agent_kernel.sessions.store.memory import MemoryStore

class TheirStore(MemoryStore):
    async def unbind(self, namespace, root, path):
        return True
"""


def test_a_store_of_another_project_is_held_to_the_contract(tmp_path: Path) -> None:
    """It keeps all of this part but one promise, and is told which."""
    (tmp_path / "theirs.py").write_text(THEIRS)
    (tmp_path / "test_theirs.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nasyncio_mode = strict\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "binding or bound", "."]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "FAILED test_theirs.py::test_a_binding_is_taken_back" in ended.stdout
    assert "assert not await store.unbind" in ended.stdout
    assert re.search(r"\n1 failed, \d+ passed", ended.stdout)
