"""Tests that reasoning is separated from the answer, whatever the split into pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.protocols import ReasoningChunk, TextChunk, TokenLogprob
from agent_kernel.engines.local.decoding.reasoning import (
    BLOCKS,
    ReasoningSplitter,
    close_thinking,
    open_tag,
    split_reasoning,
    without_thinking,
)

ANSWERS = {
    "qwen3": ("<think>\nHm, 2 < 3.\n</think>\n\nIt is 3.", "\nHm, 2 < 3.\n", "It is 3."),
    "nothing thought": ("<think>\n\n</think>\n\nIt is 3.", "\n\n", "It is 3."),
    "magistral": ("[THINK]Hm.[/THINK]It is 3.", "Hm.", "It is 3."),
    "gemma": ("<|channel>thought\nHm.<channel|>It is 3.", "Hm.", "It is 3."),
    "two blocks": ("<think>a</think>\n<think>b</think>\nIt is 3.", "ab", "It is 3."),
    "no thinking": ("It is 3.", "", "It is 3."),
    "tags as a topic": ("Write <think> and </think>.", "", "Write <think> and </think>."),
    "never closed": ("<think>\nHm, and hm, and </thi", "\nHm, and hm, and </thi", ""),
    "only begun": ("  <thin", "", "  <thin"),
}


def split_into_reasoning_and_text(pieces: Sequence[str], prompt: str = "") -> tuple[str, str]:
    reasoning = ReasoningSplitter(prompt)
    parts = [part for piece in pieces for part in reasoning.push(piece)] + reasoning.finish()
    thought = "".join(part.text for part in parts if isinstance(part, ReasoningChunk))
    return thought, "".join(part.text for part in parts if isinstance(part, TextChunk))


@pytest.mark.parametrize("name", ANSWERS)
@settings(max_examples=20)
@given(data=st.data())
def test_thinking_comes_apart_from_the_answer_in_any_split(name: str, data: st.DataObject) -> None:
    text, thought, answer = ANSWERS[name]
    cuts = sorted(set(data.draw(st.lists(st.integers(0, len(text)), max_size=12))))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert split_into_reasoning_and_text(pieces) == (thought, answer)


def test_a_block_that_the_prompt_opened_is_thinking_from_the_first_token_on() -> None:
    prompt = "<|im_start|>assistant\n<think>\n"

    assert split_into_reasoning_and_text(["Hm.", "</think>", "\n\nIt is 3."], prompt) == ("Hm.", "It is 3.")
    assert split_into_reasoning_and_text(["Hm."], prompt) == ("Hm.", "")


def test_thinking_is_streamed_while_it_goes_on() -> None:
    assert ReasoningSplitter("<think>").push("Hm, ") == [ReasoningChunk("Hm, ")]


@pytest.mark.parametrize(("tag", "close"), BLOCKS.items())
def test_a_prompt_can_be_made_one_whose_next_token_is_the_answers(tag: str, close: str) -> None:
    template = f"... {tag} ... {close} ..."

    assert open_tag(close_thinking(f"assistant\n{tag}")) == ""
    assert without_thinking("assistant\n", template).rstrip().endswith(close)
    assert without_thinking(f"assistant\n{tag}\n", template).count(tag.rstrip()) == 1
    assert without_thinking(f"assistant\n{tag}\n\n{close}\n\n", template) == f"assistant\n{tag}\n\n{close}\n\n"
    assert without_thinking("assistant\n", "knows no thinking") == "assistant\n"


async def test_log_probabilities_of_the_answer_stay_with_it() -> None:
    async def deltas() -> AsyncGenerator[TextChunk, None]:
        for text in ("<think>", "Hm", "</think>", "\n", "3", "."):
            yield TextChunk(text, (TokenLogprob(text, -0.5),))

    parts = [part async for part in split_reasoning(deltas())]

    shown = [token.text for part in parts if isinstance(part, TextChunk) for token in part.logprobs]
    assert shown[-2:] == ["3", "."]
    assert "Hm" not in shown
