"""Completes code between two texts with a model that was trained to fill in the middle. No chat template is applied."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from agent_kernel.engines.local.backend import DecodingOptions
from agent_kernel.engines.local.decoding.completion import Completer, DecodedCompletion
from agent_kernel.engines.local.infill import BLOCK_TOKENS, LINE_TOKENS, Filling, Gap

PREFIX, SUFFIX, MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
ENDS = ("<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<|cursor|>", "<|im_end|>")


async def fill(gap: Gap, completer: Completer) -> AsyncGenerator[Filling, None]:
    """Complete the code in the gap with greedy decoding, and yield the whole text so far each time that it has grown.
    If the vocabulary lacks the special tokens for this task, yield a Filling with the reason ``unsupported``."""
    if not await completer.has_special_tokens((PREFIX, SUFFIX, MIDDLE)):
        yield Filling(silence="unsupported")
        return
    completion = DecodedCompletion(render(gap))
    decoding = DecodingOptions(max_tokens=LINE_TOKENS if gap.one_line else BLOCK_TOKENS)
    stops = ("\n" if gap.one_line else "\n\n", *ENDS)
    text = ""
    async with aclosing(completer.stream(completion, decoding, stop=stops, marks=ENDS, remember=False)) as deltas:
        async for _ in deltas:
            longer = gap.trim(completion.text)
            if longer != text:
                text = longer
                yield Filling(text)


def render(gap: Gap) -> str:
    """Return the prompt with which a model fills the gap. A space is inserted into special tokens in the text of the
    notebook, so that they have no effect."""
    before, after = without_special_tokens(gap.before()), without_special_tokens(gap.after())
    return f"{PREFIX}{before}{SUFFIX}{after}{MIDDLE}"


def without_special_tokens(text: str) -> str:
    """Return ``text`` with a space in each ``<|``, with which every special token of these models begins."""
    return text.replace("<|", "< |")
