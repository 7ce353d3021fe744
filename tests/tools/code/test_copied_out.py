"""Tests files that code leaves in a real sandbox on their way into a real store: bounded by size, time and free disk
space.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core import file_receiver
from agent_kernel.core.events import EventBody, FileProduced
from agent_kernel.core.files import ProducedFile
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext
from agent_kernel.core.session import SessionKey
from agent_kernel.permissions.approvals import Approvals
from agent_kernel.permissions.gate import Gate
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.tools.code.python import SandboxPython
from agent_kernel.tools.code.sandbox_environment import SandboxEnvironment
from agent_kernel.turn.tool_executor import RoundPosition, Toolbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")

MIB = 1 << 20
KEY = SessionKey("local", "s")
SPARSE = """
import shutil
for number in range(60):
    with open(f'hole-{number:02}.bin', 'wb') as file:
        file.write(str(number).encode())
        file.truncate(32 << 20)
print(sum(os.stat(name).st_blocks for name in os.listdir()) * 512 < 1 << 20)
"""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "store" / "s.db")
    await made.create(KEY)
    yield made
    await made.aclose()


def registry(store: SqliteStore, tmp_path: Path, output_mb: int = 256) -> FileRegistry:
    return FileRegistry(store, tmp_path / "store" / "incoming", output_bytes=output_mb * MIB, upload_bytes=MIB)


async def ran(files: FileRegistry, work_root: Path, code: str) -> tuple[str, list[dict[str, Any]]]:
    """Return what the model reads of one call in the sandbox, and the files that the call produced."""
    async with aclosing(LinuxSandbox(work_root, SandboxPolicy(warm=0))) as sandbox:
        toolbox = Toolbox([SandboxPython(SandboxEnvironment(sandbox))], Gate(Approvals()), files)
        events: list[EventBody] = []
        call = ToolCall("c", "python", {"code": code})
        async with aclosing(toolbox.run([call], RoundPosition(KEY, "turn-1", 1), events.append)) as results:
            (answer,) = [message async for message in results]
        return answer.text, [dict(event.file) for event in events if isinstance(event, FileProduced)]


def on_disk(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


async def test_holes_of_sparse_files_become_no_content_of_the_store(store: SqliteStore, tmp_path: Path) -> None:
    """Some KB in the sandbox became 2 GB in the store."""
    text, files = await ran(registry(store, tmp_path), tmp_path / "work", SPARSE)
    assert text.startswith("True")
    assert sum(file["bytes"] for file in files) <= 256 * MIB
    assert [file.get("code") for file in files] == [None] * 8 + ["too_large"] * 52
    assert "at most 256 MiB together" in text
    assert on_disk(tmp_path / "store") < 16 * MIB
    body = await store.file_body(KEY, files[0]["id"])
    assert isinstance(body, Path)
    assert body.read_bytes() == b"0" + bytes(32 * MIB - 1)


async def test_a_disk_that_is_nearly_full_keeps_its_reserve(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path)
    reserve = min(file_receiver.RESERVE_BYTES, free.total // 20)
    nearly = type(free)(free.total, free.total - reserve - 2 * MIB, reserve + 2 * MIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: nearly)
    code = "for size in (3, 1):\n    open(f'{size}.bin', 'wb').write(bytes(size << 20))"
    text, files = await ran(registry(store, tmp_path), tmp_path / "work", code)
    assert {file["name"]: file.get("code") for file in files} == {"1.bin": None, "3.bin": "store_full"}
    assert "the disk of the session store is nearly full" in text


async def test_copying_ends_with_the_time_of_the_run(store: SqliteStore, tmp_path: Path) -> None:
    files = registry(store, tmp_path, output_mb=8192)
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(4000 * MIB)
    context = ToolContext(KEY, "turn-1", 1, ToolCall("c", "python", {}), lambda body: None)
    began = time.monotonic()
    kept = await files.keep([ProducedFile(name, large, root=tmp_path) for name in ("a", "b")], context, within_s=0.2)
    assert [one.file.error for one in kept] == ["timeout"] * 2
    assert time.monotonic() - began < 10.0
    assert list((tmp_path / "store" / "incoming").glob("*")) == []


async def test_a_cancelled_copy_ends_and_leaves_nothing(store: SqliteStore, tmp_path: Path) -> None:
    files = registry(store, tmp_path, output_mb=4096)
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(4000 * MIB)
    context = ToolContext(KEY, "turn-1", 1, ToolCall("c", "python", {}), lambda body: None)
    keeping = asyncio.create_task(files.keep([ProducedFile("large", large, root=tmp_path)], context))
    waiting = tmp_path / "store" / "incoming"
    while not (waiting.is_dir() and list(waiting.glob("*.part"))):
        await asyncio.sleep(0.001)
    began = time.monotonic()
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    assert time.monotonic() - began < 10.0
    assert list(waiting.iterdir()) == []
