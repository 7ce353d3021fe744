"""Parses tool calls that models write as JSON. The parser accepts common mistakes, but does not guess. The functions
have no side effects.

Text that is not JSON is also parsed as a Python literal, since models mix up the two, and with missing brackets added
at its end. Nothing else is repaired, because a guess could run code that the model did not write.
"""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_kernel.core.messages import MAX_ARGUMENT_DEPTH, ToolCall, is_too_deep, parse_arguments

NAMES, ARGUMENTS = ("name", "function", "tool_name"), ("arguments", "parameters", "args")
KEYS = (*NAMES, *ARGUMENTS, "type", "id", "tool_calls")
"""The JSON of a call must begin with one of these keys."""
CLOSERS: Mapping[str, str] = {"{": "}", "[": "]"}
LITERAL_CHARS = 20_000
_START = re.compile(r"\s*(?:\[\s*)?\{\s*([\"'])")
_NAME = re.compile(r"[\"'](?:name|function)[\"']\s*:\s*[\"']([\w.:-]{1,64})[\"']")


def new_call(name: str, arguments: Mapping[str, Any]) -> ToolCall:
    """Create a call of the tool ``name``. Its id has nine letters and digits, the only form that every chat template
    accepts."""
    return ToolCall(os.urandom(5).hex()[:9], name, arguments)


def may_be_call(text: str) -> bool | None:
    """Return whether ``text``, which begins with a bracket, begins like a call; None if it is too short to decide."""
    start = _START.match(text)
    if start is None:
        return None if re.fullmatch(r"\s*(?:\[\s*)?(?:\{\s*)?", text) else False
    key = text[start.end() :]
    if any(key.startswith(f"{known}{start[1]}") for known in KEYS):
        return True
    return None if any(f"{known}{start[1]}".startswith(key) for known in KEYS) else False


def end_of_json(text: str) -> int | None:
    """Return the position directly after the JSON value with which ``text`` begins; None if the value does not end
    within ``text``."""
    depth = 0
    for at, char in _brackets(text):
        depth += (char in "{[") - (char in "}]")
        if char in "}]" and depth <= 0:
            return at + 1
    return None


def _brackets(text: str) -> Iterator[tuple[int, str]]:
    """Yield (position, bracket) for each bracket outside strings. If a string is still open at the end of the text,
    yield (length of the text, quote of the string) last."""
    quote, at = "", 0
    while at < len(text):
        char = text[at]
        if quote:
            at += char == "\\"
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "{}[]":
            yield at, char
        at += 1
    if quote:
        yield at, quote


def calls_in(text: str, *, tagged: bool = False) -> list[ToolCall]:
    """Return the calls in a text that contains only calls: an object, a list of objects, or several of these. Return an
    empty list for any other text. ``tagged`` means that the text is in a place where only calls can be, so that an
    object with a name but without arguments is a call."""
    calls: list[ToolCall] = []
    rest = text.strip()
    while rest:
        end = end_of_json(rest) or len(rest)
        new_calls = _calls_of(_value(rest[:end]), tagged)
        if not new_calls:
            return []
        calls += new_calls
        rest = rest[end:].lstrip(" \t\r\n,;")
    return calls


def broken_call(text: str, tools: Sequence[str]) -> ToolCall:
    """Return a call for a tagged text that cannot be parsed. Its only argument is the text, as ``_raw``, so that the
    toolbox reports the error to the model. ``tools`` are the names of the offered tools."""
    name_match = _NAME.search(text)
    name = name_match[1] if name_match else tools[0] if len(tools) == 1 else "unreadable"
    return new_call(name, {"_raw": text.strip()})


def _calls_of(value: Any, tagged: bool) -> list[ToolCall]:
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list):
        calls = [call_of(item, tagged=tagged) for item in value]
        return [call for call in calls if call is not None] if None not in calls else []
    call = call_of(value, tagged=tagged)
    return [call] if call is not None else []


def call_of(value: Any, *, tagged: bool) -> ToolCall | None:
    """Return the call that a JSON object describes: the object has a name and arguments, or has them under the key
    ``function`` as in OpenAI's API. Return None if the object is not a call. With ``tagged``, the arguments may be
    missing."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in NAMES if isinstance(value.get(key), str)), "")
    candidates = [value[key] for key in ARGUMENTS if key in value]
    if not name or not (candidates or tagged):
        return None
    arguments = candidates[0] if candidates and candidates[0] is not None else {}
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return new_call(name, parse_arguments(raw))


def _value(text: str) -> Any:
    """Return the value of a text in JSON or a Python literal; None if it cannot be parsed."""
    for candidate in (text, _with_brackets_closed(text)):
        try:
            value = json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            pass
        else:
            return None if is_too_deep(value, MAX_ARGUMENT_DEPTH + 4) else value
        if len(candidate) <= LITERAL_CHARS and candidate.count("{") + candidate.count("[") <= MAX_ARGUMENT_DEPTH:
            try:
                return _json_like(ast.literal_eval(candidate))
            except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                pass
    return None


def _json_like(value: Any) -> Any:
    """Convert a Python literal to the types of JSON. Raises TypeError for a value that JSON cannot represent (sets,
    bytes, complex numbers)."""
    return json.loads(json.dumps(value))


def _with_brackets_closed(text: str) -> str:
    """Return the text with its missing closing brackets, which small models forget. If a string is open, return the
    text unchanged, because any amount of it may be missing."""
    stack: list[str] = []
    for _, char in _brackets(text):
        if char in "\"'":
            return text
        if char in CLOSERS:
            stack.append(CLOSERS[char])
        elif stack and char == stack[-1]:
            stack.pop()
    return text + "".join(reversed(stack))
