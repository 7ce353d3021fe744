"""Compiles JSON schemas (the part of Draft 2020-12 that tools use) to grammars that a small model can finish. The
functions have no side effects.

The grammar accepts JSON as ``json.dumps(value, ensure_ascii=False)`` writes it, so a model cannot write white space in
an endless loop. Where a schema sets no bound for strings, lists, digits and depth, the grammar sets one. agent-kernel
has its own compiler because no library is suitable. The xgrammar inside openvino-genai allows any white space and
length, and has no public API. The xgrammar wheel needs torch. outlines_core has no ranges, drops keywords silently and
expands recursion.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, floor
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import is_too_deep
from agent_kernel.engines.local.backend import OutputGrammar
from agent_kernel.engines.local.grammar import number_range
from agent_kernel.engines.local.grammar.ebnf import CHUNK, NOTHING, Rules, choice, either, literal, optional, sequence
from agent_kernel.engines.local.grammar.regex import ANY, characters, pattern
from agent_kernel.engines.local.grammar.schema_merge import is_recursive, merge_schemas, resolve_reference
from agent_kernel.engines.local.grammar.string_format import FORMATS

MAX_SCHEMA_CHARS = 50_000
MAX_DEPTH = 40
MAX_STEPS = 3_000
"""Maximum number of schemas that are visited while compiling. A schema counts once for each recursion depth at which it
occurs."""
MAX_BOUND = 1e18
MAX_LENGTH = 10_000
"""Largest ``maxLength`` or ``maxItems`` that the grammar enforces. Larger ones are checked when the value is
complete."""
BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"}
)
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
SHAPES = frozenset({"pattern", "properties", "required", "items", "prefixItems", "additionalProperties"})
CHECKED = frozenset(
    {
        "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "uniqueItems", "multipleOf", "contains",
        "minContains", "maxContains", "propertyNames", "patternProperties", "minProperties", "maxProperties",
        "unevaluatedItems", "unevaluatedProperties", "dependencies", "$dynamicRef",
    }
)  # fmt: skip
"""Keywords that the grammar does not enforce; the value is checked when it is complete."""


@dataclass(frozen=True, slots=True)
class SchemaBounds:
    """Bounds that apply where the schema sets none. ``string`` is the number of characters of a string, ``name`` that
    of a property name, ``items`` the number of items of a list. ``recursion`` is how often a schema may contain itself,
    ``levels`` the nesting depth of a value for which there is no schema."""

    string: int = 511
    name: int = 32
    items: int = 8
    recursion: int = 3
    levels: int = 2


def bounds_within(tokens: int) -> SchemaBounds:
    """Return bounds for an answer of at most ``tokens`` tokens, so that a string that the model does not end by itself
    ends before the token limit."""
    string = max(8, min(tokens, MAX_LENGTH) // CHUNK) * CHUNK - 1
    return SchemaBounds(string=string, items=max(4, min(32, tokens // 64)))


def json_grammar(
    schema: Mapping[str, Any], bounds: SchemaBounds | None = None
) -> tuple[OutputGrammar, tuple[str, ...]]:
    """Return the grammar of a schema, and the keywords of the schema that the grammar does not enforce.

    Each text that the grammar accepts fits the schema, except for those keywords. Not every fitting text is accepted:
    properties must be declared and in the order of their declaration (others are accepted if ``additionalProperties``
    is a schema), numbers have no exponent, and lengths are within ``bounds``. Raises InvalidRequest for an invalid
    schema, one that no value fits, or one that is too large.
    """
    try:
        text = "" if is_too_deep(schema, MAX_DEPTH) else json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"This schema cannot be written as JSON: {error}") from error
    if not text or len(text) > MAX_SCHEMA_CHARS:
        raise InvalidRequest(f"A schema can have at most {MAX_SCHEMA_CHARS} characters and {MAX_DEPTH} levels.")
    _check(schema)
    compiler = _Compiler(schema, bounds or SchemaBounds())
    try:
        root = compiler.value(schema, compiler.bounds.recursion)
    except RecursionError as error:
        raise InvalidRequest("The chain of $refs in this schema is too long.") from error
    if root is None:
        raise InvalidRequest("No value fits this schema.")
    return compiler.rules.grammar(root), tuple(sorted(compiler.loose))


class _Compiler:
    """Compiles a schema to an expression, or to None if no value fits it. ``recursion_left`` is how often a recursive
    reference may still be followed."""

    def __init__(self, root: Mapping[str, Any], bounds: SchemaBounds) -> None:
        self.root = root
        self.bounds = bounds
        self.rules = Rules()
        self.loose: set[str] = set()
        self._done: dict[tuple[str, int], str | None] = {}
        self._recursive: dict[str, bool] = {}
        self._steps = 0

    def value(self, schema: Any, recursion_left: int) -> str | None:
        # Equal schemas at equal depth give the same rule, so each is compiled once.
        key = (json.dumps(schema), recursion_left)
        if key not in self._done:
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise InvalidRequest("This schema expands to too many schemas.", hint="Make the schema smaller.")
            expression = self._value(schema, recursion_left)
            self._done[key] = expression if expression is None else self.rules.rule(expression)
        return self._done[key]

    def _value(self, schema: Any, recursion_left: int) -> str | None:
        if schema is True or schema == {}:
            return self._anything(self.bounds.levels)
        if schema is False:
            return None
        if not isinstance(schema, Mapping):
            raise InvalidRequest("A schema is an object, true or false.")
        self.loose |= CHECKED & schema.keys()
        if "$ref" in schema:
            return self._reference(schema, recursion_left)
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in schema:
                return self._combination(schema, keyword, recursion_left)
        if "const" in schema or "enum" in schema:
            return self._enumeration(schema)
        kinds = schema.get("type", _default_types(schema))
        kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        return self._one_of([self._compile_type(kind, schema, recursion_left) for kind in kinds])

    def _one_of(self, alternatives: list[str | None]) -> str | None:
        fitting = [alternative for alternative in alternatives if alternative is not None]
        return either(*fitting) if fitting else None

    def _reference(self, schema: Mapping[str, Any], recursion_left: int) -> str | None:
        pointer = schema["$ref"]
        target = resolve_reference(self.root, pointer)
        if pointer not in self._recursive:
            self._recursive[pointer] = is_recursive(self.root, pointer)
        rest = _without_keywords(schema, "$ref", "$defs", "definitions")
        # Only references that lead back to themselves reduce the allowed recursion depth.
        recursion_left -= self._recursive[pointer]
        return None if recursion_left < 0 else self.value(self._merge(target, rest), recursion_left)

    def _combination(self, schema: Mapping[str, Any], keyword: str, recursion_left: int) -> str | None:
        base = _without_keywords(schema, keyword)
        branches = schema[keyword]
        if not isinstance(branches, list) or not branches:
            raise InvalidRequest(f"{keyword} must be a list of schemas.")
        if keyword == "allOf":
            for branch in branches:
                base = self._merge(base, branch)
            return self.value(base, recursion_left)
        if keyword == "oneOf":
            self.loose.add("oneOf")  # the grammar does not check that only one alternative fits
        return self._one_of([self.value(self._merge(base, branch), recursion_left) for branch in branches])

    def _merge(self, some: Any, others: Any) -> Any:
        for one, other in ((some, others), (others, some)):
            if one is True or one == {}:
                return other
            if isinstance(one, Mapping) and "$ref" in one and other:
                return self._merge(self._follow_reference(one), other)
        if some is False or others is False:
            return False
        if not isinstance(some, Mapping) or not isinstance(others, Mapping):
            raise InvalidRequest("A schema is an object, true or false.")
        result, unmerged = merge_schemas(some, others)
        self.loose |= unmerged
        return result

    def _follow_reference(self, schema: Mapping[str, Any]) -> Any:
        """Return the schema with ``$ref`` replaced by its target, for merging. MAX_STEPS ends the loop for a schema
        that refers only to itself."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise InvalidRequest("This schema refers to itself without end.")
        rest = _without_keywords(schema, "$ref", "$defs", "definitions")
        return self._merge(resolve_reference(self.root, schema["$ref"]), rest)

    def _enumeration(self, schema: Mapping[str, Any]) -> str | None:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        if not isinstance(values, list):
            raise InvalidRequest("enum must be a list of values.")
        if "const" in schema and "enum" in schema:
            values = [value for value in values if value in schema["enum"]]
        if "type" in schema:
            kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
            values = [value for value in values if any(_is_of_type(value, kind) for kind in kinds)]
        self.loose |= schema.keys() & (BOUNDS | SHAPES)
        return choice(json_text(value) for value in values) if values else None

    def _compile_type(self, kind: str, schema: Mapping[str, Any], recursion_left: int) -> str | None:
        match kind:
            case "object":
                return self._object(schema, recursion_left)
            case "array":
                return self._array(schema, recursion_left)
            case "string":
                return self._string(schema)
            case "integer":
                return number_range.integer(*_integers(schema))
            case "number":
                return self._number(schema)
            case "boolean":
                return '("true" | "false")'
            case "null":
                return '"null"'
        raise InvalidRequest(f"JSON Schema has no type {kind!r}.")

    def _number(self, schema: Mapping[str, Any]) -> str | None:
        low, above = _tighter_bound(schema, "minimum", "exclusiveMinimum", max)
        high, below = _tighter_bound(schema, "maximum", "exclusiveMaximum", min)
        return number_range.number(low, high, above=above, below=below)

    def _string(self, schema: Mapping[str, Any]) -> str | None:
        least, most = self._lengths(schema, "minLength", "maxLength", self.bounds.string)
        if least > most:
            return None
        form = schema.get("format")
        if "pattern" in schema:
            self.loose |= schema.keys() & {"minLength", "maxLength"}
            try:
                return self._quote(pattern(schema["pattern"], self.rules, json=True, endless=64))
            except InvalidRequest:
                self.loose.add("pattern")
        elif isinstance(form, str) and form in FORMATS:
            self.loose |= schema.keys() & {"minLength", "maxLength"}
            return self._quote(pattern(FORMATS[form], self.rules, json=True))
        return self._text(least, most)

    def _text(self, min_length: int, max_length: int) -> str:
        return self.rules.rule(self._quote(self.rules.repeat(characters(ANY, json=True), min_length, max_length)))

    def _quote(self, inside: str) -> str:
        return sequence(literal('"'), inside, literal('"'))

    def _lengths(self, schema: Mapping[str, Any], low: str, high: str, default: int) -> tuple[int, int]:
        least, most = int(schema.get(low, 0)), schema.get(high)
        if least > MAX_LENGTH or (most is not None and most > MAX_LENGTH):
            self.loose.add(low if least > MAX_LENGTH else high)
        least = min(max(least, 0), MAX_LENGTH)
        return least, max(least, default) if most is None else min(int(most), MAX_LENGTH)

    def _array(self, schema: Mapping[str, Any], recursion_left: int) -> str | None:
        least, most = self._lengths(schema, "minItems", "maxItems", self.bounds.items)
        first = [self.value(item, recursion_left) for item in schema.get("prefixItems", ())][:most]
        further = self.value(schema.get("items", not first), recursion_left) if most > len(first) else None
        if least > most or None in first[:least] or (further is None and least > len(first)):
            return None
        if None in first:
            first, further = first[: first.index(None)], None
        tail = NOTHING
        if further is not None:
            tail = self._listing(further, max(0, least - len(first)), most - len(first), begins=not first)
        # The list is built from its end, because all items after an optional item are optional too: [a, [b, [c]]].
        for at in range(len(first) - 1, -1, -1):
            tail = sequence(literal(", " if at else ""), str(first[at]), tail)
            tail = self.rules.rule(tail if at < least else optional(tail))
        return sequence(literal("["), tail, literal("]"))

    def _listing(self, item: str, min_count: int, max_count: int, *, begins: bool) -> str:
        """Return an expression for ``min_count`` to ``max_count`` repetitions of ``item``, separated by commas. If
        ``begins`` is false, other items precede them, so that a comma stands before the first one too."""
        another = sequence(literal(", "), item)
        if not begins:
            return self.rules.repeat(another, min_count, max_count)
        expression = sequence(item, self.rules.repeat(another, max(0, min_count - 1), max_count - 1))
        return expression if min_count else optional(self.rules.rule(expression))

    def _object(self, schema: Mapping[str, Any], recursion_left: int) -> str | None:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, Mapping) or not isinstance(required, list):
            raise InvalidRequest("properties must be an object, and required must be a list.")
        more = schema.get("additionalProperties", not properties)
        shown = {**properties, **{str(name): more for name in required if name not in properties}}
        members: list[tuple[str, bool]] = []
        for name, value in shown.items():
            expression = self.value(value, recursion_left)
            if expression is None and name in required:
                return None
            if expression is not None:
                members.append((sequence(literal(json_text(name) + ": "), expression), name in required))
        extra = None if more is False else self.value(more, recursion_left)
        if extra is not None and shown:
            self.loose.add("additionalProperties")  # an additional name may be equal to a declared one
        return sequence(literal("{"), self._members(members, extra), literal("}"))

    def _members(self, members: list[tuple[str, bool]], extra: str | None) -> str:
        """Return an expression for the properties ``members``, each of which is (expression, whether it is required),
        followed by the additional properties ``extra``. The expression is built from the last property to the first.
        ``rest`` matches the remaining text after another property, so it begins with a comma; ``start`` matches the
        remaining text if no property precedes it."""
        rest = start = NOTHING
        if extra is not None:
            name = self._text(1, self.bounds.name)
            pair = self.rules.rule(sequence(name, literal(": "), extra))
            rest = self._listing(pair, 0, self.bounds.items, begins=False)
            start = self._listing(pair, 0, self.bounds.items, begins=True)
        for member, needed in reversed(members):
            rest_rule = self.rules.rule(rest) if rest != NOTHING else NOTHING
            with_member, first = sequence(literal(", "), member, rest_rule), sequence(member, rest_rule)
            # An optional property can be skipped, so the former ``start`` and ``rest`` are kept as the second
            # alternative.
            start = first if needed else either(self.rules.rule(first), self.rules.rule(start))
            rest = with_member if needed else either(self.rules.rule(with_member), rest_rule)
        return start

    def _anything(self, levels: int) -> str:
        scalars = either(self._text(0, 63), number_range.number(None, None) or NOTHING, '"true"', '"false"', '"null"')
        if not levels:
            return scalars
        inner = self.rules.rule(self._anything(levels - 1))
        members = self._members([], inner)
        items = self._listing(inner, 0, self.bounds.items, begins=True)
        return either(
            self.rules.rule(scalars),
            self.rules.rule(sequence(literal("{"), members, literal("}"))),
            self.rules.rule(sequence(literal("["), items, literal("]"))),
        )


def _check(schema: Mapping[str, Any]) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError, OverflowError) as error:  # the last two are raised by patterns
        reason = error.message[:500] if isinstance(error, SchemaError) else "a pattern cannot be compiled"
        raise InvalidRequest(f"This is not a JSON schema of Draft 2020-12: {reason}") from error


def json_text(value: Any) -> str:
    """Serialize a value as JSON in the one style that all grammars here accept."""
    return json.dumps(value, ensure_ascii=False)


def _without_keywords(schema: Mapping[str, Any], *keywords: str) -> dict[str, Any]:
    return {keyword: value for keyword, value in schema.items() if keyword not in keywords}


def _default_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the types to which the keywords of a schema without ``type`` apply."""
    about = {
        "object": {"properties", "required", "additionalProperties"},
        "array": {"items", "prefixItems", "minItems", "maxItems"},
        "string": {"pattern", "format", "minLength", "maxLength"},
        "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    }
    return tuple(kind for kind, keywords in about.items() if keywords & schema.keys()) or TYPES


def _is_of_type(value: Any, kind: str) -> bool:
    """Return whether a value has the type ``kind`` of JSON Schema, in which 1.0 is an integer and true is not a
    number."""
    if isinstance(value, bool) or value is None:
        return kind == ("null" if value is None else "boolean")
    if isinstance(value, int | float):
        return kind == "number" or (kind == "integer" and value == int(value))
    return kind == ("string" if isinstance(value, str) else "array" if isinstance(value, list) else "object")


def _tighter_bound(schema: Mapping[str, Any], with_it: str, without: str, tighter: Any) -> tuple[Decimal | None, bool]:
    """Return the tighter of two bounds (None if neither is set), and whether the bound itself is excluded. ``with_it``
    is the keyword of an inclusive bound, ``without`` that of an exclusive one, ``tighter`` is ``max`` or ``min``."""
    included, excluded = (schema.get(keyword) for keyword in (with_it, without))
    for bound in (included, excluded):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float)):
            raise InvalidRequest(f"{with_it} and {without} must be numbers.")
        if bound is not None and not abs(bound) <= MAX_BOUND:
            raise InvalidRequest(f"{with_it} and {without} must lie within {MAX_BOUND:.0e}.")
    bounds = [Decimal(repr(bound)) for bound in (included, excluded) if bound is not None]
    bound = tighter(bounds) if bounds else None
    return bound, excluded is not None and bound == Decimal(repr(excluded))


def _integers(schema: Mapping[str, Any]) -> tuple[int | None, int | None]:
    low, above = _tighter_bound(schema, "minimum", "exclusiveMinimum", max)
    high, below = _tighter_bound(schema, "maximum", "exclusiveMaximum", min)
    least = None if low is None else (floor(low) + 1 if above else ceil(low))
    most = None if high is None else (ceil(high) - 1 if below else floor(high))
    return least, most
