"""Determines which features a chat template supports by rendering test conversations with it."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.local.backend import ChatMessage
from agent_kernel.engines.local.decoding.reasoning import open_tag
from agent_kernel.engines.local.tool_calling.call_parser import TAGS

Render: TypeAlias = Callable[[Sequence[ChatMessage], Sequence[Mapping[str, Any]]], Awaitable[str]]
TOOL, SYSTEM, RESULT, SECOND, WORD, NEXT = (
    "probe_weather", "Probe system words.", "probe sunny", "probe rainy", "Probe answer words.", "Probe next words."
)  # fmt: skip
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Tells the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Its name."}},
                "required": ["city"],
            },
        },
    },
)
USER: ChatMessage = {"role": "user", "content": "Probe question words."}
_TAG = re.compile(r"\s*(<[^<>\s]{1,40}>)")
_OPENERS = re.compile(rf"(?:{'|'.join(map(re.escape, TAGS))})\s*$")


@dataclass(frozen=True, slots=True)
class TemplateProbe:
    """The features that a chat template supports. ``tools``: it lists tools. ``results``: it accepts messages with the
    role ``tool``. ``parallel``: it accepts several results for one message. ``system``: it accepts the role ``system``.
    ``text_arguments``: it requires the arguments of a call as JSON text.

    ``opening`` and ``closing`` enclose the JSON of a call, and ``key`` is the name of the arguments in it. ``json`` is
    false if the template writes calls in another form. ``end`` is the tag that ends a turn, empty if there is none.
    """

    tools: bool = False
    results: bool = False
    parallel: bool = False
    system: bool = True
    text_arguments: bool = False
    json: bool = True
    opening: str = "<tool_call>\n"
    closing: str = "\n</tool_call>"
    key: str = "arguments"
    end: str = ""


async def probe(render: Render) -> TemplateProbe:
    """Render the test conversations and return the features that the template supports. ``render`` is
    ``Completer.render``, which raises EngineError if the template refuses a conversation."""

    async def render_or_empty(*messages: ChatMessage) -> str:
        try:
            return await render(messages, TOOLS)
        except EngineError:
            return ""

    prompt = await render_or_empty(USER)
    with_system = await render_or_empty({"role": "system", "content": SYSTEM}, USER)
    with_answer = await render_or_empty(USER, {"role": "assistant", "content": WORD}, {"role": "user", "content": NEXT})
    text_arguments = not await render_or_empty(USER, *_round(1, as_text=False))
    one = await render_or_empty(USER, *_round(1, as_text=text_arguments))
    two = await render_or_empty(USER, *_round(2, as_text=text_arguments))
    head, _, tail = with_answer.partition(WORD)
    if not (prompt and TOOL in prompt):
        return TemplateProbe(system=SYSTEM in with_system, end=_end(tail))
    called = await render_or_empty(USER, _round(1, as_text=text_arguments)[0], {"role": "user", "content": NEXT})
    # Some templates list the tools before the last user message. So the text before a call is taken from a conversation
    # with one user message, and the text after it from one in which another user message follows.
    opening, _, key = _form(one or called, prompt, head, tail)
    _, closing, _ = _form(called, prompt, head, tail)
    plain = TemplateProbe()
    return TemplateProbe(
        tools=True,
        results=RESULT in one,
        parallel=RESULT in two and SECOND in two,
        system=SYSTEM in with_system,
        text_arguments=text_arguments,
        json=bool(key),
        opening=opening if key else plain.opening,
        closing=closing if key else plain.closing,
        key=key or plain.key,
        end=_end(tail),
    )


def _round(calls: int, *, as_text: bool) -> list[ChatMessage]:
    """Return an assistant message with this number of calls, and a message with the result of each call. With
    ``as_text``, the arguments are JSON text."""
    arguments: Any = '{"city": "Oslo"}' if as_text else {"city": "Oslo"}
    ids = [f"probeid{at:02d}" for at in range(calls)]
    tool_calls = [{"id": key, "type": "function", "function": {"name": TOOL, "arguments": arguments}} for key in ids]
    results = [
        {"role": "tool", "tool_call_id": key, "name": TOOL, "content": text}
        for key, text in zip(ids, (RESULT, SECOND), strict=False)
    ]
    return [{"role": "assistant", "content": "", "tool_calls": tool_calls}, *results]


def _end(tail: str) -> str:
    """Return the tag directly after an answer; an empty string if there is none. ``tail`` is the text after the
    answer."""
    tag = _TAG.match(tail)
    return tag[1] if tag else ""


def _form(called: str, prompt: str, head: str, tail: str) -> tuple[str, str, str]:
    """Return the text before and after the JSON of a call, and the name of its arguments; the name is empty if the call
    is not JSON.

    ``called`` is a rendered conversation with a call. ``prompt`` is a prompt up to the point where the model continues.
    ``head`` and ``tail`` are the rendered text before and after an answer in text.
    """
    starts = [prompt, prompt.rstrip().removesuffix(open_tag(prompt).rstrip()), head]
    start = max((len(text) for text in starts if called.startswith(text)), default=-1)
    for brace in re.finditer(r"\{", called[max(0, start) :]):
        at = max(0, start) + brace.start()
        try:
            value, size = json.JSONDecoder().raw_decode(called[at:])
        except ValueError:
            continue
        key = next((key for key in ("arguments", "parameters") if key in value), "")
        if value.get("name") != TOOL or not key:
            continue
        before = _OPENERS.search(called[:at])
        opening = called[start:at] if start >= 0 else before[0] if before else ""
        after = called[at + size :]
        closing = after.removesuffix(tail) if tail and after.endswith(tail) else ""
        return opening, closing, key
    return "", "", ""
