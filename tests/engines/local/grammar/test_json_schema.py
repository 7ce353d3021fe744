"""Tests JSON schemas as grammars: accepted texts fit the schema, fitting texts are accepted, and hostile schemas are
refused.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.engines.local.backend import OutputGrammar
from agent_kernel.engines.local.grammar.json_schema import SchemaBounds, bounds_within, json_grammar, json_text
from tests.engines.local.grammar.ebnf_match import matches
from tests.engines.local.grammar.json_schemas import SCHEMAS, VALUES, Drawn

NODE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name"],
        }
    },
    "$ref": "#/$defs/node",
}


def accepts(schema: Any, value: Any) -> bool:
    grammar, _ = json_grammar(schema)
    return matches(grammar, json_text(value))


def require_property(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


@given(SCHEMAS)
@settings(max_examples=60)
def test_a_value_that_fits_can_be_written(drawn: Drawn) -> None:
    schema, value = drawn
    assert Draft202012Validator(schema).is_valid(value)
    assert accepts(schema, value)


@given(SCHEMAS, VALUES)
@settings(max_examples=60)
def test_what_can_be_written_fits(drawn: Drawn, value: Any) -> None:
    schema, _ = drawn
    grammar, loose = json_grammar(schema)
    assert not loose
    assert not matches(grammar, json_text(value)) or Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("schema", "fitting", "others"),
    [
        ({"type": "integer", "minimum": 3, "maximum": 1200}, [3, 9, 10, 1200], [2, 1201, -3, 3.5, "3"]),
        ({"type": "integer", "exclusiveMinimum": -5, "exclusiveMaximum": 17.5}, [-4, 0, 17], [-5, 18]),
        ({"type": "integer", "minimum": 10**17}, [10**17], [10**17 - 1, 0]),
        ({"type": "number", "minimum": 0.5, "maximum": 0.9}, [0.5, 0.75, 0.9], [0.4, 0.91, 1]),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, [0.1, 0.5, 1, 1.0], [0, 0.0, 1.1]),
        ({"type": "number", "minimum": -1.5, "maximum": 2.25}, [-1.5, -1.25, 0, 2.2, 2.25], [-1.51, 2.3]),
        ({"type": "string", "minLength": 2, "maxLength": 40}, ["ab", "é" * 40, 'a"\\\n'], ["a", "b" * 41]),
        ({"type": "string", "pattern": r"^[A-Z]\d{2,}$"}, ["A12", "Z123456"], ["A1", "a12", "A12x"]),
        ({"type": "string", "format": "date"}, ["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-13-01", "today"]),
        ({"type": "string", "format": "date-time"}, ["2024-02-29T23:59:59Z"], ["2024-02-29", "2024-02-29T24:00:00Z"]),
        ({"type": ["string", "null"]}, ["a", None], [1, True]),
        ({"enum": ["a", 1, None, {"b": [1.5]}]}, ["a", 1, None, {"b": [1.5]}], ["b", 2, {}]),
        ({"enum": [1, "a", True], "type": "integer"}, [1], ["a", True]),
        ({"type": "array", "items": {"const": 0}, "minItems": 1, "maxItems": 20}, [[0], [0] * 20], [[], [0] * 21]),
        ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}]}, [[], ["a"], ["a", None]], [[None]]),
        ({"anyOf": [{"const": "x"}, {"minimum": 1, "type": "integer"}]}, ["x", 1], ["y", 0]),
        ({"allOf": [{"type": "integer", "minimum": 2}, {"type": ["integer", "string"], "maximum": 4}]}, [2, 4], [1, 5]),
        ({"type": "object"}, [{}, {"a": {"b": [1, None]}}], [[], "a"]),
        ({"type": "object", "properties": {}, "additionalProperties": False}, [{}], [{"a": 1}]),
        (NODE, [{"name": "a"}, {"name": "a", "children": [{"name": "b", "children": []}]}], [{"children": []}]),
        ({}, [None, 1, "a", [1], {"a": 1}], []),
    ],
)  # fmt: skip
def test_each_keyword_lets_through_what_fits(schema: Any, fitting: list[Any], others: list[Any]) -> None:
    assert [value for value in fitting if not accepts(schema, value)] == []
    assert [value for value in others if accepts(schema, value)] == []


def test_optional_properties_may_be_left_out_and_the_order_is_that_of_the_schema() -> None:
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in "abc"}, "required": ["b"]}

    assert accepts(schema, {"b": None})
    assert accepts(schema, {"a": None, "b": None, "c": None})
    assert not accepts(schema, {"b": None, "a": None})
    assert not accepts(schema, {"a": None})
    assert not accepts(schema, {"b": None, "d": None})


@pytest.mark.parametrize("text", ['{"a":1}', '{ "a": 1}', '{"a": 1 }', '{"a":  1}', '{"a": 1}\n', '{\n"a": 1}'])
def test_white_space_is_written_one_way_only(text: str) -> None:
    grammar, _ = json_grammar(require_property({"type": "integer"}))

    assert matches(grammar, '{"a": 1}')
    assert not matches(grammar, text)


def test_a_string_can_not_hold_what_is_no_text() -> None:
    grammar, _ = json_grammar({"type": "string"})

    assert [text for text in ('"\\ud800"', '"\\u0041"', '"a\nb"', '"a') if matches(grammar, text)] == []
    assert matches(grammar, '"a\\nb"')


def test_strings_lists_and_recursion_without_a_bound_get_one() -> None:
    bounds = SchemaBounds(string=31, items=3, recursion=2)

    def fits(schema: Any, value: Any) -> bool:
        return matches(json_grammar(schema, bounds)[0], json_text(value))

    def nested(levels: int) -> dict[str, Any]:
        return {"name": "a"} | ({"children": [nested(levels - 1)]} if levels else {})

    assert fits({"type": "string"}, "a" * 31)
    assert not fits({"type": "string"}, "a" * 32)
    assert fits({"type": "string", "maxLength": 100}, "a" * 100)
    assert fits({"type": "array"}, [1, 2, 3])
    assert not fits({"type": "array"}, [1, 2, 3, 4])
    assert fits(NODE, nested(1))
    assert not fits(NODE, nested(3))


def test_the_bounds_of_an_answer_grow_with_its_tokens() -> None:
    assert bounds_within(512).string < bounds_within(4096).string
    assert bounds_within(1).string > 0


@pytest.mark.parametrize(
    ("schema", "loose"),
    [
        (require_property({"type": "string", "pattern": "a(?=b)"}), "pattern"),
        (require_property({"type": "integer", "multipleOf": 7}), "multipleOf"),
        (require_property({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (require_property({"not": {"const": 1}}), "not"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
        ({"type": "object", "minProperties": 1}, "minProperties"),
        (require_property({"type": "string", "minLength": 3, "pattern": "a*"}), "minLength"),
    ],
)
def test_keywords_that_are_not_enforced_are_named(schema: Any, loose: str) -> None:
    assert json_grammar(schema)[1] == (loose,)


WIDE = {f"p{at}": {"type": "string"} for at in range(200)}
BOMB = {f"d{at}": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}, {"type": "array", "items": {"$ref": f"#/$defs/d{at + 1}"}}]} for at in range(30)}  # fmt: skip  # noqa: E501


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "cat"},
        {"type": "object", "required": "a"},
        {"minLength": "long", "type": "string"},
        {"$ref": "http://example.com/schema.json"},
        {"$ref": "#/$defs/none"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}, "$ref": "#/$defs/a"},
        {"type": "integer", "minimum": 2, "maximum": 1},
        {"type": "number", "minimum": 1e300},
        {"enum": [float("nan")]},
        {"description": "x" * 60_000},
        {"type": "string", "pattern": "(" * 1_000},
        {"type": "string", "pattern": "a{99999999999999999999}"},
        require_property({"allOf": [{"type": "string"}, {"type": "null"}]}),
    ],
)
def test_a_schema_that_is_none_or_that_nothing_fits_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidRequest):
        json_grammar(schema)


def deep(levels: int) -> dict[str, Any]:
    return {"type": "array", "items": deep(levels - 1)} if levels else {"type": "null"}


def product(keyword: str, times: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "integer"}
    for _ in range(times):
        inner = {"anyOf": [inner, {"type": "null"}], keyword: [inner, {"type": "string"}]}
    return inner


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(deep(500), id="depth"),
        pytest.param({"type": "object", "properties": WIDE}, id="width"),
        pytest.param({"$defs": BOMB | {"d30": {"type": "null"}}, "$ref": "#/$defs/d0"}, id="references"),
        pytest.param(product("oneOf", 12), id="combinations"),
        pytest.param(require_property({"type": "string", "pattern": "((a{100}){100}){100}"}), id="repetition"),
        pytest.param(require_property({"type": "string", "pattern": "(a|b|ab)*" * 100}), id="pattern"),
        pytest.param(require_property({"type": "string", "maxLength": 10**9}), id="length"),
        pytest.param({"enum": [f"value {at}" for at in range(3_000)]}, id="values"),
    ],
)
def test_a_hostile_schema_ends_in_a_small_grammar_or_is_refused(schema: Any) -> None:
    started = time.process_time()
    try:
        grammar, _ = json_grammar(schema)
    except InvalidRequest:
        grammar = OutputGrammar("ebnf", "")

    assert time.process_time() - started < 10
    assert len(grammar.text) <= 250_000


def test_a_schema_is_not_changed() -> None:
    before = json.dumps(NODE)
    json_grammar(NODE)

    assert json.dumps(NODE) == before


def test_a_chain_of_references_that_is_too_long_is_refused() -> None:
    chain = {f"a{number}": {"$ref": f"#/$defs/a{number + 1}"} for number in range(900)}
    with pytest.raises(InvalidRequest, match=r"chain of \$refs"):
        json_grammar({"$defs": chain | {"a900": {"type": "string"}}, "$ref": "#/$defs/a0"})


def test_a_reference_may_be_written_as_in_an_address() -> None:
    grammar, _ = json_grammar({"$defs": {"two words": {"const": 1}}, "$ref": "#/$defs/two%20words"})
    assert matches(grammar, "1")
