"""Schemas of the enforced subset with values that fit them, drawn by hypothesis."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time
from typing import Any

from hypothesis import strategies as st

Drawn = tuple[dict[str, Any], Any]
"""A schema, and a value that fits it."""

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[chr(code) for code in range(32)]), max_size=20
)
TEXT = TEXT | st.sampled_from(['say "hi"\n', "a\\b\t", "naïve 😀", ""])
NAMES = st.text('abcdefgh_ "é', min_size=1, max_size=6)
PATTERNS = {
    r"^[A-Z]{3}-\d{2,4}$": ["ABC-12", "XYZ-0001"],
    r"[a-z0-9_]+\.(py|txt)": ["a.py", "some_file_2.txt"],
    r"^\"?\w+\"?$": ['"quoted"', "plain"],
    r"^(\d+(\.\d+)?|none)$": ["3.14", "none", "42"],
    r"^C:\\[^\\/]+$": ["C:\\data", 'C:\\"x"'],
}
FORMATS: dict[str, st.SearchStrategy[str]] = {
    "date": st.dates(date(1000, 1, 1), date(2999, 12, 31))
    .filter(lambda day: (day.month, day.day) != (2, 29))
    .map(date.isoformat),
    "time": st.times(timezones=st.just(UTC)).map(time.isoformat),
    "date-time": st.datetimes(datetime(1000, 3, 1), datetime(2999, 1, 1), timezones=st.just(UTC)).map(
        datetime.isoformat
    ),
    "uuid": st.uuids().map(uuid.UUID.__str__),
    "email": st.sampled_from(["ada@example.com", "a.b+c@mail.example.org"]),
}


@st.composite
def strings(draw: st.DrawFn) -> Drawn:
    match draw(st.sampled_from(["plain", "bounded", "pattern", "format"])):
        case "bounded":
            value = draw(TEXT)
            least, most = draw(st.integers(0, len(value))), len(value) + draw(st.integers(0, 100))
            return {"type": "string", "minLength": least, "maxLength": most}, value
        case "pattern":
            pattern = draw(st.sampled_from(sorted(PATTERNS)))
            return {"type": "string", "pattern": pattern}, draw(st.sampled_from(PATTERNS[pattern]))
        case "format":
            name = draw(st.sampled_from(sorted(FORMATS)))
            value = draw(FORMATS[name])
            return {"type": "string", "format": name}, value.replace("+00:00", "Z")
    return {"type": "string"}, draw(TEXT)


@st.composite
def integers(draw: st.DrawFn) -> Drawn:
    value = draw(st.integers(-(10**12), 10**12) | st.integers(-50, 150))
    schema: dict[str, Any] = {"type": "integer"}
    if draw(st.booleans()):
        schema["minimum"] = value - draw(st.integers(0, 10**6) | st.integers(0, 30))
    if draw(st.booleans()):
        schema["exclusiveMaximum"] = value + draw(st.integers(1, 10**6) | st.integers(1, 30))
    return schema, value


@st.composite
def numbers(draw: st.DrawFn) -> Drawn:
    """Draw a number schema and a value with two decimals. The bounds have two decimals too, so that a grammar can
    compare them exactly.
    """
    cents = draw(st.integers(-(10**9), 10**9) | st.integers(-300, 300))
    schema: dict[str, Any] = {"type": "number"}
    if draw(st.booleans()):
        schema["minimum"] = (cents - draw(st.integers(0, 10**6) | st.integers(0, 300))) / 100
    if draw(st.booleans()):
        schema["maximum"] = (cents + draw(st.integers(0, 10**6) | st.integers(0, 300))) / 100
    return schema, cents / 100


def list_schemas() -> st.SearchStrategy[Drawn]:
    values = st.lists(st.one_of(TEXT, st.integers(), st.none(), st.booleans()), min_size=1, max_size=5)
    enums = values.flatmap(lambda some: st.sampled_from(some).map(lambda value: ({"enum": some}, value)))
    return enums | values.map(lambda some: ({"const": {"some": some}}, {"some": some}))


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Drawn]) -> Drawn:
    drawn = draw(st.dictionaries(NAMES, inner, max_size=4))
    present = [name for name in drawn if draw(st.booleans())]
    required = [name for name in present if draw(st.booleans())]
    schema: dict[str, Any] = {"type": "object", "properties": {name: part for name, (part, _) in drawn.items()}}
    if required:
        schema["required"] = required
    if draw(st.booleans()):
        schema["additionalProperties"] = False
    if drawn or "additionalProperties" in schema:
        return schema, {name: drawn[name][1] for name in present}
    part, value = draw(inner)
    return {"type": "object", "additionalProperties": part}, {"a name": value}


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[Drawn]) -> Drawn:
    first = draw(st.lists(inner, max_size=2))
    part, value = draw(inner)
    values = [one for _, one in first] + [value] * draw(st.integers(0, 4))
    schema: dict[str, Any] = {"type": "array", "items": part}
    if first:
        schema["prefixItems"] = [one for one, _ in first]
    if draw(st.booleans()):
        schema["minItems"] = draw(st.integers(0, len(values)))
    if draw(st.booleans()):
        schema["maxItems"] = len(values) + draw(st.integers(0, 20))
    return schema, values


@st.composite
def combine_schemas(draw: st.DrawFn, inner: st.SearchStrategy[Drawn]) -> Drawn:
    branches = draw(st.lists(inner, min_size=1, max_size=3))
    _, value = draw(st.sampled_from(branches))
    return {"anyOf": [part for part, _ in branches]}, value


SCHEMAS = st.recursive(
    strings() | integers() | numbers() | list_schemas() | st.just(({"type": ["boolean", "null"]}, None)),
    lambda inner: objects(inner) | arrays(inner) | combine_schemas(inner),
    max_leaves=8,
)
VALUES = st.recursive(
    TEXT | st.integers(-200, 200) | st.sampled_from([None, True, 0.5, -1.25, "ABC-12", "2024-05-05"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
"""JSON values, to be written under any schema."""
