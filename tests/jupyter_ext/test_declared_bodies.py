"""Tests that schemas in a request are bounded on every route, before an engine receives them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jupyter_ext.api.native.request_schemas import TurnBody

TOO_MUCH: list[dict[str, Any]] = [
    {"type": "nonsense"},
    {"allOf": [{"not": {}}] * 4_000},
    {"properties": {"a": {"type": "string", "pattern": "(" * 5_000}}},
]


@pytest.mark.parametrize("schema", TOO_MUCH)
def test_a_turn_takes_none_that_is_too_much_work(schema: dict[str, Any]) -> None:
    for fields in (
        {"functions": [{"name": "f", "parameters": schema}]},
        {"output": {"kind": "json_schema", "json_schema": schema}},
    ):
        with pytest.raises(ValidationError):
            TurnBody.model_validate({"prompt": "x", **fields})


def test_a_turn_takes_what_is_one() -> None:
    body = TurnBody.model_validate({"prompt": "x", "functions": [{"name": "f", "parameters": {"type": "object"}}]})
    assert body.functions[0].parameters == {"type": "object"}
