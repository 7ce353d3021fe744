"""Entries of the scripts that the scripted engine plays."""

from __future__ import annotations

from typing import Any


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def python(code: str, **more: Any) -> dict[str, Any]:
    return call("python", code=code, **more)


def call_when(when: str, name: str, /, **arguments: Any) -> dict[str, Any]:
    """Return the answer to a prompt that contains ``when``: one call."""
    return {"when": when, "calls": [call(name, **arguments)]}


def python_when(when: str, *codes: str, text: str = "Done.") -> list[dict[str, Any]]:
    """Return the answers to a prompt that contains ``when``: a call for each code, one after another, and a text."""
    return [*(call_when(when, "python", code=code) for code in codes), {"when": when, "text": text}]
