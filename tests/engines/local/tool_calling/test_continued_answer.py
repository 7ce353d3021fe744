"""Tests requests that continue an answer: both protocols leave the message of the assistant open in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import assistant, user
from agent_kernel.core.protocols import CallChunk, Chunk, EndChunk, EngineRequest, OutputFormat, TextChunk, ToolSpec
from agent_kernel.engines.local.tool_calling.code_fence_protocol import Fence
from agent_kernel.engines.local.tool_calling.native_protocol import Native
from agent_kernel.engines.local.tool_calling.tool_protocols import ToolProtocol
from tests.engines.local.scripted_backend import ScriptedBackend, chunks_of
from tests.engines.local.tool_calling import chat_templates

PYTHON = ToolSpec("python", "Runs code.", {"type": "object", "properties": {"code": {"type": "string"}}}, kind="test")
SPECIALS = ("<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>")
HALF = (user("Count."), assistant("One, two"))


def backend_of(template: str, *answers: str) -> ScriptedBackend:
    return ScriptedBackend(template, answers, SPECIALS)


def protocol_of(name: str, backend: ScriptedBackend) -> ToolProtocol:
    return Native(backend.loaded, fences=False) if name == "native" else Fence(template=backend.loaded.template)


def text_of(chunks: Sequence[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


@pytest.mark.parametrize("name", ["native", "fence"])
@pytest.mark.parametrize("tools", [(), (PYTHON,)])
@pytest.mark.parametrize("template", [chat_templates.HERMES, chat_templates.PLAIN])
async def test_the_prompt_ends_with_the_beginning_of_the_answer(
    name: str, tools: tuple[ToolSpec, ...], template: str
) -> None:
    whole, rest = (backend_of(template, text) for text in ("One, two, three.<|im_end|>", ", three.<|im_end|>"))
    asked = EngineRequest(HALF[:1], tools, tool_choice="none" if tools else "auto")
    await chunks_of(protocol_of(name, whole), whole.completer(), asked)
    continued = EngineRequest(HALF, tools, continues=True)
    chunks = await chunks_of(protocol_of(name, rest), rest.completer(), continued)
    assert text_of(chunks) == ", three."
    (prompt, _), (open_prompt, _) = whole.submitted[-1], rest.submitted[-1]
    assert open_prompt.endswith("One, two")
    if name == "native" or not tools:  # without a call of python, the fence's prompt has no examples
        assert open_prompt == prompt + "One, two"
    end = chunks[-1]
    assert isinstance(end, EndChunk)
    assert (end.usage.prompt_tokens, end.reason) == (len(rest.encode(open_prompt)), "stop")


@pytest.mark.parametrize("name", ["native", "fence"])
async def test_the_rest_of_a_model_that_reasons_is_text(name: str) -> None:
    template = chat_templates.HERMES + "{# <think> #}"
    rest = backend_of(template, ", three.<|im_end|>")
    chunks = await chunks_of(protocol_of(name, rest), rest.completer(), EngineRequest(HALF, continues=True))
    assert text_of(chunks) == ", three."
    assert rest.submitted[-1][0].endswith("</think>\n\nOne, two")


async def test_a_call_may_follow_the_text_that_is_continued() -> None:
    called = '\n<tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call><|im_end|>'
    rest = backend_of(chat_templates.HERMES, called)
    request = EngineRequest(HALF, (PYTHON,), continues=True)
    chunks = await chunks_of(protocol_of("native", rest), rest.completer(), request)
    assert [chunk.call.arguments for chunk in chunks if isinstance(chunk, CallChunk)] == [{"code": "1"}]


@pytest.mark.parametrize("name", ["native", "fence"])
@pytest.mark.parametrize(
    "options", [{"output": OutputFormat("json_object")}, {"tools": (PYTHON,), "tool_choice": "required"}]
)
async def test_an_answer_with_a_required_form_is_not_continued(name: str, options: dict[str, Any]) -> None:
    rest = backend_of(chat_templates.HERMES, "x")
    with pytest.raises(InvalidRequest, match="cannot be continued"):
        await chunks_of(protocol_of(name, rest), rest.completer(), EngineRequest(HALF, continues=True, **options))
