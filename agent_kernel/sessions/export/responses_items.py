"""Converts between items of OpenAI's Responses API and agent-kernel's messages. The functions have no side effects.

Items of a program that uses this API are stored unchanged in ``Message.extra``, together with the text that people and
search can read. Their calls and results are stored as hidden messages without ``calls``, because the API allows a call
without its result (an approval may come days later). ``to_model_history`` builds call and result messages from those
that are complete.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from agent_kernel.core.messages import (
    Media,
    Message,
    Part,
    Role,
    Text,
    ToolCall,
    parse_arguments,
    replace_media_with_note,
    tool_result,
)
from agent_kernel.core.session import Item
from agent_kernel.sessions.export.formats.openai_chat import data_url

Body: TypeAlias = dict[str, Any]
SHAPE = "responses"
"""Key of ``Message.extra`` for an item: {"item": the item, "text": "content" or the index in the list "content" from
which its text was cut out, "media": true if bytes of media were cut out}."""
ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
TEXTS = ("input_text", "output_text", "text")
CALL, OUTPUT = "function_call", "function_call_output"
INLINE = 256
"""Longest data URL, in characters, that stays in a stored item. The bytes of a longer data URL are stored as media, and
the item refers to them by hash."""
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/]+={0,2})\Z", re.ASCII)
_MEDIUM = "media:"


def message_of(item: Mapping[str, Any]) -> Message:
    """Convert an item of the Responses API to a message, from which ``item_of`` restores the same item. The item must
    be JSON that does not nest deeper than Python's recursion limit."""
    body = dict(item)
    media: dict[str, Media] = {}
    cut = _map_texts(body, lambda text: _cut_data_url(text, media))
    form: Body = {"media": True} if media else {}
    role = _role(body)
    if role is None:
        message = Message("assistant", tuple(media.values()), hidden=True, extra={SHAPE: {"item": cut, **form}})
        return message if item_of(message) == body else Message("assistant", hidden=True, extra={SHAPE: {"item": body}})
    message = Message(role, _parts(cut.get("content"), media))
    if _plain(message) == body:
        return message
    cut, place = _cut_text(cut)
    form |= {} if place is None else {"text": place}
    known = replace(message, extra={SHAPE: {"item": cut, **form}})
    if item_of(known) == body:
        return known
    return Message(role, _parts(body.get("content"), {}), extra={SHAPE: {"item": body}})


def item_of(message: Message, blobs: Mapping[str, bytes] | None = None) -> Body | None:
    """Return the item from which ``message_of`` made this message, or None if it did not make it. ``blobs`` holds the
    bytes of media, by hash, that the message itself does not contain."""
    form = message.extra.get(SHAPE)
    if not isinstance(form, dict) or not isinstance(form.get("item"), dict):
        return None
    body: Body = _restore_text(form["item"], form.get("text"), message.text)
    if not form.get("media"):
        return body
    urls = {_MEDIUM + medium.hash: _data_url(medium, blobs or {}) for medium in message.media}
    restored: Body = _map_texts(body, lambda text: urls.get(text) or text)
    return restored


def items_of(items: Iterable[Item], blobs: Mapping[str, bytes]) -> Iterator[list[Body]]:
    """Yield for each stored item its form in the Responses API: the original API item if a program stored one,
    otherwise at most one message and its calls. For a hidden message of agent-kernel the list is empty. Call ids of
    agent-kernel repeat within a session, but the API requires unique ids, so the ids of calls are built from the item's
    ``seq``."""
    ids: dict[str, str] = {}
    for item in items:
        message = item.message
        known = item_of(message, blobs)
        if known is not None:
            yield [known]
        elif message.hidden:
            yield []
        elif message.role == "tool":
            id = ids.pop(message.call_id or "", "")
            yield [{"type": OUTPUT, "call_id": id, "output": _output(message, blobs)}] if id else []
        else:
            ids = {call.id: f"call_{item.seq}_{at}" for at, call in enumerate(message.calls)}
            calls = [_call(call, ids[call.id]) for call in message.calls]
            silent = bool(calls) and not message.parts
            yield [*([] if silent else [_plain(message, blobs)]), *calls]


def to_model_history(messages: Sequence[Message]) -> list[Message]:
    """Return the history that a model of agent-kernel gets. Another program's calls with their results become calls and
    results of agent-kernel. Its calls without a result, results without a call, reasoning, hosted tools and
    instructions are left out."""
    if not any(message.extra for message in messages):
        return list(messages)
    outputs = {str(body.get("call_id")): body for body in map(_hidden_item, messages) if body.get("type") == OUTPUT}
    seen: list[Message] = []
    call_outputs: list[tuple[ToolCall, str]] = []
    for message in messages:
        body = _hidden_item(message)
        if body.get("type") == CALL and (output := outputs.pop(str(body.get("call_id")), None)):
            call = ToolCall(str(body["call_id"]), str(body.get("name")), parse_arguments(str(body.get("arguments"))))
            call_outputs.append((call, _output_text(output.get("output"))))
        elif body.get("type") != CALL:
            _answer(seen, call_outputs)
            call_outputs = []
        foreign = bool(message.extra)
        if not body and not (foreign and (message.role == "system" or (message.hidden and not message.parts))):
            seen.append(replace(message, extra={}) if foreign else message)
    _answer(seen, call_outputs)
    return seen


def _answer(history: list[Message], outputs: Sequence[tuple[ToolCall, str]]) -> None:
    """Append calls with their results (``outputs``) to ``history``. The calls are attached to the assistant message
    before them, as models write them."""
    if not outputs:
        return
    calls = tuple(call for call, _ in outputs)
    speaks = bool(history) and history[-1].role == "assistant" and not history[-1].calls
    before = history.pop() if speaks else Message("assistant")
    history += [replace(before, calls=calls), *(tool_result(call, text, "success") for call, text in outputs)]


def _hidden_item(message: Message) -> Body:
    """Return the API item of a hidden message; an empty object for any other message."""
    form = message.extra.get(SHAPE) if message.hidden else None
    body = form.get("item") if isinstance(form, dict) else None
    return body if isinstance(body, dict) else {}


def _role(body: Body) -> Role | None:
    """Return the role of an API item that is a message, None for other items."""
    role = body.get("role")
    return ROLES.get(role) if isinstance(role, str) and body.get("type", "message") == "message" else None


def _parts(content: Any, media: Mapping[str, Media]) -> tuple[Part, ...]:
    """Return the readable parts of a message: its texts, or otherwise its refusal, and its media in their places."""
    if isinstance(content, str):
        return (Text(content),) if content else ()
    elements = [element for element in content if isinstance(element, dict)] if isinstance(content, list) else []
    parts: list[Part] = []
    for element in elements:
        if element.get("type") in TEXTS and isinstance(element.get("text"), str):
            parts.append(Text(element["text"]))
        keys = [value for value in element.values() if isinstance(value, str) and value.startswith(_MEDIUM)]
        parts += [media[value] for value in keys if value in media]
    refusals = [Text(text) for text in (element.get("refusal") for element in elements) if isinstance(text, str)]
    rest = [medium for medium in media.values() if medium not in parts]
    return (*(parts or refusals), *rest)


def _plain(message: Message, blobs: Mapping[str, bytes] | None = None) -> Body:
    """Return an item of the Responses API that is made from only the text and the media of a message."""
    known = blobs or {}
    if message.role == "user" and any(medium.hash in known for medium in message.media):
        return {"role": "user", "content": [_element(part, known) for part in message.parts]}
    return {"role": message.role, "content": replace_media_with_note(message).text}


def _element(part: Part, blobs: Mapping[str, bytes]) -> Body:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if part.hash in blobs and part.mime.startswith("image/"):
        return {"type": "input_image", "image_url": _data_url(part, blobs), "detail": "auto"}
    return {"type": "input_text", "text": f"[{part.mime}, {part.size} bytes]"}


def _call(call: ToolCall, id: str) -> Body:
    raw = call.arguments.get("_raw")
    arguments = raw if isinstance(raw, str) and len(call.arguments) == 1 else json.dumps(dict(call.arguments))
    return {"type": CALL, "call_id": id, "name": call.name, "arguments": arguments}


def _output(message: Message, blobs: Mapping[str, bytes]) -> Any:
    if any(medium.hash in blobs for medium in message.media):
        return [_element(part, blobs) for part in message.parts]
    return replace_media_with_note(message).text


def _output_text(output: Any) -> str:
    if isinstance(output, str):
        return output
    if not isinstance(output, list):
        return json.dumps(output)
    texts = [element.get("text") for element in output if isinstance(element, dict)]
    return "\n".join(text if isinstance(text, str) else "[image or file]" for text in texts)


def _cut_text(body: Body) -> tuple[Body, Any]:
    """Return (item without its text, place of the text), since the text is already in the message's parts. The place is
    "content", or the index of the text in the list ``content``. If the item does not have exactly one text, it is
    returned unchanged with None as the place."""
    content = body.get("content")
    if isinstance(content, str):
        return {key: value for key, value in body.items() if key != "content"}, "content"
    if not isinstance(content, list):
        return body, None
    places = [at for at, element in enumerate(content) if isinstance(element, dict) and element.get("type") in TEXTS]
    if len(places) != 1:
        return body, None
    at = places[0]
    rest = {key: value for key, value in content[at].items() if key != "text"}
    return body | {"content": [*content[:at], rest, *content[at + 1 :]]}, at


def _restore_text(body: Body, place: Any, text: str) -> Body:
    if place == "content":
        return body | {"content": text}
    content = body.get("content")
    if type(place) is not int or not isinstance(content, list) or not 0 <= place < len(content):
        return body
    element = content[place] if isinstance(content[place], dict) else {}
    return body | {"content": [*content[:place], element | {"text": text}, *content[place + 1 :]]}


def _cut_data_url(text: str, media: dict[str, Media]) -> str:
    """Replace a data URL by a reference to its bytes, and add them to ``media``. Returns the text unchanged if it is
    not a data URL, or if exactly the same URL could not be restored."""
    match = _DATA_URL.match(text) if len(text) > INLINE and text.startswith("data:") else None
    if match is None:
        return text
    try:
        data = base64.b64decode(match[2], validate=True)
    except binascii.Error:
        return text
    medium = Media.of(match[1], data)
    media[_MEDIUM + medium.hash] = medium
    return _MEDIUM + medium.hash


def _data_url(medium: Media, blobs: Mapping[str, bytes]) -> str:
    data = medium.data if medium.data is not None else blobs.get(medium.hash)
    return data_url(medium, data) if data is not None else ""


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a JSON value with every text replaced by ``change(text)``. Keys of objects stay unchanged."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_texts(inner, change) for key, inner in value.items()}
    return [_map_texts(inner, change) for inner in value] if isinstance(value, list | tuple) else value
