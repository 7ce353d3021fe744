"""Tests ``agent-kernel sessions copy`` with files that the installed packages write during the test."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_kernel.cli import main
from agent_kernel.sessions.store.sqlite import SqliteStore
from tests.sessions.adapters.framework_samples import (
    AGENTS,
    SELECTOOLS,
    Read,
    expected,
    read_as_agents_sdk,
    read_as_selectools,
    with_every_field,
)

ROOT = Path(__file__).parents[2]


def make(python: str, framework: str, directory: Path) -> None:
    command = [python, "-m", f"tests.peers.{framework}.sample_files", str(directory)]
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    subprocess.run(command, cwd=ROOT, env=env, check=True, timeout=120)


def copy_and_read(scheme: str, file: Path, store: Path, read: Callable[[SqliteStore, Path], Awaitable[Read]]) -> Read:
    """Copy ``file`` to a new store, and return what ``read`` reads from that store."""
    assert main(["sessions", "copy", f"{scheme}:{file}", f"sqlite:{store}"]) == 0

    async def run() -> Read:
        async with aclosing(SqliteStore(store)) as opened:
            return await read(opened, file)

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def _data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KERNEL_DATA_DIR", str(tmp_path / "data"))


def test_what_openai_agents_writes_is_read_as_it_reads_it(agents_python: str, tmp_path: Path) -> None:
    make(agents_python, "agents_sdk", tmp_path)
    for name in AGENTS:
        file = tmp_path / name
        read = copy_and_read("openai-agents", file, tmp_path / f"copy-{name}", read_as_agents_sdk)
        assert read == expected(file)


def test_what_selectools_writes_is_loaded_as_it_loads_it(selectools_python: str, tmp_path: Path) -> None:
    make(selectools_python, "selectools", tmp_path)
    for name in SELECTOOLS:
        file = tmp_path / name
        read = copy_and_read("selectools", file, tmp_path / f"copy-{name}", read_as_selectools)
        assert with_every_field(read) == with_every_field(expected(file))
