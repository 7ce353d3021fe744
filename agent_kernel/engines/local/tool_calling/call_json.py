"""Tool calls as models write them in JSON: found in text, read leniently, never guessed; pure.

What is not JSON is read once more as a Python literal (models mix the two up) and with brackets closed at its end.
Nothing else is mended: a repair that guesses would run what nobody wrote.
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
"""With which of these the JSON of a call may begin."""
CLOSERS: Mapping[str, str] = {"{": "}", "[": "]"}
LITERAL_CHARS = 20_000
_START = re.compile(r"\s*(?:\[\s*)?\{\s*([\"'])")
_NAME = re.compile(r"[\"'](?:name|function)[\"']\s*:\s*[\"']([\w.:-]{1,64})[\"']")


def new_call(name: str, arguments: Mapping[str, Any]) -> ToolCall:
    """With an id of nine letters and digits, the only form that every chat template takes."""
    return ToolCall(os.urandom(5).hex()[:9], name, arguments)


def may_be_call(text: str) -> bool | None:
    """Whether ``text``, which begins with a bracket, begins like a call; None: too short to tell."""
    start = _START.match(text)
    if start is None:
        return None if re.fullmatch(r"\s*(?:\[\s*)?(?:\{\s*)?", text) else False
    key = text[start.end() :]
    if any(key.startswith(f"{known}{start[1]}") for known in KEYS):
        return True
    return None if any(f"{known}{start[1]}".startswith(key) for known in KEYS) else False


def end_of_json(text: str) -> int | None:
    """Where the JSON value that ``text`` begins with ends; None: not within ``text``."""
    depth = 0
    for at, char in _brackets(text):
        depth += (char in "{[") - (char in "}]")
        if char in "}]" and depth <= 0:
            return at + 1
    return None


def _brackets(text: str) -> Iterator[tuple[int, str]]:
    """Those outside strings, with where they are; at last, if a string is still open, its quote."""
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
    """The calls of a text that holds nothing else: one object, a list of them, or several. Empty if it is anything
    else. ``tagged``: the text stands where only calls may, so a name without arguments is one."""
    calls: list[ToolCall] = []
    rest = text.strip()
    while rest:
        end = end_of_json(rest) or len(rest)
        found = _calls_of(_value(rest[:end]), tagged)
        if not found:
            return []
        calls += found
        rest = rest[end:].lstrip(" \t\r\n,;")
    return calls


def broken_call(text: str, tools: Sequence[str]) -> ToolCall:
    """The call that a tagged text was meant to be, its text under ``_raw``: the toolbox tells the model."""
    named = _NAME.search(text)
    name = named[1] if named else tools[0] if len(tools) == 1 else "unreadable"
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
    """A name and arguments, also as OpenAI nests them under ``function``."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in NAMES if isinstance(value.get(key), str)), "")
    given = [value[key] for key in ARGUMENTS if key in value]
    if not name or not (given or tagged):
        return None
    arguments = given[0] if given and given[0] is not None else {}
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return new_call(name, parse_arguments(raw))


def _value(text: str) -> Any:
    """None for what can not be read."""
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
    """Python's literals that JSON does not have (sets, bytes, complex numbers) are not taken. Raises TypeError."""
    return json.loads(json.dumps(value))


def _with_brackets_closed(text: str) -> str:
    """Small models forget the last bracket of a call. A string that is still open is left so: it may lack anything."""
    stack: list[str] = []
    for _, char in _brackets(text):
        if char in "\"'":
            return text
        if char in CLOSERS:
            stack.append(CLOSERS[char])
        elif stack and char == stack[-1]:
            stack.pop()
    return text + "".join(reversed(stack))
