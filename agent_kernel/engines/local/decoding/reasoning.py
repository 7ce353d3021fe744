"""Separates a model's reasoning from its answer. The code has no side effects.

Reasoning is a block of text between two tags. A block counts only at the beginning of an answer, directly after another
block, or from the first token on if the prompt ends with the opening tag. Tags anywhere else are ordinary text.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from types import MappingProxyType

from agent_kernel.core.protocols import ReasoningChunk, TextChunk, TokenLogprob
from agent_kernel.engines.local.decoding.text_stream import overlap

BLOCKS: Mapping[str, str] = MappingProxyType(
    {
        "<think>": "</think>",
        "<thinking>": "</thinking>",
        "[THINK]": "[/THINK]",
        "<seed:think>": "</seed:think>",
        "<|channel>thought\n": "<channel|>",
    }
)
"""Maps opening tags to closing tags, in this order: the tag of Qwen, DeepSeek, SmolLM and most other models; the tag of
models that a prompt asks to reason; the tags of Magistral, Seed and Gemma."""
TAGS = (*BLOCKS, *BLOCKS.values())


def open_tag(prompt: str) -> str:
    """Return the opening tag with which the prompt ends, so that the model continues the block; an empty string if it
    ends with none."""
    end = prompt.rstrip()
    return next((tag for tag in BLOCKS if end.endswith(tag.rstrip())), "")


def close_thinking(prompt: str) -> str:
    """Return the prompt with its reasoning block closed if it ends with an open one, otherwise unchanged. Callers use
    this if the answer must begin at once, such as a forced call."""
    tag = open_tag(prompt)
    return f"{prompt.rstrip()}\n{BLOCKS[tag]}\n\n" if tag else prompt


def without_thinking(prompt: str, template: str) -> str:
    """Return the prompt with an empty reasoning block at its end if ``template`` supports reasoning, so that the next
    token belongs to the answer."""
    if open_tag(prompt):
        return close_thinking(prompt)
    tag = next((tag for tag in BLOCKS if tag in template), "")
    return prompt if not tag or prompt.rstrip().endswith(BLOCKS[tag]) else f"{prompt}{tag}\n\n{BLOCKS[tag]}\n\n"


class ReasoningSplitter:
    """Splits an answer, which the caller passes to ``push`` piece by piece, into reasoning and text. If a block is
    never closed, the rest of the answer is reasoning."""

    def __init__(self, prompt: str = "") -> None:
        self._held = ""
        self._tag = open_tag(prompt)
        self._began = bool(self._tag)
        self._answering = False

    def push(self, text: str) -> list[TextChunk | ReasoningChunk]:
        return self._split(text, last=False)

    def finish(self) -> list[TextChunk | ReasoningChunk]:
        """Return the text that was held back because it could have become a tag."""
        return self._split("", last=True)

    def _split(self, text: str, *, last: bool) -> list[TextChunk | ReasoningChunk]:
        parts: list[TextChunk | ReasoningChunk] = []
        self._held += text
        while self._held and not self._answering:
            if not (self._think(parts, last=last) if self._tag else self._begin(last=last)):
                return parts
        if self._held:
            parts.append(TextChunk(self._held))
            self._held = ""
        return parts

    def _think(self, parts: list[TextChunk | ReasoningChunk], *, last: bool) -> bool:
        """Move the text of the open block to ``parts``. Return False if the block has not ended yet."""
        close = BLOCKS[self._tag]
        thought, end_mark, rest = self._held.partition(close)
        if end_mark:
            self._tag, self._held = "", rest
        else:
            keep = 0 if last else overlap(thought, close)
            thought, self._held = thought[: len(thought) - keep], thought[len(thought) - keep :]
        if thought:
            parts.append(ReasoningChunk(thought))
        return bool(end_mark)

    def _begin(self, *, last: bool) -> bool:
        """Decide whether the held text begins with a reasoning block or with the answer. Return False if the decision
        needs more text. White space around blocks is dropped."""
        start = self._held.lstrip()
        tag = next((tag for tag in BLOCKS if start.startswith(tag)), "")
        if tag:
            self._tag, self._held, self._began = tag, start.removeprefix(tag), True
        elif start and (last or not any(tag.startswith(start) for tag in BLOCKS)):
            self._held = start if self._began else self._held
            self._answering = True
        elif last:
            self._held = "" if self._began else self._held
            self._answering = True
        else:
            return False
        return True


async def split_reasoning(
    deltas: AsyncGenerator[TextChunk, None], prompt: str = ""
) -> AsyncGenerator[TextChunk | ReasoningChunk, None]:
    """Split the deltas of an answer to ``prompt`` into reasoning and text. The log probabilities of the answer's tokens
    stay with its text."""
    reasoning = ReasoningSplitter(prompt)
    logprobs: list[TokenLogprob] = []
    async with aclosing(deltas):
        async for delta in deltas:
            logprobs.extend(delta.logprobs)
            for part in reasoning.push(delta.text):
                yield replace(part, logprobs=tuple(logprobs)) if isinstance(part, TextChunk) else part
                logprobs.clear()
    for part in reasoning.finish():
        yield replace(part, logprobs=tuple(logprobs)) if isinstance(part, TextChunk) else part
        logprobs.clear()
    if logprobs:
        yield TextChunk("", tuple(logprobs))
