"""Parses JSON bodies strictly: content that two parsers could read differently is refused, with a readable reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.sessions.export.formats.json_reader import loads

MAX_BODY = 32 << 20
"""Maximum size of most bodies in bytes."""
MAX_DEPTH = 100
"""Maximum depth of nested lists and objects."""
MAX_VALUES = 500_000
"""Maximum number of JSON values: lists and objects, and everything in them."""
MAX_NAME = 80
"""Maximum number of characters of a field's name in an error message. The name may be any text that the client sent."""
UNION_TAGS = frozenset({"[text]", "[list]"})
"""Tags of the members of a union, as ``request_extensions.text_or_list`` returns them. They are steps of the path of a
validation error, but name no field of the body."""
M = TypeVar("M", bound=BaseModel)


def parse(model: type[M], body: bytes, max_bytes: int) -> M:
    """Return ``body`` as ``model``; an empty body is an empty object. Raises InvalidRequest, whose cause is the
    ValidationError if the body is JSON of another form, and the errors of ``check``."""
    if body:
        check(body, max_bytes)
    try:
        return model.model_validate_json(body or b"{}", strict=True)
    except ValidationError as error:
        raise InvalidRequest(validation_message(error)) from error


def check(body: bytes, max_bytes: int) -> None:
    """Raise InvalidRequest for a body that is longer than ``max_bytes`` bytes, is not JSON in UTF-8, is nested too
    deeply, has too many values, repeats a key in one object, or has a number that JSON does not allow (NaN, Infinity,
    1e999)."""
    loads(body, max_bytes, MAX_DEPTH, MAX_VALUES, document_name="body")


def header_problem(headers: Mapping[str, str]) -> str:
    """Return why a body with these headers cannot be read, and what to do; empty if it can."""
    if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        return "The body is compressed, which this server does not support: send it without Content-Encoding."
    if not is_json(headers.get("Content-Type", "")):
        return "The body must be JSON: send it with Content-Type: application/json."
    return ""


def is_json(content_type: str) -> bool:
    """Return whether the content type is JSON, including types with the suffix ``+json``. A request without a content
    type counts as JSON."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("", "application/json", "text/json") or (kind.startswith("application/") and kind.endswith("+json"))


def validation_message(error: ValidationError) -> str:
    """Describe the first validation errors of a body, without the values that were sent."""
    errors = error.errors(include_url=False, include_input=False)
    described = [_describe(mistake) for mistake in errors[:3]]
    return "; ".join(described) + ("" if len(errors) <= 3 else f"; and {len(errors) - 3} more")


def _describe(mistake: Mapping[str, Any]) -> str:
    """Describe one error. The message of an error about several fields names them, so it needs no place."""
    words = str(mistake["msg"]).removeprefix("Value error, ")
    if not mistake["loc"] and words != mistake["msg"]:
        return words
    place = [str(step)[:MAX_NAME] for step in mistake["loc"] if step not in UNION_TAGS]
    # The error is about the field that selects the member of the union.
    if mistake["type"] in ("union_tag_not_found", "union_tag_invalid"):
        expected_tags = mistake["ctx"].get("expected_tags")
        place.append(mistake["ctx"]["discriminator"].strip("'"))
        words = f"Input should be one of {expected_tags}" if expected_tags else "Field required"
    return f"{'.'.join(place) or 'body'}: {words}"
