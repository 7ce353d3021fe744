"""Finds the file to which access was denied from the error of the code, so that the user can be offered to allow it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence

_REFUSAL = re.compile(
    r"^(?:PermissionError|FileNotFoundError|NotADirectoryError|OSError): \[Errno (?:1|2|13|20|30)\] [^:\n]*: "
    r"('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")",
    re.MULTILINE,
)
MAX_PATH = 4096
NOBODYS = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/run")


def find_denied_path(error: str, workdir: str, hidden: Sequence[str]) -> str:
    """Return the last absolute path whose access ``error`` reports as denied, or "" if there is none or the user may
    not allow it. ``hidden`` are paths that are never allowed.

    Does not check whether the file exists, because the code must not learn that. The code can write any text as its
    error, so the text is not trusted."""
    denied = ""
    for match in _REFUSAL.finditer(error):
        try:
            path = str(ast.literal_eval(match[1]))
        except (ValueError, SyntaxError):
            continue
        if path.startswith("/") and len(path) <= MAX_PATH and path.isprintable():
            denied = os.path.normpath(path)
    beyond = (workdir, *NOBODYS, *hidden)
    return (
        ""
        if denied == "/" or any(denied == place or denied.startswith(place.rstrip("/") + "/") for place in beyond)
        else denied
    )


def advice(path: str) -> str:
    return (
        f"{path} is outside of what the sandbox of this session may see or change. A person can allow it: for this "
        f"conversation when asked, for all by the setting sandbox_read or sandbox_write."
    )
