"""Tests the grammars with the library of the transformers backend: each compiles and accepts only fitting texts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from agent_kernel.engines.local.grammar.json_schema import json_grammar, json_text
from tests.engines.local.grammar.json_schemas import SCHEMAS, VALUES

SCRIPT = Path(__file__).with_name("accepted.py")


def test_xgrammar_takes_every_grammar_and_lets_through_what_fits_and_nothing_else(torch_python: str) -> None:
    cases: list[tuple[str, str, str]] = []

    @settings(max_examples=150, suppress_health_check=list(HealthCheck))
    @given(SCHEMAS, VALUES)
    def draw(drawn: tuple, value: object) -> None:
        schema, fitting = drawn
        grammar = json_grammar(schema)[0].text
        cases.append((grammar, json_text(fitting), "fits"))
        cases.append((grammar, json.dumps([fitting], indent=1), "not"))
        cases.append(
            (grammar, json_text(value), "fits or not" if Draft202012Validator(schema).is_valid(value) else "not")
        )

    draw()
    given_in = "".join(json.dumps([grammar, text]) + "\n" for grammar, text, _ in cases)
    done = subprocess.run([torch_python, str(SCRIPT)], input=given_in, capture_output=True, text=True, check=True)
    accepted = [json.loads(line) for line in done.stdout.splitlines()]

    allowed = {"fits": (True,), "not": (False,), "fits or not": (True, False)}
    wrong = [(case[1:], got) for case, got in zip(cases, accepted, strict=True) if got not in allowed[case[2]]]
    assert not wrong, wrong[:5]
