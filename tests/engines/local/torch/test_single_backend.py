"""Tests models of random weights that run one request at a time: with attention, a sliding window, a recurrent state,
and four kinds with vision. The results come from ``generate_facts.py`` in an interpreter with torch and without
torchvision.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, TypeAlias

import pytest

ROOT = Path(__file__).parents[4]
SCRIPT = Path(__file__).with_name("generate_facts.py")
CROPPED = ("llama", "llava", "idefics3", "qwen2_vl")
"""Whose caches can be taken back to any prefix."""
WHOLE = ("sliding", "recurrent", "gemma3")
"""Of whose caches only whole states are of use."""
SEEING = ("llava", "idefics3", "gemma3", "qwen2_vl")
KINDS = CROPPED + WHOLE

Facts: TypeAlias = dict[str, dict[str, Any]]
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def facts(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    command = [torch_python, str(SCRIPT), str(tmp_path_factory.mktemp("models")), *KINDS]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TQDM_DISABLE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: Facts = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_is_computed_once(facts: Facts, kind: str) -> None:
    found = facts[kind]
    first_reused, later, finish, tokens = found["first"]
    reused, same = found["again"]

    assert (first_reused, finish, tokens) == (0, "length", 6)
    assert later == [None] * 5  # told once, with the first token
    assert reused == found["prompt"] - (kind in CROPPED)  # of a cut cache one token must run, for its logits
    assert same


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_turn_reuses_the_prompt_and_the_answer_and_answers_as_without(facts: Facts, kind: str) -> None:
    length, reused, same, without = facts[kind]["next"]

    assert reused == facts[kind]["prompt"] + 5  # the last token of an answer is never run
    assert reused < length
    assert without == 0
    assert same


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_library_s_own_generate(facts: Facts, kind: str) -> None:
    assert facts[kind]["as the library"]


@pytest.mark.parametrize("kind", KINDS)
def test_another_answer_to_the_same_prompt_reuses_all_before_it(facts: Facts, kind: str) -> None:
    assert facts[kind]["edit"] == [facts[kind]["prompt"], True]


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_and_grammars_are_each_request_s_own(facts: Facts, kind: str) -> None:
    found = facts[kind]

    assert found["seeds"] == [True, True]
    assert found["top_k 1 is greedy"]
    assert found["regex"][0] in ("yes!", "no!")
    assert found["regex"][1] == found["ebnf"][1] == "stop"
    assert found["ebnf"][0] in ("(a)", "(b)", "(c)")
    assert found["bad grammar"] != "none"


@pytest.mark.parametrize("kind", KINDS)
def test_a_logit_bias_brings_a_token_forward_and_another_one_out(facts: Facts, kind: str) -> None:
    """A token that the vocabulary does not have is no error: other vocabularies have other sizes."""
    assert facts[kind]["logit_bias"] == [True, True, True]


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_those_before_the_grammar(facts: Facts, kind: str) -> None:
    assert facts[kind]["logprobs"]
    assert facts[kind]["masked logprob"]


@pytest.mark.parametrize("kind", KINDS)
def test_requests_take_turns_and_a_cancelled_one_leaves_what_it_computed(facts: Facts, kind: str) -> None:
    found = facts[kind]
    length, reused = found["cancelled prompt"]

    assert found["order"] == [0, 1, 2, 0, 1, 2, 0, 2, 0, 2, 0, 2, 0, 2]
    assert found["left"] == 0
    assert reused == length - (kind in CROPPED)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_without_room_keeps_nothing_and_still_answers(facts: Facts, kind: str) -> None:
    assert facts[kind]["too small a cache"] == [0, 0]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(SEEING)))
def test_a_model_of_text_refuses_pictures(facts: Facts, kind: str) -> None:
    assert not facts[kind]["sees"]
    assert facts[kind]["no pictures"] == "engine_error"


@pytest.mark.parametrize("kind", SEEING)
def test_a_picture_changes_the_answer(facts: Facts, kind: str) -> None:
    finish, error, changed, repeated = facts[kind]["shown"]

    assert facts[kind]["sees"]
    assert (finish, error) == ("length", "")
    assert changed
    assert repeated
    assert facts[kind]["transparent"] == ""


@pytest.mark.parametrize("kind", SEEING)
def test_a_picture_is_part_of_the_prefix(facts: Facts, kind: str) -> None:
    length, same, other = facts[kind]["picture reused"]

    assert same == length - (kind in CROPPED)
    assert other < length / 2  # what stands before the picture, at most


@pytest.mark.parametrize("kind", SEEING)
def test_a_second_picture_reuses_the_first_and_is_seen_as_without(facts: Facts, kind: str) -> None:
    length, reused, same_words, same_probabilities = facts[kind]["second picture"]

    assert facts[kind]["picture reused"][0] <= reused < length
    assert same_words
    assert same_probabilities


@pytest.mark.parametrize("kind", SEEING)
def test_a_picture_in_a_tool_s_result_is_shown(facts: Facts, kind: str) -> None:
    assert facts[kind]["tool picture"]


@pytest.mark.parametrize("kind", SEEING)
def test_pictures_that_do_not_fit_the_prompt_or_can_not_be_read_end_that_request_only(facts: Facts, kind: str) -> None:
    assert {facts[kind][case] for case in ("too few", "other pictures", "broken")} == {"invalid_request"}
