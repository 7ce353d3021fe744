"""Tests output formats: the grammar that each becomes for decoding, and the check of the complete answer."""

from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest, OutputInvalid
from agent_kernel.core.protocols import OutputFormat
from agent_kernel.engines.local.decoding.output_format import check, grammar_of, with_format_instruction
from tests.engines.local.grammar.ebnf_match import matches

EVEN = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 2}}, "required": ["n"]}


def schema(value: Any) -> OutputFormat:
    return OutputFormat("json_schema", json_schema=value)


def test_each_kind_lets_through_its_own() -> None:
    assert matches(grammar_of(OutputFormat("json_object")), '{"a": [1, null]}')
    assert not matches(grammar_of(OutputFormat("json_object")), "[]")
    assert matches(grammar_of(schema(EVEN)), '{"n": 4}')
    assert matches(grammar_of(OutputFormat("regex", regex=r"\d{4}|none")), "2024")
    assert not matches(grammar_of(OutputFormat("regex", regex=r"\d{4}|none")), "20245")
    assert matches(grammar_of(OutputFormat("choice", choice=("yes", 'no "never"'))), 'no "never"')


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (schema(EVEN), '{"n": 3}'),
        (schema(EVEN), '{"n": '),
        (schema(EVEN), "{}"),
        (OutputFormat("json_object"), "[1]"),
        (OutputFormat("regex", regex="a+"), "ab"),
        (OutputFormat("choice", choice=("yes", "no")), "maybe"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_with_its_text_and_the_reason(output: OutputFormat, text: str) -> None:
    with pytest.raises(OutputInvalid) as caught:
        check(output, text)

    assert caught.value.details["text"] == text
    assert caught.value.details["reason"] in str(caught.value)
    assert caught.value.code == "output_invalid"


def test_an_answer_that_fits_passes() -> None:
    check(schema(EVEN), '{"n": 4}')
    check(OutputFormat("regex", regex="a+"), "aa")
    check(OutputFormat("choice", choice=("yes", "no")), "no")


@pytest.mark.parametrize(
    "output",
    [
        OutputFormat("choice"),
        OutputFormat("choice", choice=("a", "")),
        OutputFormat("choice", choice=("a",) * 5_000),
        OutputFormat("regex", regex="(a+)+b"),
        schema({"type": "nothing"}),
        schema({"$ref": "https://example.com/schema.json"}),
        schema({"not": {"pattern": "(a+)+b"}, "type": "string"}),
        schema({"type": "object", "patternProperties": {"(a+)+b": {}}}),
    ],
)
def test_a_format_that_is_none_or_dangerous_to_check_is_refused(output: OutputFormat) -> None:
    with pytest.raises(InvalidRequest):
        grammar_of(output)


def test_the_model_is_told_the_format_at_the_end_of_the_last_question() -> None:
    chat = [{"role": "user", "content": "How many?"}]

    assert '"multipleOf": 2' in with_format_instruction(chat, schema(EVEN))[-1]["content"]
    assert with_format_instruction(chat, OutputFormat("choice", choice=("yes", "no")))[-1]["content"].startswith(
        "How many?"
    )
    assert with_format_instruction(chat, OutputFormat("regex", regex="a")) == chat
    assert [message["role"] for message in with_format_instruction(chat, OutputFormat("json_object"))] == ["user"]
