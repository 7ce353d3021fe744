"""Merges two JSON schemas that apply to the same value, and resolves references. The functions have no side effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from agent_kernel.core.errors import InvalidRequest

NOTES = frozenset(
    {"title", "description", "default", "examples", "$comment", "$schema", "$id", "deprecated", "readOnly", "writeOnly"}
)
TIGHTER: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}


def merge_schemas(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[Any, set[str]]:
    """Return a schema for the values that fit both schemas (False if no value does), and the keywords that could not be
    merged. For these keywords, the result has the value of the first schema."""
    result = dict(first)
    unmerged: set[str] = set()
    for keyword, other in second.items():
        if keyword not in result or result[keyword] == other:
            result[keyword] = other
        elif keyword in TIGHTER:
            result[keyword] = TIGHTER[keyword](result[keyword], other)
        elif keyword == "type":
            result["type"] = _both_types(result["type"], other)
            if not result["type"]:
                return False, unmerged
        elif keyword == "enum":
            result["enum"] = [value for value in result["enum"] if value in other]
        elif keyword == "required":
            result["required"] = list(dict.fromkeys([*result["required"], *other]))
        elif keyword == "properties":
            result["properties"] = _both_properties(result["properties"], other)
        elif keyword not in NOTES and keyword not in ("$defs", "definitions"):
            unmerged.add(keyword)
    return result, unmerged


def resolve_reference(root: Any, pointer: Any) -> Any:
    """Return the part of the schema ``root`` to which ``#/...`` points. Raises InvalidRequest for any other form of
    reference, since nothing is fetched, and for one that points to nothing."""
    if not isinstance(pointer, str) or not (pointer == "#" or pointer.startswith("#/")):
        raise InvalidRequest(f"$ref can only point into the schema itself (#/...), not to {str(pointer)[:200]!r}.")
    node = root
    for part in unquote(pointer[2:]).split("/") if pointer != "#" else ():
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(name)] if isinstance(node, list) else node[name]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise InvalidRequest(f"{pointer[:200]!r} points to nothing in this schema.") from error
    return node


def is_recursive(root: Any, pointer: str) -> bool:
    """Return whether the schema at ``pointer`` refers to itself, directly or through other schemas."""
    seen: set[str] = set()
    waiting = [resolve_reference(root, pointer)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            target = value.get("$ref")
            if target == pointer:
                return True
            if isinstance(target, str) and target not in seen:
                seen.add(target)
                waiting.append(resolve_reference(root, target))
        if isinstance(value, Mapping | list):
            waiting += value.values() if isinstance(value, Mapping) else value
    return False


def _both_types(some: str | list[str], others: str | list[str]) -> list[str]:
    first, second = ([kinds] if isinstance(kinds, str) else kinds for kinds in (some, others))
    narrow = [kind for kind in first if kind in second or (kind == "integer" and "number" in second)]
    return narrow + [kind for kind in second if kind == "integer" and "number" in first and kind not in narrow]


def _both_properties(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(first)
    for name, other in second.items():
        joined[name] = {"allOf": [joined[name], other]} if name in joined and joined[name] != other else other
    return joined
