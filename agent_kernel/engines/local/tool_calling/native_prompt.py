"""Converts a conversation to the messages of a chat template for the native tool protocol. The functions have no side
effects.

Messages that a template does not support are written as text in the form that most models were trained on: tools in the
system message, calls in ``<tool_call>`` tags, results in ``<tool_response>`` tags.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agent_kernel.core.messages import Message, ToolCall, strict_call_id
from agent_kernel.core.protocols import ToolSpec
from agent_kernel.engines.local.backend import ChatMessage
from agent_kernel.engines.local.tool_calling.template_probe import TemplateProbe

RULES = (
    "You can call these tools:\n{tools}\n"
    "To call one, write its name and arguments as JSON in tags, then stop; you are then shown the result:\n"
    '<tool_call>\n{{"name": "NAME", "arguments": {{...}}}}\n</tool_call>\n'
    "If no tool is needed, answer in plain text."
)

FindVerbatim = Callable[[Message], str | None]
"""Returns the text that the model originally wrote for a message with calls, if the template would write it
differently; otherwise None."""


def chat(
    messages: Sequence[Message], tools: Sequence[ToolSpec], template: TemplateProbe, written: FindVerbatim
) -> list[ChatMessage]:
    """Return the messages for the chat template. If the template can list tools, it gets them separately; otherwise the
    system message describes them. System messages are joined and come first. Consecutive user messages become one,
    because many templates require alternating roles."""
    system = [message.text for message in messages if message.role == "system" and message.text]
    if tools and not template.tools:
        system.append(RULES.format(tools="\n".join(json.dumps(tool.to_json()["function"]) for tool in tools)))
    shown: list[ChatMessage] = []
    for message in messages:
        if message.role == "system":
            continue
        shown += _convert(message, template, written)
    shown = _pair_calls(shown) if template.results and not template.parallel else shown
    if system and not template.system:
        return _join_user_messages([{"role": "user", "content": "\n\n".join(system)}, *shown])
    head: list[ChatMessage] = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    return head + _join_user_messages(shown)


def call_text(call: ToolCall) -> str:
    """Return a call as text, for templates without a form of their own for calls."""
    body = json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def _convert(message: Message, template: TemplateProbe, written: FindVerbatim) -> list[ChatMessage]:
    if message.role == "tool":
        return [_result(message, template)]
    if message.role == "assistant" and message.calls:
        raw = written(message)
        if raw is not None:
            return [{"role": "assistant", "content": raw}]
        if template.results:
            return [{"role": "assistant", "content": message.text, "tool_calls": _calls(message.calls, template)}]
        return [{"role": "assistant", "content": "\n".join([message.text, *map(call_text, message.calls)]).lstrip()}]
    return [{"role": message.role, "content": message.text}]


def _calls(calls: Iterable[ToolCall], template: TemplateProbe) -> list[dict[str, Any]]:
    def arguments(call: ToolCall) -> Any:
        return json.dumps(dict(call.arguments)) if template.text_arguments else dict(call.arguments)

    return [
        {
            "id": strict_call_id(call.id),
            "type": "function",
            "function": {"name": call.name, "arguments": arguments(call)},
        }
        for call in calls
    ]


def _result(message: Message, template: TemplateProbe) -> ChatMessage:
    text = message.text if message.status in ("success", None) else f"({message.status}) {message.text}"
    if template.results:
        key = strict_call_id(message.call_id or "")
        return {"role": "tool", "tool_call_id": key, "name": message.name or "", "content": text}
    return {"role": "user", "content": f"<tool_response>\n{text}\n</tool_response>"}


def _pair_calls(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages with each call in a separate message, followed by its result, for templates that accept only
    one call per message."""
    paired: list[ChatMessage] = []
    results = {message["tool_call_id"]: message for message in messages if message["role"] == "tool"}
    split: set[str] = set()
    for message in messages:
        calls = message.get("tool_calls", ())
        if len(calls) < 2:
            if message.get("tool_call_id") not in split:
                paired.append(message)
            continue
        for at, call in enumerate(calls):
            paired.append({"role": "assistant", "content": "" if at else message["content"], "tool_calls": [call]})
            paired += [results[call["id"]]] if call["id"] in results else []
            split.add(call["id"])
    return paired


def _join_user_messages(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Return the messages, in which consecutive user messages are joined to one."""
    joined: list[ChatMessage] = []
    for message in messages:
        if joined and message["role"] == "user" == joined[-1]["role"]:
            joined[-1] = {"role": "user", "content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(message)
    return joined
