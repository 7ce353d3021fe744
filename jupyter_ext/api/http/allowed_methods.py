"""Makes the ``Allow`` header, which lists the HTTP methods that a handler implements."""

from __future__ import annotations

from typing import Any

GUARD = "__guard__"
"""The attribute that ``guard`` sets on a method: the action, and whether kernels may call it."""
VERBS = ("get", "post", "put", "patch", "delete")


def list_verbs(handler: type[Any]) -> list[str]:
    return [verb for verb in VERBS if hasattr(getattr(handler, verb, None), GUARD)]


def allow_header(handler: type[Any]) -> str:
    """Return the value of the ``Allow`` header. A handler that answers GET also answers HEAD."""
    verbs = [verb.upper() for verb in list_verbs(handler)]
    return ", ".join([*verbs, *(["HEAD"] if "GET" in verbs else []), "OPTIONS"])
