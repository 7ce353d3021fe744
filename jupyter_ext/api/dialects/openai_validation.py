"""Describes invalid bodies of OpenAI's dialects, with the path of the invalid field. The functions have no side
effects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from agent_kernel.core.errors import InvalidRequest

PATH_CHARS, SAID_CHARS = 200, 300
CODES = {
    "missing": "missing_required_parameter",
    "literal_error": "invalid_value",
    "union_tag_invalid": "invalid_value",
}
"""OpenAI's codes by the type of the validation error."""


def name_field(error: InvalidRequest, body: bytes, model: type[BaseModel]) -> InvalidRequest:
    """Return the error of ``json_body.parse`` with a description that names the invalid field, which is also the detail
    ``param``. An error that is not about a field is returned unchanged."""
    if not isinstance(error.__cause__, ValidationError):
        return error
    message, field = describe_mistake(error.__cause__, _json(body), model)
    kind = error.__cause__.errors(include_url=False, include_input=False, include_context=False)[0]["type"]
    code = CODES.get(kind) or ("invalid_type" if kind.endswith("_type") else None)
    return InvalidRequest(message, details={"param": field, "code": code})


def describe_mistake(error: ValidationError, body: Any, model: type[BaseModel]) -> tuple[str, str | None]:
    """Return (description of the first validation errors, path of the field with the first one, such as
    ``messages[0].content``). The description does not quote the content of ``body``. The message of an error that
    concerns the whole body begins with the name of a field."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    described = [
        (_path(body, mistake), mistake["msg"].removeprefix("Value error, ")[:SAID_CHARS]) for mistake in errors[:3]
    ]
    more = "" if len(errors) <= 3 else f"; and {len(errors) - 3} more"
    path, first = described[0]
    field = path or first.partition(" ")[0]
    names_field = path or field in model.model_fields
    return "; ".join(
        f"{path}: {text}" if path else text for path, text in described
    ) + more, field if names_field else None


def _path(body: Any, error: Mapping[str, Any]) -> str:
    """Return the path of the field in the body. The names of union members, which pydantic adds to its paths, are
    removed."""
    path, value = "", body
    for place in error["loc"]:
        if isinstance(place, int) and isinstance(value, list) and place < len(value):
            path, value = f"{path}[{place}]", value[place]
        elif isinstance(place, str) and isinstance(value, dict) and place in value:
            path, value = f"{path}.{place}" if path else place, value[place]
    if error["type"] == "missing":
        path = f"{path}.{error['loc'][-1]}" if path else str(error["loc"][-1])
    return path[:PATH_CHARS]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
