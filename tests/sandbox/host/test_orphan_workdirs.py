"""Tests that work directories of deleted sessions are removed, whoever deleted the session and however the server
ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_kernel.core.session import SessionKey
from agent_kernel.core.settings import Settings
from agent_kernel.sandbox.host import orphan_workdirs
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sessions.store.private_store import private_id
from agent_kernel.turn.server_runtime import Runtime

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
KEPT, GONE = SessionKey("local", "kept"), SessionKey("local", "gone")


def settings(tmp_path: Path) -> Settings:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "ok", "loop": true}]')
    return Settings.from_env({}, engine="scripted", script=str(script), store="files", data_dir=str(tmp_path / "data"))


def directories(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "data" / "work").iterdir() if path.is_dir()}


async def swept(tmp_path: Path, want: set[str]) -> None:
    """Start a server and wait until it has removed the orphaned directories."""
    runtime = Runtime.build(settings(tmp_path))
    await runtime.start()
    async with aclosing(runtime):
        for _ in range(1_200):
            if directories(tmp_path) == want:
                break
            await asyncio.sleep(0.05)
        assert directories(tmp_path) == want


async def test_a_server_removes_what_belongs_to_no_session_and_nothing_else(tmp_path: Path) -> None:
    runtime = Runtime.build(settings(tmp_path))
    sandbox = runtime.sandbox
    assert isinstance(sandbox, LinuxSandbox)
    private = SessionKey("local", private_id())
    async with aclosing(runtime):
        for key in (KEPT, GONE, private):
            await sandbox.run(key, "open('f', 'w')")
        await runtime.store.create(KEPT)
    unknown = tmp_path / "data" / "work" / "of-somebody-else"
    unknown.mkdir()
    await swept(tmp_path, {sandbox.workdir(KEPT).name, unknown.name})
    assert not list((tmp_path / "data" / "work").glob(f"{sandbox.workdir(GONE).name}*"))


async def test_what_another_living_server_uses_is_left_alone(tmp_path: Path) -> None:
    work = tmp_path / "data" / "work"
    work.mkdir(parents=True)
    private = SessionKey("local", private_id())
    for name, change in (("here", {"pid": 1, "started": ""}), ("elsewhere", {"machine": "another"})):
        (work / name).mkdir()
        orphan_workdirs.write_note(work / name, private)
        place = (work / name).with_suffix(orphan_workdirs.NOTE)
        place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    (work / "broken").mkdir()
    (work / f"broken{orphan_workdirs.NOTE}").write_text("nonsense")
    found = {left.workdir.name: left.idle for left in orphan_workdirs.find_orphans(work)}
    assert found == {"here": False, "elsewhere": False}
    await swept(tmp_path, {"here", "elsewhere", "broken"})


def test_a_note_of_a_process_that_is_gone_is_idle(tmp_path: Path) -> None:
    orphan_workdirs.write_note(tmp_path / "one", KEPT)
    (mine,) = orphan_workdirs.find_orphans(tmp_path)
    assert (mine.key, mine.idle) == (KEPT, True)
    place = tmp_path / f"one{orphan_workdirs.NOTE}"
    gone = {**json.loads(place.read_text()), "pid": os.getpid(), "started": "1"}
    place.write_text(json.dumps(gone))
    assert orphan_workdirs.find_orphans(tmp_path)[0].idle
    orphan_workdirs.forget(tmp_path / "one")
    assert list(tmp_path.iterdir()) == []
