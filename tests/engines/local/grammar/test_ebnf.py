"""Tests choices among texts, in the grammar syntax that every version of the library accepts."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import EngineRequest, OutputFormat, Sampling, TextChunk
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.grammar.ebnf import Rules, choice
from agent_kernel.engines.local.grammar.number_range import number
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from tests.engines.local.grammar.ebnf_match import matches

OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


@given(st.lists(st.text("ab=é\n\"'", max_size=5), min_size=1, max_size=8), st.text("ab=é\n\"'", max_size=6))
@settings(max_examples=50)
def test_a_choice_is_one_of_its_texts_and_nothing_else(texts: list[str], other: str) -> None:
    grammar = Rules().grammar(choice(texts))

    assert all(matches(grammar, text) for text in texts)
    assert matches(grammar, other) == (other in texts)


def test_no_two_alternatives_of_a_choice_begin_with_the_same_character() -> None:
    for group in re.findall(r"\(([^()]*)\)", choice(OPERATORS)):
        beginnings = [part.strip()[:8] for part in group.split("|")]
        assert len(set(beginnings)) == len(beginnings)


def test_what_may_follow_a_number_stands_behind_each_count_of_its_digits() -> None:
    """Where it stands once behind all of them, openvino-genai lets digits through without end."""
    bounded = number(Decimal(0), Decimal(1000)) or ""

    assert "[1-9] [0-9]{2} (" in bounded
    assert ") (" not in bounded


@pytest.mark.model("tiny")
async def test_a_hot_model_writes_only_what_the_choice_and_the_bounds_allow() -> None:
    engine = LocalEngine("tiny", Settings.from_env().cache_dir)
    schema = {
        "type": "object",
        "properties": {"is": {"enum": list(OPERATORS)}, "limit": {"type": "number", "minimum": 0, "maximum": 1000}},
        "required": ["is", "limit"],
        "additionalProperties": False,
    }
    asked = user("Rows where x == 4000. Answer as JSON.")
    for seed in range(12):
        sampling = Sampling(temperature=1.5, seed=seed, max_tokens=60)
        request = EngineRequest((asked,), sampling=sampling, output=OutputFormat("json_schema", json_schema=schema))
        said = ""
        async for chunk in engine.stream(request):  # an answer that does not fit raises OutputInvalid
            said += chunk.text if isinstance(chunk, TextChunk) else ""
        assert said.startswith('{"is": ')
    await engine.aclose()
