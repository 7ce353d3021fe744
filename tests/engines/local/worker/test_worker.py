"""What a model worker imports and with which settings it starts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_kernel.engines.local.worker.worker_process import ALLOCATOR, WorkerProcess

IMPORTED = "import sys, agent_kernel.engines.local.worker.worker; print('\\n'.join(sys.modules))"


def test_a_worker_imports_the_backends_of_torch_only_for_their_models() -> None:
    run = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, check=True, text=True)
    modules = run.stdout.split()
    assert "agent_kernel.engines.local.openvino.backend" in modules
    assert not {"agent_kernel.engines.local.torch.backend", "openvino", "torch"} & set(modules)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("own", "expected"), [(None, ALLOCATOR), ("glibc.malloc.check=1", "glibc.malloc.check=1")])
async def test_a_worker_has_the_settings_of_the_allocator_that_the_user_has_not_chosen(
    own: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if own is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    async with aclosing(await WorkerProcess.start(sys.executable, tmp_path)) as worker:
        environ = Path(f"/proc/{worker.pid}/environ")
        async with asyncio.timeout(20):
            while not (text := environ.read_text(encoding="utf-8")):  # empty while the process begins its program
                await asyncio.sleep(0.01)
        variables = text.split("\0")
    assert f"GLIBC_TUNABLES={expected}" in variables
