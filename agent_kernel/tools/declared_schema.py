"""Whether a JSON schema that somebody declared is one, and small enough to be read."""

from __future__ import annotations

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


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raises InvalidRequest."""
    if too_deep(schema, MAX_DEPTH) or len(json.dumps(schema)) > MAX_CHARS:
        raise InvalidRequest(f"a schema has at most {MAX_DEPTH} levels and {MAX_CHARS >> 10} KiB")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        where = "/".join(map(str, error.absolute_path))[:WHERE_CHARS]
        raise InvalidRequest(f"this is no JSON schema{f', at {where}' if where else ''}") from None
