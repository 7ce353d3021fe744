"""Whether a JSON schema that somebody declared is one, and small enough to be read."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import jsonschema

from agent_kernel.errors import InvalidRequest
from agent_kernel.messages import too_deep

MAX_CHARS = 256 << 10
"""As JSON."""
MAX_DEPTH = 64
WHERE_CHARS = 200
KNOWN = 512
"""Schemas of up to KNOWN_CHARS whose check is remembered."""
KNOWN_CHARS = 8 << 10


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises InvalidRequest."""
    text = "" if too_deep(schema, MAX_DEPTH) else json.dumps(schema)
    if not text or len(text) > MAX_CHARS:
        raise InvalidRequest(f"a schema has at most {MAX_DEPTH} levels and {MAX_CHARS >> 10} KiB")
    problem = _known_problem(text) if len(text) <= KNOWN_CHARS else _problem(schema)
    if problem:
        raise InvalidRequest(problem)


@functools.lru_cache(KNOWN)
def _known_problem(text: str) -> str:
    """Clients declare the same tools with every request, and looking at a schema takes about 2 ms."""
    return _problem(json.loads(text))


def _problem(schema: Mapping[str, Any]) -> str:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = "/".join(map(str, error.absolute_path))[:WHERE_CHARS]
        return f"this is no JSON schema{f', at {where}' if where else ''}"
    return ""
