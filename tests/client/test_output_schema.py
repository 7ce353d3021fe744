from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from agent_kernel.client.output_schema import shape_of
from agent_kernel.core.errors import InvalidRequest, OutputInvalid


class Point(BaseModel):
    x: int


@dataclass
class Pair:
    a: int
    b: str = "?"


@pytest.mark.parametrize(
    ("output", "kind", "text", "value"),
    [
        (Point, "json_schema", '{"x": 1}', Point(x=1)),
        (Pair, "json_schema", '{"a": 1}', Pair(1)),
        (list[int], "json_schema", "[1, 2]", [1, 2]),
        ({"type": "object"}, "json_schema", '{"y": 2}', {"y": 2}),
        ("json", "json_object", "{}", {}),
        (["a", "b"], "choice", "a", "a"),
        (re.compile(r"\d+"), "regex", "12", "12"),
    ],
)
def test_what_was_asked_for_is_what_comes(output: Any, kind: str, text: str, value: object) -> None:
    shape = shape_of(output)
    assert shape.wire["kind"] == kind
    assert shape.value(text) == value


def test_a_text_that_does_not_fit_is_an_error_with_the_text() -> None:
    with pytest.raises(OutputInvalid) as caught:
        shape_of(Point).value('{"x": "no"}')
    assert caught.value.details["text"] == '{"x": "no"}'


def test_a_type_that_json_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        shape_of(object())
