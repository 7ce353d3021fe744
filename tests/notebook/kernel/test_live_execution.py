"""Tests code with a syntax error, in a real IPython."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agent_kernel.notebook.draft.draft import Drafts
from agent_kernel.notebook.kernel import live_execution
from agent_kernel.notebook.kernel.changed_names import NameChanges, NamespaceSnapshot
from agent_kernel.notebook.kernel.live_execution import ExecutionOutcome, LiveCode

UNREADABLE = {
    "badly indented": ("def f():\n        a = 1\n    b = 2\n", "IndentationError"),
    "a null character": ("a = '\0'", "null bytes"),
    "half a character": ("a = '\ud800'", "UnicodeEncodeError"),
    "too many signs": ("-" * 100_000 + "1", "Error"),
    "too many attributes": ("a" + ".b" * 100_000, "RecursionError"),
    "open": ("x = (", "SyntaxError"),
}


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()


def ran(code: LiveCode, source: str) -> ExecutionOutcome:
    return code.run(source, lambda stream, text: None, lambda *shown: None)


@pytest.mark.filterwarnings("ignore:coroutine 'InteractiveShell:RuntimeWarning")  # left by IPython's own failure
@pytest.mark.parametrize("what", UNREADABLE)
def test_code_that_can_not_be_read_is_prepared_as_it_is_and_fails_with_the_reason(shell: Any, what: str) -> None:
    source, reason = UNREADABLE[what]
    code = LiveCode(shell)
    assert code.prepare_code(source) == source
    outcome = ran(code, source)
    assert (outcome.status, outcome.variables) == ("error", ())
    assert reason in outcome.text
    assert outcome.traceback
    assert ran(code, "print(1 + 1)").text == "2"
    gc.collect()


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_draft_prepares_it_as_it_is_too(shell: Any, what: str) -> None:
    source, _ = UNREADABLE[what]
    with closing(Drafts(shell)) as drafts:
        assert drafts.prepare_code(source) == source
        drafts.names(source)


def test_the_variables_are_looked_at_once(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[NamespaceSnapshot] = []

    class Counted(NamespaceSnapshot):
        def __init__(self, *given: Any) -> None:
            looked.append(self)
            super().__init__(*given)

    monkeypatch.setattr(live_execution, "NamespaceSnapshot", Counted)
    shell.user_ns |= {"old": 1, "kept": 2}
    outcome = ran(LiveCode(shell), "made = 1\nkept = 3\ndel old")
    assert outcome.changes == NameChanges(("made",), ("kept",), ("old",))
    assert outcome.variables == ("made", "kept")
    assert len(looked) == 1


def test_the_model_reads_what_is_known_about_an_error_before_the_traceback(shell: Any) -> None:
    shell.run_cell("prices = {'apple': 1, 'pear': 2}")
    outcome = ran(LiveCode(shell), "prices['aple']")
    known, first, *_, last = outcome.text.splitlines()
    assert known == "Keys of prices with a similar name: 'apple', 'pear'."
    assert (first, last) == ("Traceback (most recent call last):", "KeyError: 'aple'")
    assert "Keys of prices" not in outcome.traceback


def test_a_printed_row_number_becomes_its_row_also_where_columns_have_the_same_name(shell: Any) -> None:
    code = LiveCode(shell)
    ran(code, "import pandas\nrain = pandas.DataFrame([[1, 'May', 'x'], [4, 'June', 'y']], columns=['mm', 'a', 'a'])")
    assert ran(code, "print(rain['mm'].idxmax())").text == "mm=4, a='June', a='y' (row 1 of rain)"
