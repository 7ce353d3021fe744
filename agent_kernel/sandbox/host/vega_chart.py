"""Validates Vega-Lite charts by allow-lists of marks, fields and the parts of expressions. The functions have no side
effects.

Vega loads URLs from ``url``, ``href``, image marks, ``image`` in a tooltip and ``cursor``; it writes every field of an
input's ``bind`` as an attribute of an HTML element; and expressions can compose URLs. So none of these is allowed,
whatever its value.
"""

from __future__ import annotations

import re
from typing import Any

from agent_kernel.sandbox.host.chart_text import (
    MAX_DEPTH,
    NUMBERS,
    NotShown,
    check_address,
    check_data,
    check_text,
    check_unknown,
    field_refused,
    read_names,
)

SCHEMA = re.compile(r"https://vega\.github\.io/schema/vega-lite/v[\d.]{1,10}\.json")
_MARKS = "arc area bar boxplot circle errorband errorbar geoshape line point rect rule square text tick trail"
MARKS = frozenset(_MARKS.split())
FIELDS_FILE = "vega_fields.txt"
"""The file with the property names of Vega-Lite, except those that load something or refer to elements of the page that
displays the chart. The test ``test_chart_validation.py`` compares this list with the schema of the installed Altair."""
LOADING = frozenset({"url", "href", "src", "image", "usermeta", "loader", "element", "customformattypes", "signals"})
IMAGE = frozenset({"image"})
"""The tooltip of vega-embed loads the value of the field with this name as a picture, even if data or an expression
created the field."""
DATA = frozenset({"values", "datasets", "value", "datum", "lookup", "domain", "bins", "equal", "oneOf", "sort"})
"""Properties whose values come from the model's code. The keys of these values are column names."""
ROWS = frozenset({"values", "datasets"})
"""Those properties in DATA that contain columns of tables. Columns may have any name."""
DEFINES = frozenset({"expr", "signal", "param", "field", "op", "encoding", "selection", "unionWith", "data"})
NAMED = frozenset({"selection", "parse", "style", "resolve"})
"""Properties whose values are objects with keys that the chart's author chose."""
NAMES = frozenset({"as", "field", "title", "fields", "groupby", "fold", "flatten", "pivot", "key", "name"})
"""Properties whose values become names of fields, and therefore keys of a tooltip."""
EXPRESSIONS = frozenset({"calculate", "expr", "signal", "labelExpr", "test", "filter", "and", "or", "not"})
BIND = frozenset({"input", "min", "max", "step", "options", "labels", "name", "debounce"})
INPUTS = frozenset(
    {"range", "select", "radio", "checkbox", "text", "number", "color", "date", "time", "datetime-local"}
)
CURSOR = re.compile(r"[a-z-]{1,20}")
EVENT = re.compile(r"\bevent\.(?:shift|ctrl|alt|meta)Key\b")
EVENTS = re.compile(r"(?!.*\bevent\b)[\w\s,:>!\[\]{}.&|*-]*")
"""Matches the allowed descriptions of events that start or end a selection. An expression in them may read only whether
Shift, Ctrl, Alt or Meta is pressed."""
TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_$][\w$]*)|(?P<sign>[-+*/%<>=!&|^~?:,.(){}\[\]]))",
    re.ASCII,
)
FORBIDDEN = frozenset({"event", "item", "group", "scene", "view", "window", "document", "constructor", "__proto__"})


def checked_vega(body: dict[str, Any]) -> dict[str, Any]:
    """Return the chart without parts that have no effect. Raises NotShown."""
    schema = body.get("$schema")
    chart = {key: value for key, value in body.items() if key != "$schema"}
    seen: set[str] = set()
    checked = _attributes(chart, 0, seen)
    if {"pivot", "tooltip of all fields"} <= seen:  # a pivot turns values into field names
        raise field_refused("tooltip")
    if isinstance(schema, str) and SCHEMA.fullmatch(schema):
        # The value of $schema is a URL, but it is only an identifier: nothing is loaded from it.
        checked["$schema"] = schema
    return checked


def _attributes(value: dict[str, Any], depth: int, seen: set[str], *, author_names: bool = False) -> dict[str, Any]:
    """Check a value. With ``author_names``, its keys are names chosen by the chart's author."""
    allowed = {}
    for key, item in value.items():
        if author_names:
            check_text(key)
            allowed[key] = _value("", item, depth + 1, seen)
        elif key in read_names(FIELDS_FILE):
            seen |= {key} & {"pivot"}
            allowed[key] = _value(key, item, depth + 1, seen)
        elif key.strip().lower() in LOADING:
            raise field_refused(key)
        else:
            check_unknown(key, item)
    return allowed


def _value(key: str, value: Any, depth: int, seen: set[str]) -> Any:
    if depth > MAX_DEPTH:
        raise NotShown("it nests too deeply")
    if key == "cursor" and not (isinstance(value, str) and CURSOR.fullmatch(value)):
        raise field_refused(key)
    if key == "bind" and isinstance(value, dict):
        return _bind(value)
    if key == "data" and isinstance(value, dict) and isinstance(value.get("values"), str):
        raise field_refused("values")  # Vega would parse a text into columns, which are not checked
    if key in DATA:
        return _data(key, value, depth, seen)
    if isinstance(value, list):
        return [_value(key, item, depth + 1, seen) for item in value]
    if isinstance(value, dict):
        if key == "tooltip" and value.get("content") == "data":
            seen.add("tooltip of all fields")
        return _attributes(value, depth, seen, author_names=key in NAMED and "condition" not in value)
    if isinstance(value, str):
        _check_string(key, value)
    return value


def _data(key: str, value: Any, depth: int, seen: set[str]) -> Any:
    """Check data and return it. Objects in the data are restricted only if they stand for an expression, a parameter or
    a definition. Raises NotShown."""
    if isinstance(value, list) and depth <= MAX_DEPTH:
        return [item if isinstance(item, NUMBERS) else _data(key, item, depth + 1, seen) for item in value]
    names = value.keys() if isinstance(value, dict) else set[str]()
    if names and (names <= {"expr", "signal"} or (key not in ROWS and names & DEFINES)):
        return _attributes(value, depth, seen)
    check_data(value, depth, names=IMAGE)
    return value


def _check_string(key: str, value: str) -> None:
    if key in EXPRESSIONS:
        _check_expression(value)
    elif key in ("on", "clear", "translate", "zoom", "toggle"):
        check_address(value)
        if not EVENTS.fullmatch(EVENT.sub("1", value)):
            raise field_refused(key)
    elif key == "$schema":
        return
    else:
        check_text(value)
        if key in ("mark", "type", *NAMES) and value.strip().lower() == "image":
            raise field_refused(value)
        if key == "mark" and value not in MARKS:
            raise NotShown(f"the chart draws {value[:40]!r}, which is not displayed here")


def _bind(value: dict[str, Any]) -> dict[str, Any]:
    """Check the description of an input element that sets a parameter. If the parameter has several fields, check one
    description for each field."""
    if "input" not in value:
        if not all(isinstance(item, dict) for item in value.values()):
            raise field_refused("bind")
        for name in value:
            check_text(name)
        return {name: _bind_input(item) for name, item in value.items()}
    return _bind_input(value)


def _bind_input(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("input") not in INPUTS:
        raise field_refused("bind")
    for key, item in value.items():
        if key not in BIND:
            raise field_refused(key)
        check_data(item)
    return value


def _check_expression(text: str) -> None:
    """Check an expression. Raises NotShown if the expression could contain a URL or access the page that displays the
    chart, or if it contains unknown tokens."""
    check_address(text)
    text = EVENT.sub("1", text)
    at, operand = 0, False
    end = len(text.rstrip())
    while at < end:
        token = TOKEN.match(text, at)
        if token is None:
            raise NotShown("the chart has an expression that cannot be checked")
        name = token["name"] or (token["text"] or "")[1:-1]
        if name in FORBIDDEN or name.strip().lower() == "image":
            raise NotShown(f"the chart has an expression that uses {name!r}, which is not allowed")
        if token["sign"] == "/" and not operand:  # a regular expression would hide the tokens after it
            raise NotShown("the chart has an expression that cannot be checked")
        operand = token["sign"] in (None, ")", "]", "}")
        at = token.end()
