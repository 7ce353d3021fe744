from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.protocols import Tool
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.permissions import Answer, Approvals, Gate
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.tools.code.python import ResetPython, SandboxPython
from agent_kernel.tools.code.rebuild_variables import find_rebuild_steps, rebuild
from agent_kernel.tools.code.sandbox_environment import SandboxEnvironment
from tests.sandbox.conftest import children
from tests.scripted import python
from tests.turns import KEY, agent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
RESET = {"name": "reset_python", "arguments": {}}


def script(*codes: str) -> list[dict[str, Any]]:
    calls = [RESET if code == "RESET" else python(code) for code in codes]
    return [*({"text": "", "calls": [call]} for call in calls), {"text": "done"}]


async def test_the_code_that_ran_well_runs_again_in_its_order(tmp_path: Path) -> None:
    before = children()
    sandbox = LinuxSandbox(tmp_path / "work", SandboxPolicy(warm=0))
    workplace = SandboxEnvironment(sandbox)
    tools: list[Tool] = [SandboxPython(workplace), ResetPython(workplace)]
    store = MemoryStore()
    async with aclosing(sandbox):
        codes = ("gone = 1", "RESET", "x = 1", "1 / 0", "x += 1\nopen('log', 'a').write('x')")
        first, *_ = agent(script(*codes), tools, store=store)
        await first.run(TurnRequest("go"))
        live, *_ = agent([{"text": "", "calls": [python("x = 100")]}, {"text": "done"}], tools, store=store)
        await live.run(TurnRequest("elsewhere", where="live"))
        found = await find_rebuild_steps(store, KEY)
        assert [piece.code for piece in found] == ["x = 1", "x += 1\nopen('log', 'a').write('x')"]
        assert [effect.kind for effect in found[1].effects] == ["writes"]
        await sandbox.close(KEY)
        rebuilt = await rebuild(sandbox, KEY, found, timeout_s=60.0)
        assert (rebuilt.ran, rebuilt.status) == (2, "success")
        after = await sandbox.run(KEY, "x, 'gone' in globals(), open('log').read()")
        assert (after.value, after.lost) == ("(2, False, 'xx')", "")
    assert children() - before == set()


async def test_the_code_that_a_person_wrote_runs_again_in_place_of_the_proposed_one(tmp_path: Path) -> None:
    sandbox, store = LinuxSandbox(tmp_path / "work", SandboxPolicy(warm=0)), MemoryStore()
    asking = Gate(Approvals(), server="ask", ask=lambda question: Answer("approve", edited="x = 2"))
    async with aclosing(sandbox):
        tools: list[Tool] = [SandboxPython(SandboxEnvironment(sandbox))]
        first, *_ = agent(script("x = 1"), tools, store=store, gate=asking)
        await first.run(TurnRequest("go"))
        assert (await sandbox.run(KEY, "x")).value == "2"
        assert [piece.code for piece in await find_rebuild_steps(store, KEY)] == ["x = 2"]


async def test_a_rebuild_ends_at_the_first_piece_that_does_not_run(tmp_path: Path) -> None:
    sandbox = LinuxSandbox(tmp_path / "work", SandboxPolicy(warm=0))
    store = MemoryStore()
    async with aclosing(sandbox):
        first, *_ = agent(
            script("a = 1", "open('once', 'x').close()", "b = 2"),
            [SandboxPython(SandboxEnvironment(sandbox))],
            store=store,
        )
        await first.run(TurnRequest("go"))
        rebuilt = await rebuild(sandbox, KEY, await find_rebuild_steps(store, KEY), timeout_s=60.0)
        assert (rebuilt.ran, rebuilt.status) == (1, "error")
        assert "FileExistsError" in rebuilt.error
        assert [held.name for held in await sandbox.variables(KEY)] == ["a"]
