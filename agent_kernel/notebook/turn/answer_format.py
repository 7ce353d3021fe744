"""Defines the answer formats of the option ``-f``: how each format is requested from the model and displayed, and how
code is extracted from an answer."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent_kernel.core.programs.syntax_tree import parse_or_empty
from agent_kernel.notebook.display.render import PRE, Bundle, text_bundle
from agent_kernel.notebook.display.safe_markdown import code_block

FIX_ROUNDS = 2
CODE = {
    "title": "Form of the answer",
    "text": "One fenced block of Python, whole and ready to be run as a new cell of this notebook, after at most two "
    "sentences. It does not run by itself: the person reads it and runs it.",
}
FENCED = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[\w+#.-]*)[^\n]*\n(?P<code>.*?)^ {0,3}(?P=fence)", re.M | re.S
)
WRAPPER = re.compile(r'\s*\{\s*"value"\s*:\s*')
"""Matches the beginning of an answer ``{"value": VALUE}``. Values that are not objects are requested in this form,
because models and servers expect an object."""
PYTHON = {"", "py", "python", "python3", "ipython", "ipython3"}


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """One answer format. ``render`` converts the text received so far to a MIME bundle. ``notes`` are hidden context
    that the model reads before the prompt. ``output`` constrains what the engine generates. ``rounds`` is the default
    limit of tool rounds (None: the server's default). ``fields`` are further fields of the request that starts the
    turn."""

    render: Callable[[str], Bundle] = text_bundle
    notes: tuple[dict[str, str], ...] = ()
    output: Mapping[str, Any] = field(default_factory=dict)
    rounds: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


def plain_bundle(text: str) -> Bundle:
    return {"text/html": f"<pre style='{PRE}'>{html.escape(text)}</pre>", "text/plain": text}


def json_text_bundle(text: str) -> Bundle:
    """Render the JSON text received so far, which may be incomplete."""
    return {"text/markdown": code_block(text, "json"), "text/plain": text}


def json_value_bundle(text: str) -> Bundle:
    """Render the value of an answer ``{"value": VALUE}`` from the text received so far. The code block is empty until
    the value begins. A text that has another form is rendered whole."""
    if match := WRAPPER.match(text):
        value = text[match.end() :].rstrip()
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return json_text_bundle(value)
        return json_text_bundle(value[:-1].rstrip())  # the last brace closes the wrapper
    is_wrapper = '{"value":'.startswith("".join(text.split()))
    return json_text_bundle("" if is_wrapper else text)


FORMS: Mapping[str, AnswerFormat] = MappingProxyType(
    {
        "md": AnswerFormat(),
        "code": AnswerFormat(notes=(CODE,), rounds=0),
        "explain": AnswerFormat(rounds=0, fields={"tool_choice": "none"}),
        # The answer is the program that ran in a draft, so the model has to call Python.
        "fix": AnswerFormat(rounds=FIX_ROUNDS, fields={"tools": ["python"], "tool_choice": "python"}),
        "json": AnswerFormat(json_text_bundle, output={"kind": "json_object"}),
        "text": AnswerFormat(plain_bundle),
    }
)


def extract_code(text: str) -> str:
    """Return the Python code of an answer: its fenced blocks joined, or the whole text if it parses as Python, else
    ""."""
    blocks = [match["code"].rstrip() for match in FENCED.finditer(text) if match["info"].lower() in PYTHON]
    if blocks or FENCED.search(text):
        return "\n\n".join(blocks)
    return text.strip() if parse_or_empty(text).body else ""
