"""Checks the strings of a chart: they must not contain URLs in any spelling, markup, or pictures except embedded ones.
The functions have no side effects.
"""

from __future__ import annotations

import functools
import html
import re
from importlib.resources import files
from typing import Any

MAX_DEPTH = 60
IGNORED = re.compile(r"[\x00-\x1f\x7f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Characters that browsers drop when they parse a URL (WHATWG URL, 4.4: tab and newline), and invisible characters."""
ADDRESS = re.compile(
    r"[/\\]{2}"  # "//host", and "\\host" or "/\host", which browsers read as "//host"
    r"|(?<![a-z])(?:https?|wss?|ftps?|file|blob|filesystem|javascript|vbscript):[^\s]"
    r"|(?:javascript|vbscript)\s*:"
    r"|data:\s*\w+/"
    r"|(?<![a-z])url\s*\("  # CSS
    r"|@import\b"
    r"|\\(?:href|url|style|class|cssid|data|html\w*|require|include\w*|unicode)\b",  # TeX that writes HTML
    re.IGNORECASE,
)
SUSPICIOUS = re.compile(r"[/\\:(@&]")
"""Every URL contains one of these substrings; most strings of a chart contain none, so they need no further check."""
MARKUP = re.compile(r"<(?!/?(?:b|i|br|sub|sup|em|extra)\s*/?>)(?:[a-z!/%{&]|\Z)", re.IGNORECASE)
"""Tags other than those that only format a label. A ``<`` before a placeholder or at the end of a text counts too:
Plotly joins prefixes, values and templates before it parses tags."""
NUMBERS = (int, float, type(None))
"""The types of most values of a chart. Values of these types need no check."""
INLINE = re.compile(r"data:image/(?:png|jpeg);base64,[A-Za-z0-9+/=]*")
BASE64 = re.compile(r"[A-Za-z0-9+/=]*")


@functools.cache
def read_names(file: str) -> frozenset[str]:
    """Return the names in a file of this folder."""
    return frozenset(files("agent_kernel.sandbox.host").joinpath(file).read_text("utf-8").split())


class NotShown(Exception):
    """Raised if a table or chart must not be displayed. ``str()`` is the reason, for the user."""


def check_address(text: str) -> None:
    """Raise NotShown if the text contains a URL."""
    if not SUSPICIOUS.search(text):
        return
    read = html.unescape(text) if "&" in text else text
    if ADDRESS.search(read) or (not read.isprintable() and ADDRESS.search(IGNORED.sub("", read))):
        raise NotShown("one of its texts contains a URL")


def check_text(text: str) -> None:
    """Raise NotShown if the text contains a URL or markup."""
    check_address(text)
    if "<" in text and MARKUP.search(IGNORED.sub("", text)):
        raise NotShown("one of its texts contains markup")


def check_data(value: Any, depth: int = 0, *, names: frozenset[str] = frozenset()) -> None:
    """Check data with arbitrary keys, which the model's code chose. Raises NotShown if it contains a URL or a key in
    ``names``."""
    if depth > MAX_DEPTH:
        raise NotShown("it nests too deeply")
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, list):
        for item in value:
            if not isinstance(item, NUMBERS):
                check_data(item, depth + 1, names=names)
    elif isinstance(value, dict):
        for key, item in value.items():
            check_text(key)
            if key.strip().lower() in names:
                raise field_refused(key)
            check_data(item, depth + 1, names=names)


def is_numeric(value: Any, depth: int = 0) -> bool:
    """Return whether the value is a number, a nested list of numbers, or one of Plotly's typed arrays."""
    if isinstance(value, list) and depth < MAX_DEPTH:
        return all(is_numeric(item, depth + 1) for item in value)
    if isinstance(value, dict):
        return "bdata" in value and value.keys() <= {"bdata", "dtype", "shape"}
    return value is None or isinstance(value, (int, float))


def field_refused(key: str) -> NotShown:
    return NotShown(f"it has a field {key[:80]!r}, which may load data from another machine")


def check_unknown(key: str, value: Any) -> None:
    """Check a field that is not on the allow-list. Numbers and booleans are accepted, because a newer version may have
    added the field. Raises NotShown for all other values."""
    check_text(key)
    if isinstance(value, (str, list, dict)):
        raise NotShown(f"it has a field {key[:80]!r}, which is not among the fields that a chart may have")
