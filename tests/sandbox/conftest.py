"""Fixtures: a sandbox per test, and a check that no process of it remains."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox

COLD = SandboxPolicy(warm=0)
Make = Callable[..., LinuxSandbox]


def children() -> set[int]:
    """Return the children of this process that have not been reaped."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@pytest.fixture
def work_root(tmp_path: Path) -> Path:
    """The directory below which the sessions of a sandbox have their directories."""
    return tmp_path / "work"


@pytest.fixture
async def make(work_root: Path) -> AsyncIterator[Make]:
    made: list[LinuxSandbox] = []
    before = children()

    def build(policy: SandboxPolicy = COLD, **more: object) -> LinuxSandbox:
        made.append(LinuxSandbox(work_root, policy, **more))  # type: ignore[arg-type]  # passed through
        return made[-1]

    yield build
    for sandbox in made:
        await sandbox.aclose()
    assert children() - before == set()


@pytest.fixture
def sandbox(make: Make) -> LinuxSandbox:
    return make()
