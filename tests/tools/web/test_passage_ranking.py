from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.tools.web.web_search import PASSAGE_CHARS, fill_budget, passages, scores, split_words

TEXTS = [
    "The sparrow is a small bird.",
    "Sparrow, sparrow, sparrow: the sparrow eats seeds.",
    "Trains leave at noon.",
    "A long text about many birds of the north, of which the sparrow is one among a hundred others that sing.",
]


def test_more_of_a_word_counts_more_and_length_counts_less() -> None:
    weights = scores("sparrow", TEXTS)
    assert weights[1] > weights[0] > weights[3] > weights[2] == 0


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    common = scores("the seeds", ["the the the", "seeds", "the end", "the start"])
    assert common[1] == max(common)


def test_words_are_found_whatever_their_case_and_script() -> None:
    assert split_words("Straße, naïve x_1!") == ["strasse", "naïve", "x_1"]
    assert split_words("東京の天気 weather") == ["東", "京", "の", "天", "気", "weather"]
    assert scores("天気", ["今日の天気", "電車"])[0] > 0


def test_nothing_to_rank_is_no_error() -> None:
    assert scores("x", []) == []
    assert scores("", ["a"]) == [0.0]
    assert scores("x", ["", ""]) == [0.0, 0.0]


@given(st.lists(st.text(alphabet="ab \n", max_size=4_000), max_size=4).map("\n\n".join))
def test_passages_lose_no_word_and_stay_short(text: str) -> None:
    pieces = passages(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(piece) <= 2 * PASSAGE_CHARS for piece in pieces)


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(0, 200))
def test_what_fits_is_taken_best_first_and_what_does_not_is_skipped(prices: list[int], budget: int) -> None:
    kept = fill_budget(range(len(prices)), prices.__getitem__, budget)
    assert sum(prices[each] for each in kept) <= budget
    left = budget - sum(prices[each] for each in kept)
    assert all(prices[each] > left for each in range(len(prices)) if each not in kept)
