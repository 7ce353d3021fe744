"""Which verbs a handler has, for ``Allow``."""

from __future__ import annotations

from typing import Any

GUARD = "__guard__"
"""What ``guarded`` leaves at a verb: the action, and whether kernels may."""
VERBS = ("get", "post", "put", "patch", "delete")


def guarded_verbs(handler: type[Any]) -> list[str]:
    return [verb for verb in VERBS if hasattr(getattr(handler, verb, None), GUARD)]


def allowed(handler: type[Any]) -> str:
    """As the header says it. Who answers GET answers HEAD."""
    verbs = [verb.upper() for verb in guarded_verbs(handler)]
    return ", ".join([*verbs, *(["HEAD"] if "GET" in verbs else []), "OPTIONS"])
