"""Tests the code fence with models that reason: code begins at once, and reasoning is not part of a text answer."""

from __future__ import annotations

import pytest

from agent_kernel.core.messages import user
from agent_kernel.core.protocols import CallChunk, EngineRequest, ReasoningChunk, TextChunk, ToolSpec
from agent_kernel.engines.local.tool_calling.code_fence_protocol import Fence
from tests.engines.local.scripted_backend import ScriptedBackend, chunks_of
from tests.engines.local.tool_calling import chat_templates

PYTHON = ToolSpec("python", "Runs code.", {}, kind="test")
SPECIALS = ("<|im_end|>", "<think>", "</think>")
ASKED = (user("How much is 1 + 2?"),)
THINKING = pytest.mark.parametrize(
    ("template", "opening"),
    [(chat_templates.MAY_THINK, "<think>\n"), (chat_templates.THINKING, "")],
    ids=["the model opens the block", "the prompt opens it"],
)


@THINKING
async def test_code_begins_behind_an_empty_block(template: str, opening: str) -> None:
    played = ScriptedBackend(template, ["```", "print(1 + 2)\n```"], SPECIALS, words=("```",))
    fence = Fence(template=template)

    chunks = await chunks_of(fence, played.completer(), EngineRequest(ASKED, (PYTHON,)))

    assert [chunk.call.arguments for chunk in chunks if isinstance(chunk, CallChunk)] == [{"code": "print(1 + 2)\n"}]
    assert all(prompt.count("</think>") == 1 for prompt, _ in played.submitted)
    assert played.submitted[-1][0].endswith("</think>\n\n```python\n")


@THINKING
async def test_words_come_without_the_thinking_before_them(template: str, opening: str) -> None:
    played = ScriptedBackend(template, [f"{opening}One and two.\n</think>\n\n3."], SPECIALS)

    chunks = await chunks_of(Fence(template=template), played.completer(), EngineRequest(ASKED))

    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == "3."
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningChunk)).strip() == "One and two."
