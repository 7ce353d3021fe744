"""Tests that a grammar which cannot be compiled is refused with a reason."""

from __future__ import annotations

from typing import Any

from agent_kernel.engines.local.backend import OutputGrammar
from agent_kernel.engines.local.grammar.compile_check import GrammarCheck


class FullMemory:
    """A library whose every call fails with an error without a text."""

    def __getattr__(self, name: str) -> Any:
        raise MemoryError


def test_an_error_without_a_text_is_named_by_its_type() -> None:
    check = GrammarCheck(FullMemory(), FullMemory(), FullMemory(), None)
    assert check.verdict(OutputGrammar("regex", "a")).result(60) == "MemoryError"
