"""Tests the value of a program's last expression."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agent_kernel.notebook.kernel.live_execution import LiveCode
from agent_kernel.notebook.kernel.program_value import HIDDEN, with_assignment
from agent_kernel.notebook.kernel.variable_transfer import decode_draft_value, encode_draft_value
from tests.notebook.kernel.test_live_execution import shell

__all__ = ["shell"]


def value_of(shell: InteractiveShell, code: str) -> Any:
    outcome = LiveCode(shell).run(code, lambda stream, text: None, lambda *shown: None, returns_value=True)
    assert HIDDEN not in shell.user_ns
    assert HIDDEN not in outcome.changes.names
    assert not shell.ast_transformers
    return outcome.value.value if outcome.value else None


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("x = 3\nx + 1", 4),
        ("print(40 + 2)", 42),
        ("print('Rows:', 6 * 7)", 42),
        ("print(f'There are {6 * 7:.1f} rows.')", 42),
        ("print('yes')", "yes"),
        ("total = 6 * 7", 42),
        ("total: int = 42", 42),
        ("display([1])", [1]),
        ("await __import__('asyncio').sleep(0, 5)", 5),
        ("len('abc');", 3),
        ("print(1, 2)", None),
        ("a = b = 1", None),
        ("for i in range(3):\n    i", None),
        ("print(*[1, 2])", None),
        ("print(f'{1} {2}')", "1 2"),
        ("import os", None),
        ("1 / 0", None),
        ("print(undefined)", None),
        ("", None),
    ],
)
def test_the_last_statement_decides(shell: InteractiveShell, code: str, value: Any) -> None:
    assert value_of(shell, code) == value


def test_what_is_displayed_and_printed_stays_the_same(shell: InteractiveShell) -> None:
    for code in ("x = 2\nx * 2", "print('a', 1 + 1)", "print(f'{1 + 1:>4}')", "total = 3", "1 / 0"):
        plain = LiveCode(shell).run(code, lambda stream, text: None, lambda *shown: None)
        with_value = LiveCode(shell).run(code, lambda stream, text: None, lambda *shown: None, returns_value=True)
        assert (plain.text, plain.status) == (with_value.text, with_value.status)
        assert plain.value is None


def test_a_draft_sends_copies_of_data_and_only_the_type_of_the_rest() -> None:
    assert decode_draft_value(encode_draft_value([1, "a"])).value == [1, "a"]  # type: ignore[union-attr]
    found = decode_draft_value(encode_draft_value(object()))
    assert found is not None
    assert (found.value, found.elsewhere) == (None, "object")
    assert decode_draft_value(encode_draft_value("x" * (25 << 20))).elsewhere == "str"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "body",
    [None, [], "x", {"type": 3}, {"type": "int", "encoding": "pickle", "data": "gASVAA=="}, {"encoding": "json"}],
)
def test_what_a_hostile_draft_sends_is_no_value(body: Any) -> None:
    found = decode_draft_value(body)
    assert found is None or found.value is None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1\nlen('ab')", "x = 1\nn = len('ab')\nn"),
        ("print(f'{1 + 1} rows')", "print(f'{1 + 1} rows')\nn = 1 + 1"),
        ("total = 3", "total = 3\nn = total"),
        ("n = 3", "n = 3"),
        ("a = 1; a", ""),
        ("for i in []: pass", ""),
        ("%time", ""),
        ("", ""),
    ],
)
def test_a_program_can_assign_its_value_to_a_name(code: str, expected: str) -> None:
    assert with_assignment(code, "n") == expected
