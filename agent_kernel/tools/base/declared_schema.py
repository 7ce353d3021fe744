"""Checks that a JSON schema declared by a client is valid and within limits."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import is_too_deep

MAX_CHARS = 256 << 10
"""Maximum size of a schema in characters of JSON."""
MAX_DEPTH = 64
MAX_VALUES = 2_000
"""Maximum number of JSON values in a schema, including nested ones. The check takes about 0.1 ms for each."""
MAX_PATTERN = 1_000
"""Maximum length of a regular expression in a schema, because an engine may have to compile the expression."""
WHERE_CHARS = 200
NO_FORMATS = jsonschema.FormatChecker(())
KNOWN = 512
"""Number of schemas for which the result of the check is cached. Schemas longer than KNOWN_CHARS are not cached."""
KNOWN_CHARS = 8 << 10


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise InvalidRequest if the schema is invalid or too large.

    Patterns are not validated: they use ECMA 262 syntax, and compiling one can take minutes.
    """
    text = "" if has_too_many_values(schema, MAX_VALUES) or is_too_deep(schema, MAX_DEPTH) else json.dumps(schema)
    if not text or len(text) > MAX_CHARS:
        most = f"{MAX_DEPTH} levels, {MAX_VALUES:,} values and {MAX_CHARS >> 10} KiB"
        raise InvalidRequest(f"a schema can have at most {most}")
    if _longest_pattern(schema) > MAX_PATTERN:
        raise InvalidRequest(f"a pattern of a schema can have at most {MAX_PATTERN:,} characters")
    problem = _known_problem(text) if len(text) <= KNOWN_CHARS else _problem(schema)
    if problem:
        raise InvalidRequest(problem)


def has_too_many_values(value: object, limit: int) -> bool:
    """Return whether ``value`` contains more than ``limit`` values. Lists, objects and everything in them count."""
    return next(itertools.islice(_walk(value), limit, None), None) is not None


def _walk(value: object) -> Iterator[tuple[object]]:
    """Yield the value and each value inside it. Each is in a tuple, because a value can be None."""
    waiting = [value]
    while waiting:
        current = waiting.pop()
        yield (current,)
        waiting.extend(
            current.values() if isinstance(current, Mapping) else current if isinstance(current, list) else ()
        )


def _longest_pattern(schema: object) -> int:
    """Return the length of the longest text under a key ``pattern``. A property that has this name counts too, because
    the two cases are not distinguished."""
    objects = (value for (value,) in _walk(schema) if isinstance(value, Mapping))
    patterns = (text for part in objects for text in (part.get("pattern"), *(part.get("patternProperties") or ())))
    return max((len(text) for text in patterns if isinstance(text, str)), default=0)


@functools.lru_cache(KNOWN)
def _known_problem(text: str) -> str:
    """Return the problem of a schema, given as JSON text; empty if it is valid. The result is cached, because clients
    declare the same tools with every request and a check takes about 2 ms."""
    return _problem(json.loads(text))


def _problem(schema: Mapping[str, Any]) -> str:
    try:
        jsonschema.Draft202012Validator.check_schema(schema, format_checker=NO_FORMATS)
    except jsonschema.SchemaError as error:
        where = "/".join(map(str, error.absolute_path))[:WHERE_CHARS]
        return f"this is not a valid JSON schema{f', at {where}' if where else ''}"
    return ""
