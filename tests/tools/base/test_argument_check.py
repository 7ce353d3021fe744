"""The check of a call's arguments: whatever schema a client declares, it neither fails nor takes long."""

from __future__ import annotations

from typing import Any

import pytest
import regex

from agent_kernel.core.messages import ToolCall
from agent_kernel.tools.base import argument_check
from agent_kernel.tools.base.argument_check import describe_misfit


def misfit(schema: dict[str, Any], **arguments: Any) -> str:
    return describe_misfit(ToolCall("c1", "f", arguments), schema)


def text_like(pattern: str) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [(r"^\p{L}+$", "été", "1"), (r"^(?<year>\d{4})$", "2026", "26"), (r"a\/b", "a/b", "ab"), (r"^x$", "x", "y")],
)
def test_patterns_of_javascript_are_checked(pattern: str, fits: str, fits_not: str) -> None:
    assert misfit(text_like(pattern), a=fits) == ""
    assert "does not match" in misfit(text_like(pattern), a=fits_not)


@pytest.mark.parametrize(
    "schema",
    [
        text_like("("),
        text_like(r"\p{NoSuchScript}"),
        {"patternProperties": {"(": {"type": "integer"}}, "additionalProperties": False},
        {"properties": {"a": {"type": "no such type"}}},
    ],
)
def test_what_cannot_be_checked_fits(schema: dict[str, Any]) -> None:
    assert misfit(schema, a="x") == ""


def test_a_pattern_that_takes_long_is_given_up_once_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    search = regex.search

    def noted(pattern: str, text: str, *, timeout: float) -> Any:
        searched.append(pattern)
        return search(pattern, text, timeout=timeout)

    monkeypatch.setattr(regex, "search", noted)
    monkeypatch.setattr(argument_check, "_slow_patterns", set())
    names = {"patternProperties": {"^(a|aa)+$": {}}, "additionalProperties": False}
    for _ in range(50):
        assert misfit(text_like("^(a|a)+$"), a="a" * 40 + "!") == ""
        assert misfit(names, **{"a" * 60 + "!": 1}) == ""
    assert sorted(searched) == ["^(a|a)+$", "^(a|aa)+$"]


def test_a_schema_that_refers_to_itself_without_an_end_is_named() -> None:
    assert misfit({"$ref": "#"}, a="x") == "The schema of f refers to itself without an end."
    chain = {f"a{number}": {"$ref": f"#/$defs/a{number + 1}"} for number in range(900)}
    assert "without an end" in misfit({"$defs": chain | {"a900": {}}, "$ref": "#/$defs/a0"}, a="x")


def test_names_beside_a_pattern_of_names_are_additional() -> None:
    schema = {"patternProperties": {r"^\p{L}+$": {"type": "integer"}}, "additionalProperties": False}
    assert misfit(schema, été=1) == ""
    assert "is not of type 'integer'" in misfit(schema, été="x")
    assert "'x1' was unexpected" in misfit(schema, été=1, x1=2)
    assert "'b' was unexpected" in misfit({"properties": {"a": {}}, "additionalProperties": False}, a=1, b=2)
