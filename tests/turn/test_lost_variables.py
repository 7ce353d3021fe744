"""Tests when a turn says that variables of earlier turns are lost: only if their code had defined some."""

from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.core.messages import ToolCall, assistant, tool_result, user
from agent_kernel.core.session import Turn
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.lost_variables import has_lost_variables
from tests.turns import KEY


async def is_lost(code: str, status: Any = "success", where: str = "live", name: str = "python") -> bool:
    store = MemoryStore()
    call = ToolCall("c1", name, {"code": code})
    messages = [user("go"), assistant("", calls=[call]), tool_result(call, "", status)]
    await store.add_turn(Turn("t1", KEY, state="committed", epoch="k1", where=where), messages)
    await store.add_turn(Turn("t2", KEY, state="cancelled", epoch="k1", where=where), [user("and now?")])
    assert not await has_lost_variables(store, KEY, "k1")
    return await has_lost_variables(store, KEY, "k2")


async def test_a_turn_that_was_stopped_before_code_ran_loses_nothing() -> None:
    store = MemoryStore()
    await store.add_turn(Turn("t1", KEY, state="cancelled", epoch="k1", where="live"), [user("go")])
    assert not await has_lost_variables(store, KEY, "k2")


@pytest.mark.parametrize("code", ["x = 1", "import math", "for n in range(3): pass", "def f(): pass", "%time x = 1"])
async def test_names_that_code_defined_are_lost(code: str) -> None:
    assert await is_lost(code)
    assert await is_lost(code, where="draft")


@pytest.mark.parametrize("code", ["print(6 * 7)", "sum(n for n in range(3))", "(lambda n: n)(2)"])
async def test_code_that_only_prints_loses_nothing(code: str) -> None:
    assert not await is_lost(code)


@pytest.mark.parametrize(
    ("status", "where", "lost"),
    [
        ("denied", "live", False),
        ("interrupted", "live", False),
        ("error", "live", True),
        ("error", "draft", False),
    ],
)
async def test_a_call_that_did_not_run_or_was_undone_loses_nothing(status: str, where: str, lost: bool) -> None:
    assert await is_lost("x = 1", status, where) is lost


async def test_cells_that_the_agent_ran_may_have_defined_names() -> None:
    assert await is_lost("", name="run_cells")
    assert not await is_lost("x = 1", name="read_cells")
