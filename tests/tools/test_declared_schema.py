from typing import Any

import pytest

from agent_kernel.errors import InvalidRequest
from agent_kernel.tools.declared_schema import check_schema


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize("schema", [{}, {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}}, nested(60)])
def test_a_schema_is_one(schema: dict[str, Any]) -> None:
    check_schema(schema)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"type": "nonsense"}, "at type"),
        ({"properties": {"a": {"minimum": "x"}}}, "at properties/a/minimum"),
        (nested(70), "64 levels"),
        ({"description": "x" * (300 << 10)}, "256 KiB"),
    ],
)
def test_what_is_none_is_refused_with_its_place(schema: dict[str, Any], where: str) -> None:
    with pytest.raises(InvalidRequest, match=where):
        check_schema(schema)
