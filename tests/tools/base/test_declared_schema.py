from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.base import declared_schema
from agent_kernel.tools.base.declared_schema import check_schema


def nest_schema(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}, nest_schema(60)]
)
def test_a_schema_is_one(schema: dict[str, Any]) -> None:
    check_schema(schema)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "nonsense"}, "at type"),
        ({"properties": {"a": {"minimum": "x"}}}, "at properties/a/minimum"),
        (nest_schema(70), "64 levels"),
        ({"description": "x" * (300 << 10)}, "256 KiB"),
        ({"properties": {"a": {"pattern": "(" * 1_001}}}, "1,000 characters"),
        ({"items": [{"patternProperties": {"x" * 1_001: {}}}]}, "1,000 characters"),
        ({"allOf": [{"not": {}}] * 1_000}, "2,000 values"),
        ({"properties": {str(n): {} for n in range(2_000)}}, "2,000 values"),
    ],
)
def test_what_is_none_is_refused_with_its_place(schema: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidRequest, match=where):
        check_schema(schema)


def test_the_largest_schema_counts_what_is_nested() -> None:
    check_schema({"allOf": [{"not": {}}] * 999})  # 2 * 999, the list and the whole


def test_of_what_is_too_large_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Any] = []
    problem = declared_schema._problem

    def counted(schema: Any) -> str:
        looked_at.append(schema)
        return problem(schema)

    monkeypatch.setattr(declared_schema, "_problem", counted)
    with pytest.raises(InvalidRequest, match="values"):
        check_schema({"allOf": [{"not": {}}] * 4_000})
    assert not looked_at
    check_schema({"description": "x" * (9 << 10)})
    assert len(looked_at) == 1


@pytest.mark.parametrize("pattern", ["(" * 1_000, r"^\p{L}+$", "a{99999999999999999999}"])
def test_a_pattern_is_never_compiled(pattern: str) -> None:
    check_schema({"pattern": pattern})
    check_schema({"patternProperties": {pattern: {}}})
