"""Tests the transformers backend on a CPU with models of random weights. Behaviour that only a GPU shows is not tested
here.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[4]
SCRIPT = Path(__file__).parent / "transformers_facts.py"
PATIENCE_S = 240
TWO_BLOCKS = 64


def facts(python: str, directory: Path, *parts: str) -> dict[str, Any]:
    """Return what ``transformers_facts.py`` prints. It runs in another process because this interpreter has
    no torch.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TQDM_DISABLE": "1"}
    done = subprocess.run(
        [python, str(SCRIPT), str(directory), *parts],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def found(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The facts of all parts, from one process, because importing torch takes seconds. The last part breaks the
    library.
    """
    parts = ("grammars", "sampling", "reuse", "limits", "cancels", "eviction", "unbatchable", "options")
    return facts(torch_python, tmp_path_factory.mktemp("facts"), *parts, "broken", "converted", "changed")


@pytest.fixture(scope="module", params=["this release", "the one before"])
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The facts that depend on internals of the library, for two of its minor releases."""
    if request.param == "this release":
        found: dict[str, Any] = request.getfixturevalue("found")
        return found
    python = str(request.getfixturevalue("older_torch_python"))
    return facts(python, tmp_path_factory.mktemp("older"), "grammars", "reuse", "changed")


def test_requests_of_one_batch_each_keep_to_their_own_grammar(release: dict[str, Any]) -> None:
    grammars = release["grammars"]

    assert grammars["texts"][0].isdigit()
    assert len(grammars["texts"][0]) == 3
    assert grammars["texts"][1] in ("<yes>", "<no>")
    assert grammars["ends"] == ["stop", "stop"]
    assert grammars["free like alone"]


def test_a_log_probability_is_the_one_before_the_grammar_masked_anything(release: dict[str, Any]) -> None:
    told, own = release["grammars"]["log probability"]

    assert told == pytest.approx(own, abs=1e-3)
    assert release["grammars"]["as many log probabilities as tokens"]


def test_a_constrained_answer_cut_by_its_limit_says_so(release: dict[str, Any]) -> None:
    assert release["grammars"]["cut"][0].isdigit()
    assert release["grammars"]["cut"][1] == "length"


def test_what_is_no_grammar_is_refused_and_the_batch_goes_on(release: dict[str, Any]) -> None:
    assert release["grammars"]["not a grammar"][0] == "EngineError"
    assert release["grammars"]["after that"] > 0


def test_the_next_turn_reuses_all_but_the_last_blocks(release: dict[str, Any]) -> None:
    reuse = release["reuse"]

    assert reuse["first"] == 0
    assert reuse["second"][0] >= reuse["second"][1] - TWO_BLOCKS
    assert reuse["loaded"][:2] == [32, 64]


def test_a_fork_reuses_what_is_before_the_edit(release: dict[str, Any]) -> None:
    reused, edited = release["reuse"]["fork"]

    assert edited - 32 <= reused <= edited


def test_the_blocks_of_a_request_for_one_token_are_kept(release: dict[str, Any]) -> None:
    reused, asked = release["reuse"]["after one token"]

    assert reused >= asked - 32


def test_reuse_changes_no_answer(release: dict[str, Any]) -> None:
    assert release["reuse"]["same answers"]


def test_without_prefixes_nothing_is_reused(release: dict[str, Any]) -> None:
    assert release["reuse"]["without prefixes"] == [0, 0]


def test_a_library_that_changed_costs_grammars_and_sampling_but_not_free_text(release: dict[str, Any]) -> None:
    changed = release["changed"]

    assert changed["free"] == [12, 12]
    assert changed["grammar"][0] == changed["sampled"][0] == "EngineError"
    assert "transformers" in changed["grammar"][1]
    assert changed["details"].startswith("refused")


def test_a_seed_repeats_an_answer(found: dict[str, Any]) -> None:
    sampling = found["sampling"]

    assert sampling["same seed"]
    assert sampling["seed in company"] == [True]
    assert not sampling["other seed"]
    assert not sampling["no seed"]


def test_each_cut_of_the_candidates_works(found: dict[str, Any]) -> None:
    sampling = found["sampling"]

    assert not sampling["hot is greedy"]
    assert sampling["top_k is greedy"]
    assert sampling["top_p is greedy"]
    assert sampling["min_p is greedy"]


def test_a_repetition_penalty_prevents_repeats(found: dict[str, Any]) -> None:
    assert found["sampling"]["repeats"] > 0
    assert found["sampling"]["repeats when that costs"] == 0


def test_a_logit_bias_brings_a_token_forward_and_another_one_out(found: dict[str, Any]) -> None:
    assert found["sampling"]["biased"] == [True, True]


def test_a_prompt_larger_than_the_cache_is_refused_alone(found: dict[str, Any]) -> None:
    assert found["limits"]["too long"] == "refused"
    assert found["limits"]["beside it"]


def test_an_answer_ends_where_the_cache_does(found: dict[str, Any]) -> None:
    assert found["limits"]["cut at the end of the cache"] == [5, "length"]


def test_requests_that_do_not_fit_together_all_get_their_answers(found: dict[str, Any]) -> None:
    assert all(found["limits"]["more than fit at once"])
    assert found["limits"]["used afterwards"] == 0


def test_a_cancel_frees_its_blocks(found: dict[str, Any]) -> None:
    assert found["cancels"]["held"] > 0
    assert found["cancels"]["freed"] == 0


def test_random_cancels_leave_nothing_behind(found: dict[str, Any]) -> None:
    assert found["cancels"]["left"] == [0, 0, 0]
    assert found["cancels"]["works"] == 5


def test_the_prefix_used_last_outlives_older_ones(found: dict[str, Any]) -> None:
    eviction = found["eviction"]

    assert eviction["latest"] >= eviction["of"] - 32
    assert eviction["oldest"] == 0


@pytest.mark.parametrize(
    ("kind", "reason"), [("sliding", "sliding-window"), ("recurrent", "batching"), ("llava", "pictures")]
)
def test_a_model_that_can_not_be_batched_is_told_apart(found: dict[str, Any], kind: str, reason: str) -> None:
    error, words = found["unbatchable"][kind]

    assert error == "Unbatchable"
    assert reason in words


@pytest.mark.parametrize("precision", ["nf4", "int8", "bf16"])
def test_each_precision_loads_and_answers(found: dict[str, Any], precision: str) -> None:
    text, told, _, size = found["options"][precision]

    assert len(text) == 3
    assert told == precision
    assert size < found["options"]["spread"][3]


def test_the_quantised_ones_are_smaller(found: dict[str, Any]) -> None:
    nf4, int8, bf16 = (found["options"][name][3] for name in ("nf4", "int8", "bf16"))

    assert nf4 < int8 < bf16


def test_a_precision_is_chosen_where_none_is_named(found: dict[str, Any]) -> None:
    assert found["options"]["probed"][1] in ("bf16", "fp32")


def test_a_model_is_spread_within_the_memory_it_is_given(found: dict[str, Any]) -> None:
    assert len(found["options"]["spread"][0]) == 3
    assert found["options"]["too little"][0] == "EngineError"
    assert "max_memory" in found["options"]["too little"][1]


def test_what_is_not_here_is_named(found: dict[str, Any]) -> None:
    assert "cuda:7" in found["options"]["no such device"][1]
    assert "int3" in found["options"]["no such precision"][1]


@pytest.mark.parametrize(
    ("what", "error", "word"),
    [
        ("cut off", "ModelBroken", "damaged"),
        ("no model", "ModelBroken", "damaged"),
        ("a tensor is missing", "ModelBroken", "up_proj"),
        ("pickled", "ModelBroken", "safetensors"),
        ("its own code", "ModelUnsupported", "never run"),
        ("unknown", "ModelUnsupported", "nobody-knows"),
        ("no config", "ModelBroken", "config.json"),
        ("not there", "ModelMissing", "pull"),
    ],
)
def test_a_model_that_does_not_load_says_why(found: dict[str, Any], what: str, error: str, word: str) -> None:
    kind, words = found["broken"][what]

    assert kind == error
    assert word in words


def test_a_gguf_file_is_converted_once(found: dict[str, Any]) -> None:
    assert found["converted"]["conversions"] == [1, 1]
    assert found["converted"]["folders"] == [1, True]


def test_a_converted_model_is_the_one_it_was(found: dict[str, Any]) -> None:
    converted = found["converted"]

    assert converted["far"] < 0.02
    assert converted["told"] == [True, "qwen2", True, True]
    assert converted["end"]


def test_a_head_stored_beside_its_embedding_is_one_again(found: dict[str, Any]) -> None:
    assert found["converted"]["tied"]


def test_a_gguf_file_that_is_cut_off_is_not_converted(found: dict[str, Any]) -> None:
    assert found["converted"]["cut off"][0] == "ModelBroken"
