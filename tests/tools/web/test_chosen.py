from __future__ import annotations

import json

import pytest

from agent_kernel.tools.web.search_providers import SearchResult
from agent_kernel.tools.web.web_options import WebOptions
from agent_kernel.tools.web.web_search import choose_passages, cost, result_chars

FILLER = " ".join(f"Filler sentence number {n} about trains and their stations." for n in range(12))


@pytest.mark.parametrize(("size", "tokens"), [("low", 4_096), ("medium", 8_192), ("high", 16_384)])
def test_what_is_chosen_fits_the_budget_and_uses_most_of_it(size: str, tokens: int) -> None:
    found = [SearchResult(f"Page {n}", f"https://a{n}.example/", "x" * 400) for n in range(10)]
    texts = ["\n\n".join([f"{FILLER} sparrow {n}"] * 60) for n in range(10)]
    output = choose_passages("sparrow", found, texts, tokens)
    size_of = len(json.dumps(output, ensure_ascii=False))
    assert 0.8 * tokens * 3 < size_of <= tokens * 3
    assert size_of <= result_chars(WebOptions.of({"search_context_size": size}))


def test_a_passage_that_does_not_fit_is_skipped_for_one_that_does() -> None:
    found = [SearchResult("A", "https://a.example/"), SearchResult("B", "https://b.example/")]
    long = "sparrow " * 240
    output = choose_passages("sparrow", found, [long, "one sparrow"], 200)
    assert [(one["title"], one["content"]) for one in output] == [("B", "one sparrow"), ("A", "")]


def test_results_that_have_no_room_at_all_are_left_out() -> None:
    found = [SearchResult("t" * 200, f"https://a{n}.example/", "d" * 500) for n in range(10)]
    assert (
        len(choose_passages("x", found, [""] * 10, 3 * cost({"title": "t" * 200, "description": "d" * 500}) + 200)) == 3
    )
