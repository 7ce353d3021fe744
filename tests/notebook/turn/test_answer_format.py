"""Tests the formats of answers in cells."""

from __future__ import annotations

import json

import pytest

from agent_kernel.notebook.turn.answer_format import json_text_bundle, json_value_bundle


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ('{"va', ""),
        ('{ "value": ', ""),
        ('{"value": "Os', '"Os'),
        ('{"value": [1, {"a": 2}', '[1, {"a": 2}'),
        ('{"value": [1, {"a": 2}]}', '[1, {"a": 2}]'),
        ('{"value": 3.5 }\n', "3.5"),
        ('{"other": 3}', '{"other": 3}'),
    ],
)
def test_a_typed_answer_shows_its_value_without_the_object_around_it(text: str, shown: str) -> None:
    assert json_value_bundle(text) == json_text_bundle(shown)


@pytest.mark.parametrize("value", [None, "}", {"value": {"value": 1}}, ["{", '"'], 12, "Ärger \\"])
def test_no_prefix_of_a_typed_answer_shows_the_object_around_it(value: object) -> None:
    text = json.dumps({"value": value})
    for end in range(len(text)):
        assert json.dumps(value).startswith(json_value_bundle(text[:end])["text/plain"].rstrip())
    assert json_value_bundle(text)["text/plain"] == json.dumps(value)
