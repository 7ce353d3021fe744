"""Encodes a request as the JSON body of ``chat/completions``. The functions have no side effects.

The whole conversation is sent with every request; nothing in it refers to data that the server may have stored.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_kernel.core.messages import Media, Message, ToolCall, strict_call_id
from agent_kernel.core.protocols import EngineRequest, OutputFormat

NAMED_CHOICES = ("auto", "none", "required")
PICTURES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
FROM_TOOL = "Shown by the call before:"
CONTINUE = "continue_final_message"
"""The field with which vLLM, SGLang and agent-kernel's application for Ray Serve continue the last message."""


def encode(
    request: EngineRequest, model: str, *, vision: bool, extra: Mapping[str, Any], affinity: str = ""
) -> dict[str, Any]:
    """Return the body for ``request``. ``affinity`` is the result of ``affinity_of``; ``extra`` are additional fields.
    Raises InvalidRequest if fields of the request contradict each other."""
    request.required_tools()
    body: dict[str, Any] = {
        **({"prompt_cache_key": affinity} if affinity else {}),
        **extra,
        "model": model,
        "messages": list(_messages(request.messages, vision)),
        "stream": True,
        "stream_options": {"include_usage": True},
        **_sampling(request),
    }
    if request.tools:
        body["tools"] = [tool.to_json() for tool in request.tools]
        if request.tool_choice != "auto":
            forced_function = {"type": "function", "function": {"name": request.tool_choice}}
            body["tool_choice"] = request.tool_choice if request.tool_choice in NAMED_CHOICES else forced_function
        if not request.parallel_calls:
            body["parallel_tool_calls"] = False
    if request.output is not None:
        body |= _format(request.output)
    if request.continues:
        body |= {CONTINUE: True, "add_generation_prompt": False}
    return body


def affinity_of(request: EngineRequest, url: str) -> str:
    """Return an id of 32 hexadecimal digits that all requests of one session to one server share; an empty string for a
    request without a session. A router sends requests with equal ids to the same replica, whose cache holds the prompt.
    The id is a hash, because the name of the session contains the name of the user. It depends on ``url``, so that two
    servers cannot recognise the same user."""
    if not request.session:
        return ""
    return hashlib.sha256(f"{url}\n{request.session}".encode("utf-8", "replace")).hexdigest()[:32]


def _sampling(request: EngineRequest) -> dict[str, Any]:
    """Return the sampling options as fields of OpenAI's API. The fields top_k, min_p and repetition_penalty, which that
    API does not have, are named as in vLLM and SGLang."""
    sampling = request.sampling
    names = (
        *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        *("seed", "max_tokens", "reasoning_effort"),
    )
    body = {name: value for name in names if (value := getattr(sampling, name)) is not None}
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if sampling.logprobs:
        body["logprobs"] = True
    if sampling.logprobs and sampling.top_logprobs:
        body["top_logprobs"] = sampling.top_logprobs
    if sampling.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias}
    return body


def _format(output: OutputFormat) -> dict[str, Any]:
    """Return the fields that request an output format. For a regex, a choice or a grammar it is ``structured_outputs``,
    a field of vLLM, because OpenAI's API has none."""
    match output.kind:
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "json_schema":
            schema = {"name": output.name or "answer", "schema": dict(output.json_schema), "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": schema}}
        case "regex":
            return {"structured_outputs": {"regex": output.regex}}
        case "choice":
            return {"structured_outputs": {"choice": list(output.choice)}}
        case "grammar":
            return {"structured_outputs": {"grammar": output.grammar}}


def _messages(messages: Sequence[Message], vision: bool) -> Iterator[dict[str, Any]]:
    """Yield the messages in the form of OpenAI's API. Tool messages can contain only text, so pictures made by tools
    are in a user message after the last result of their round."""
    for from_tool, group in itertools.groupby(messages, key=lambda message: message.role == "tool"):
        pictures: list[dict[str, Any]] = []
        for message in group:
            if from_tool:
                pictures += _pictures(message.media) if vision else []
                call_id = strict_call_id(message.call_id or "")
                yield {"role": "tool", "tool_call_id": call_id, "content": _text(message, vision)}
            elif message.role == "assistant":
                yield _assistant(message)
            else:
                yield {"role": message.role, "content": _content(message, vision)}
        if pictures:
            yield {"role": "user", "content": [{"type": "text", "text": FROM_TOOL}, *pictures]}


def _assistant(message: Message) -> dict[str, Any]:
    """Return an assistant message in the form of OpenAI's API. Reasoning is left out, because servers use different
    fields for it, and models do not get their earlier reasoning."""
    body: dict[str, Any] = {"role": "assistant", "content": message.text}
    if message.calls:
        body["tool_calls"] = [_call(call) for call in message.calls]
    return body


def _call(call: ToolCall) -> dict[str, Any]:
    """Return a tool call in the form of OpenAI's API. Its arguments are always a JSON object, because servers parse
    them. If the model wrote something else, the object contains it as ``_raw``."""
    function = {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)}
    return {"id": strict_call_id(call.id), "type": "function", "function": function}


def _content(message: Message, vision: bool) -> str | list[dict[str, Any]]:
    pictures = _pictures(message.media) if vision else []
    text = _text(message, vision)
    if not pictures:
        return text
    return [*pictures, {"type": "text", "text": text}] if text else pictures


def _text(message: Message, vision: bool) -> str:
    """Return the text of a message, with a note for each medium that is not sent."""
    missing = [medium for medium in message.media if not (vision and _can_be_sent(medium))]
    notes = [f"[{medium.mime}, not shown to this model]" for medium in missing]
    return "\n".join([*([message.text] if message.text or not notes else []), *notes])


def _pictures(media: Sequence[Media]) -> list[dict[str, Any]]:
    return [
        {
            "type": "image_url",
            "image_url": {"url": f"data:{medium.mime};base64,{b64encode(medium.data or b'').decode()}"},
        }
        for medium in media
        if _can_be_sent(medium)
    ]


def _can_be_sent(medium: Media) -> bool:
    return medium.data is not None and medium.mime in PICTURES
