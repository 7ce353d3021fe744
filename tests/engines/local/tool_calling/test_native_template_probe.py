"""Tests what the probe finds out about chat templates by rendering them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import ChatMessage
from agent_kernel.engines.local.tool_calling.chat_template import ChatTemplate
from agent_kernel.engines.local.tool_calling.template_probe import TemplateProbe, probe
from tests.engines.local.tool_calling import chat_templates


async def probe_template(source: str) -> TemplateProbe:
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")

    async def render(messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]) -> str:
        try:
            return template.render(messages, tools)
        except Exception as error:
            raise EngineError(str(error)) from error

    return await probe(render)


HERMES = TemplateProbe(tools=True, results=True, parallel=True, end="<|im_end|>")
FOUND = {
    "HERMES": HERMES,
    "THINKING": HERMES,
    "MAY_THINK": HERMES,
    "BARE": TemplateProbe(tools=True, results=True, opening="", closing="", key="parameters", end="<|im_end|>"),
    "LISTED": TemplateProbe(
        tools=True, results=True, parallel=True, system=False, opening="[TOOL_CALLS] [", closing="]", end="</s>"
    ),
    "ELEMENTS": TemplateProbe(tools=True, results=True, parallel=True, json=False, end="<|im_end|>"),
    "TEXT_ARGUMENTS": TemplateProbe(tools=True, results=True, parallel=True, text_arguments=True, end="<|im_end|>"),
    "PLAIN": TemplateProbe(end="<|im_end|>"),
    "ALTERNATING": TemplateProbe(system=False, end="<end_of_turn>"),
}


@pytest.mark.parametrize("name", FOUND)
async def test_a_template_is_known_by_what_it_renders(name: str) -> None:
    assert await probe_template(getattr(chat_templates, name)) == FOUND[name]


@pytest.mark.parametrize("source", ["", "{{ raise_exception('no') }}", "{{ messages.x.y }}", "{% for %}", "words"])
async def test_a_template_that_renders_nothing_useful_is_taken_for_one_that_knows_nothing(source: str) -> None:
    found = await probe_template(source)

    assert (found.tools, found.results, found.opening) == (False, False, "<tool_call>\n")
