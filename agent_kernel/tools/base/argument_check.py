"""Checks the arguments of calls against the schemas of their tools. The schemas come from clients and MCP servers, and
the arguments from a model, so no check may take long or fail."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import referencing
import referencing.exceptions

from agent_kernel.core.messages import ToolCall

SEARCH_S = 0.1
"""Longest time for which a pattern is searched in one text."""
MAX_SLOW = 1_000
NOTHING_FETCHED: referencing.Registry[Any] = referencing.Registry()
KEYWORDS = jsonschema.Draft202012Validator.VALIDATORS
_slow_patterns: set[str] = set()
"""Patterns of which a search took longer than SEARCH_S. They are not searched again."""


def describe_misfit(call: ToolCall, schema: Mapping[str, Any]) -> str:
    """Return why the arguments of the call do not fit the schema of its tool; empty if they fit. A part of a schema
    that cannot be checked counts as fitting, because the tool checks its arguments too."""
    if "_raw" in call.arguments:
        return f"The arguments of {call.name} were not a JSON object."
    try:
        checker = ArgumentValidator(schema, registry=NOTHING_FETCHED)
        error = jsonschema.exceptions.best_match(checker.iter_errors(dict(call.arguments)))
    except referencing.exceptions.Unresolvable as missing:
        return f"The schema of {call.name} refers to something outside it: {missing}."
    except RecursionError:
        return f"The schema of {call.name} refers to itself without an end."
    except (jsonschema.exceptions.UnknownType, ArithmeticError, re.error):
        return ""
    return f"The arguments of {call.name} do not fit: {error.message}." if error else ""


def _matches(pattern: str, text: str) -> bool | None:
    """Return whether the regular expression ``pattern``, in the syntax of JavaScript, is found in the text; None if the
    pattern cannot be read or the search takes too long."""
    import regex

    if pattern in _slow_patterns:
        return None
    try:
        return regex.search(pattern, text, timeout=SEARCH_S) is not None
    except regex.error:
        return None
    except TimeoutError:
        if len(_slow_patterns) >= MAX_SLOW:
            _slow_patterns.clear()
        _slow_patterns.add(pattern)
        return None


def _check_pattern(validator: Any, pattern: str, text: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(text, str) and _matches(pattern, text) is False:
        yield jsonschema.ValidationError(f"{text!r} does not match {pattern!r}")


def _check_named(
    validator: Any, patterns: Mapping[str, Any], value: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, dict):
        for pattern, rule in patterns.items():
            for name in value:
                if _matches(pattern, name):
                    yield from validator.descend(value[name], rule, path=name, schema_path=pattern)


def _check_additional(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, dict) and (patterns := schema.get("patternProperties")):
        value = {
            name: one for name, one in value.items() if all(_matches(pattern, name) is False for pattern in patterns)
        }
        schema = {name: one for name, one in schema.items() if name != "patternProperties"}
    yield from KEYWORDS["additionalProperties"](validator, rule, value, schema) or ()


# The library's own keywords search patterns with ``re``, which has no time limit and does not read all of JavaScript's.
ArgumentValidator: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    {"pattern": _check_pattern, "patternProperties": _check_named, "additionalProperties": _check_additional},
)
