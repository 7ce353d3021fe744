"""The JSON schema of a tool's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any


def parameters(required: Sequence[str] | None = None, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an object with these properties and no others. None leaves out the list of required ones,
    an empty list does not: the model sees the difference."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required is not None:
        schema["required"] = list(required)
    return MappingProxyType({**schema, "additionalProperties": False})
