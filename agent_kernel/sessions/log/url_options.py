"""Removes agent-kernel's own options from the URL of a database. Its other options belong to the library that
connects."""

from __future__ import annotations

import re
from urllib.parse import unquote


def take_option(url: str, name: str, pattern: str) -> tuple[str, str]:
    """Return the URL without the option ``name`` of its query, and the option's value (empty if it is not there). The
    rest of the URL stays as it is written. Raises ValueError if the value does not fit ``pattern``."""
    place, mark, query = url.partition("?")
    parts = query.split("&") if mark else []
    values = [unquote(part.partition("=")[2]) for part in parts if part.partition("=")[0] == name]
    if not values:
        return url, ""
    if not re.fullmatch(pattern, values[-1], re.ASCII):
        raise ValueError(name)
    rest = "&".join(part for part in parts if part.partition("=")[0] != name)
    return f"{place}?{rest}" if rest else place, values[-1]
