"""Tests which session waits for the results that a client sends."""

from __future__ import annotations

from agent_kernel.core.messages import Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import SessionKey
from agent_kernel.tools.base.caller_tools import AWAITED
from jupyter_ext.turns.dialect_turn_starter import MOST, PendingClientCalls

KEY = SessionKey("a", "s")
CALL = ToolCall("c1", "weather", {})
WAITS = [user("hi"), assistant("", [CALL]), tool_result(CALL, AWAITED, "interrupted")]


def brought(id: str = "c1") -> list[Message]:
    call = ToolCall(id, "weather", {})
    return [user("hi"), assistant("", [call]), tool_result(call, "Sun.", "success")]


def test_the_session_that_waits_for_a_result_is_found_by_its_id() -> None:
    handed = PendingClientCalls()
    handed.add(KEY, "scope", WAITS)
    assert handed.find("a", "scope", brought()) == KEY
    assert handed.find("a", "scope", [*brought(), user("And now?")]) == KEY


def test_nobody_elses_session_is_found_nor_one_of_another_model_or_one_that_has_its_result() -> None:
    handed = PendingClientCalls()
    handed.add(KEY, "scope", WAITS)
    assert handed.find("b", "scope", brought()) is None
    assert handed.find("a", "other", brought()) is None
    assert handed.find("a", "scope", brought("c2")) is None
    handed.add(KEY, "scope", brought("c2"))
    assert handed.find("a", "scope", brought("c2")) is None


def test_only_results_that_are_new_count() -> None:
    handed = PendingClientCalls()
    handed.add(KEY, "scope", WAITS)
    assert handed.find("a", "scope", [*brought(), assistant("Sun."), user("hi")]) is None
    assert handed.find("a", "scope", []) is None


def test_the_oldest_calls_are_forgotten() -> None:
    handed = PendingClientCalls()
    handed.add(KEY, "scope", WAITS)
    for number in range(MOST):
        call = ToolCall(f"n{number}", "weather", {})
        handed.add(KEY, "scope", [tool_result(call, AWAITED, "interrupted")])
    assert handed.find("a", "scope", brought()) is None
    assert handed.find("a", "scope", brought("n0")) == KEY


def test_a_call_that_is_handed_over_again_is_among_the_newest() -> None:
    handed = PendingClientCalls()
    handed.add(KEY, "scope", WAITS)
    for number in range(MOST):
        call = ToolCall(f"n{number}", "weather", {})
        if number == MOST - 1:
            handed.add(KEY, "scope", WAITS)
        handed.add(KEY, "scope", [tool_result(call, AWAITED, "interrupted")])
    assert handed.find("a", "scope", brought()) == KEY
    assert handed.find("a", "scope", brought("n0")) is None
