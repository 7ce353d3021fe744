"""Tests regular expressions as grammars: they match the same texts as Python's, and those that may take forever are
refused.
"""

from __future__ import annotations

import re

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.engines.local.backend import OutputGrammar
from agent_kernel.engines.local.grammar.ebnf import Rules
from agent_kernel.engines.local.grammar.regex import pattern
from tests.engines.local.grammar.ebnf_match import matches

TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "aab",
    "abc",
    "A-1",
    "-",
    "a.b",
    "axb",
    "12",
    "3.14",
    "[x]",
    'say "x"',
    "a\nb",
    "\\",
    "é",
    "_",
    "aaaa",
]


def grammar(regex: str, *, json: bool = False, endless: int | None = None) -> OutputGrammar:
    rules = Rules()
    return rules.grammar(rules.rule(pattern(regex, rules, json=json, endless=endless)))


@pytest.mark.parametrize(
    "regex",
    [
        r"a*b?", r"(a|b)+", r"a{2,3}b?", r"a{4}", r"a{2,}", r"[ab-]+", r"[^a]", r"[^a-y\n]+", r"\d+(\.\d+)?",
        r"\W", r"\S+", r"[^\s]x?",
        r"a.b", r"a\.b", r"\[x\]", r"(?:a|ab)(?:c|)", r"[A-Z]-\d", r"[\d.]+", r"^ab$", r"\\", r"[^\s\"]+",
        r"\x61\u0062",
        r"a|b|", r".*", r"a*?b", r"[]a]", r"(a?b?){2}",
    ],
)  # fmt: skip
def test_the_same_texts_match_as_in_python(regex: str) -> None:
    made = grammar(regex)
    assert [text for text in TEXTS if matches(made, text)] == [text for text in TEXTS if re.fullmatch(regex, text)]


def test_words_and_digits_are_those_of_ascii() -> None:
    assert matches(grammar(r"\w+"), "a_1")
    assert not matches(grammar(r"\w"), "é")
    assert not matches(grammar(r"[^\w]"), "é")


def test_inside_a_json_string_characters_are_escaped() -> None:
    made = grammar(r'["\\\n]+x', json=True)

    assert matches(made, r"\"\\\nx")
    assert not matches(made, '"x')


def test_repetition_without_end_gets_one_where_it_is_asked_for() -> None:
    made = grammar("a*", endless=20)

    assert matches(made, "a" * 20)
    assert not matches(made, "a" * 21)


@pytest.mark.parametrize(
    "regex",
    [
        "(a+)+", "(a*)*b", "(a|b*)+", "((a{100}){100}){100}", "a{2,1}", "([a-z]{1,9} ?){1,200}",
        "a(?=b)", "(?<=a)b", r"(a)\1", r"\bword",
        "(?i)a", "a**", "(a", "a)", "[a", "[z-a]", "*a", r"\p{L}", "a$b", "a^b",
        "x" * 3_000, "(" * 50 + "a" + ")" * 50, "a\\",
    ],
)  # fmt: skip
def test_what_is_no_simple_pattern_is_refused(regex: str) -> None:
    with pytest.raises(InvalidRequest):
        grammar(regex)
