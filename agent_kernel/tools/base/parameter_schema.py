"""Builds the JSON schema of a tool's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any


def parameters(required: Sequence[str] | None = None, **properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the JSON schema of an object that has these properties and no others.

    If ``required`` is None, the schema has no list of required properties; if it is empty, the schema has an empty
    list. The model sees the difference.
    """
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required is not None:
        schema["required"] = list(required)
    return MappingProxyType({**schema, "additionalProperties": False})
