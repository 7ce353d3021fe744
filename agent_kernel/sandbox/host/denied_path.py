"""A file that code asked for and may not have: found in what the code's error says, for people who could allow it."""

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


def path_outside(error: str, workdir: str, hidden: Sequence[str]) -> str:
    """The last absolute path that the error says could not be opened, if it is one that a person may allow; else "".
    Does not look whether there is such a file: code is not told that. What the error says is the code's own word."""
    found = ""
    for match in _REFUSAL.finditer(error):
        try:
            path = str(ast.literal_eval(match[1]))
        except (ValueError, SyntaxError):
            continue
        if path.startswith("/") and len(path) <= MAX_PATH and path.isprintable():
            found = os.path.normpath(path)
    beyond = (workdir, *NOBODYS, *hidden)
    return (
        ""
        if found == "/" or any(found == place or found.startswith(place.rstrip("/") + "/") for place in beyond)
        else found
    )


def advice(path: str) -> str:
    return (
        f"{path} is outside of what the sandbox of this session may see or change. A person can allow it: for this "
        f"conversation when asked, for all by the setting sandbox_read or sandbox_write."
    )
