"""Choices among tools, and forms of answers, in the words of both of OpenAI's dialects."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ext.dialects.functions import Chosen, Function, JsonSchemaFormat, choice_of, chosen, specs_of

NESTED = {"type": "function", "function": {"name": "f"}}
FLAT = {"type": "function", "name": "f"}


@pytest.mark.parametrize("said", [NESTED, FLAT])
def test_a_function_is_chosen_in_either_form(said: dict[str, Any]) -> None:
    assert choice_of(said) == Chosen("f")


@pytest.mark.parametrize(
    "said",
    [
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [NESTED, {"type": "code_interpreter"}]},
        },
        {"type": "allowed_tools", "mode": "required", "tools": [FLAT, {"type": "code_interpreter"}]},
    ],
)
def test_tools_are_allowed_in_either_form(said: dict[str, Any]) -> None:
    assert choice_of(said) == Chosen("required", frozenset("f"), frozenset({"code_interpreter"}))


def test_a_choice_that_was_read_stays() -> None:
    assert choice_of(Chosen("f")) == Chosen("f")


JSON = st.recursive(
    st.none() | st.integers() | st.sampled_from(["function", "allowed_tools", "auto", "f"]) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "function", "name", "mode", "tools", "allowed_tools"]), inner)
    ),
    max_leaves=8,
)


@given(JSON)
def test_whatever_comes_is_a_choice_or_a_mistake(said: Any) -> None:
    found: Chosen | None = None
    with contextlib.suppress(ValueError):
        found = choice_of(said)
    assert found is None or isinstance(found.choice, str)


def test_what_is_chosen_is_there() -> None:
    assert chosen(Chosen("f"), ["f"], []) == Chosen("f")
    for choice in (Chosen("g"), Chosen("auto", frozenset("g")), Chosen("auto", frozenset(), frozenset({"shell"}))):
        with pytest.raises(ValueError, match="tool_choice names"):
            chosen(choice, ["f"], [])
    with pytest.raises(ValueError, match="no tools"):
        chosen(Chosen("required"), [], [])
    assert chosen(Chosen("required"), [], [], more=True).choice == "required"


def test_allowed_functions_are_those_that_are_offered() -> None:
    specs = specs_of([Function(name=name) for name in "fgh"])
    assert [spec.name for spec in Chosen("auto", frozenset("fh")).of(specs)] == ["f", "h"]
    assert Chosen().of(specs) == specs


def test_a_schema_without_words_is_any_object() -> None:
    assert JsonSchemaFormat.model_validate({"name": "a", "schema": {}}).output.kind == "json_object"
