"""Tests how the client decodes the data that a server sends."""

from __future__ import annotations

import json

import pytest

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.openai_api.endpoint_client import parse_object


@pytest.mark.parametrize("data", ["", "x", "[]", "1", "[" * 100_000, '{"a": '])
def test_what_is_no_object_is_an_error(data: str) -> None:
    with pytest.raises(EngineError, match="not a JSON object"):
        parse_object(data)


def test_an_object_is_itself() -> None:
    assert parse_object(json.dumps({"a": 1})) == {"a": 1}
