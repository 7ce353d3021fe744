"""Tests tool choice and response formats in both of OpenAI's dialects."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.tools.base import declared_schema
from jupyter_ext.api.anthropic.request import CountBody, MessagesBody
from jupyter_ext.api.chat_completions.request import ChatBody
from jupyter_ext.api.dialects.openai_functions import (
    Chosen,
    Function,
    JsonSchemaFormat,
    check_tool_choice,
    parse_tool_choice,
    specs_of,
)
from jupyter_ext.api.responses.request import ResponsesBody

NESTED = {"type": "function", "function": {"name": "f"}}
FLAT = {"type": "function", "name": "f"}


@pytest.mark.parametrize("said", [NESTED, FLAT])
def test_a_function_is_chosen_in_either_form(said: dict[str, Any]) -> None:
    assert parse_tool_choice(said) == Chosen("f")


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
    assert parse_tool_choice(said) == Chosen("required", frozenset("f"), frozenset({"code_interpreter"}))


def test_a_choice_that_was_read_stays() -> None:
    assert parse_tool_choice(Chosen("f")) == Chosen("f")


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
        found = parse_tool_choice(said)
    assert found is None or isinstance(found.choice, str)


def test_what_is_chosen_is_there() -> None:
    assert check_tool_choice(Chosen("f"), ["f"], []) == Chosen("f")
    for choice in (Chosen("g"), Chosen("auto", frozenset("g")), Chosen("auto", frozenset(), frozenset({"shell"}))):
        with pytest.raises(ValueError, match="tool_choice names"):
            check_tool_choice(choice, ["f"], [])
    with pytest.raises(ValueError, match="no tools"):
        check_tool_choice(Chosen("required"), [], [])
    assert check_tool_choice(Chosen("required"), [], [], more=True).choice == "required"


def test_allowed_functions_are_those_that_are_offered() -> None:
    specs = specs_of([Function(name=name) for name in "fgh"])
    assert [spec.name for spec in Chosen("auto", frozenset("fh")).of(specs)] == ["f", "h"]
    assert Chosen().of(specs) == specs


def test_a_schema_without_words_is_any_object() -> None:
    assert JsonSchemaFormat.model_validate({"name": "a", "schema": {}}).output.kind == "json_object"


SAID: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def body_of(dialect: str, schemas: list[dict[str, Any]]) -> Any:
    """Return a request that declares one function for each of the schemas."""
    numbered = [(f"f{number}", schema) for number, schema in enumerate(schemas)]
    flat = [{"type": "function", "name": name, "parameters": schema} for name, schema in numbered]
    nested = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in numbered]
    anthropic = [{"name": name, "input_schema": schema} for name, schema in numbered]
    match dialect:
        case "chat":
            return ChatBody.model_validate({**SAID, "tools": nested})
        case "responses":
            return ResponsesBody.model_validate({"model": "m", "input": "hi", "tools": flat})
        case "namespace":
            tools = [{"type": "namespace", "name": "n", "description": "", "tools": flat}]
            return ResponsesBody.model_validate({"model": "m", "input": "hi", "tools": tools})
        case "messages":
            return MessagesBody.model_validate({**SAID, "max_tokens": 10, "tools": anthropic})
    return CountBody.model_validate({**SAID, "tools": anthropic})


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The list of all schemas that were validated as a schema."""
    found: list[Any] = []
    problem = declared_schema._problem

    def counted(schema: Any) -> str:
        found.append(schema)
        return problem(schema)

    monkeypatch.setattr(declared_schema, "_problem", counted)
    declared_schema._known_problem.cache_clear()
    return found


DIALECTS = ["chat", "responses", "namespace", "messages", "count"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_tools_of_a_request_are_bounded_together_before_any_is_looked_at(
    dialect: str, looked_at: list[Any]
) -> None:
    schema = {"type": "object", "enum": list(range(1_800))}
    with pytest.raises(ValueError, match="at most 10,000 JSON values"):
        body_of(dialect, [schema] * 6)
    assert not looked_at
    body_of(dialect, [schema] * 5)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_schema_that_is_too_long_to_be_remembered_is_looked_at_once(dialect: str, looked_at: list[Any]) -> None:
    body_of(dialect, [{"type": "object", "description": "x" * declared_schema.KNOWN_CHARS}])
    assert len(looked_at) == 1


def test_functions_of_a_namespace_have_its_name_and_all_else_as_it_was_declared() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    body = body_of("namespace", [schema])
    spec = body._offered.functions[0]
    assert (spec.name, spec.parameters, body.namespaces) == ("n.f0", schema, {"n.f0": ("n", "f0")})
    long = {"type": "function", "name": "f" * 64}
    tools = [{"type": "namespace", "name": "n", "description": "", "tools": [long]}]
    with pytest.raises(ValueError, match="name"):
        ResponsesBody.model_validate({"model": "m", "input": "hi", "tools": tools})
