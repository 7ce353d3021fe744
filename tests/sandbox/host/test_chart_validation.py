"""Tests that charts and tables from the jail are plain data, or are not shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import altair
import plotly
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.sandbox.host.chart_text import read_names
from agent_kernel.sandbox.host.chart_validation import TABLE, NotShown, validate_chart
from agent_kernel.sandbox.host.plotly_chart import ARGUMENTS, ATTRIBUTES_FILE
from agent_kernel.sandbox.host.vega_chart import FIELDS_FILE
from tests.sandbox.charts import hostile, ordinary

PLOTLY = "application/vnd.plotly.v1+json"
VEGA = "application/vnd.vegalite.v5+json"
FRAME: dict[str, Any] = {"columns": [{"name": "a", "type": "int64"}], "index": [0], "rows": [[1]], "shape": [1, 1]}


def through(mime: str, body: Any) -> Any:
    return json.loads(validate_chart(mime, json.dumps(body).encode()))


@pytest.mark.parametrize(
    "body",
    [
        {"data": [{"type": "bar", "x": ["a"], "y": [1], "hovertemplate": "<b>%{x}</b><br>%{y}<extra></extra>"}]},
        {"data": [{"y": {"dtype": "f8", "bdata": "AAAA//AAAA8="}}], "layout": {"title": {"text": "x < y"}}},
        {"data": [{"type": "sankey", "link": {"source": [0, 1], "target": [2, 3]}}]},
        {"data": [], "layout": {"images": [{"source": "data:image/png;base64,iVBORw0KGgo="}]}},
        {"data": [{"type": "bar", "name": "Raw data: monthly"}]},
    ],
)  # fmt: skip
def test_an_ordinary_chart_comes_through_as_it_is(body: Any) -> None:
    assert through(PLOTLY, body) == body


def test_the_name_of_the_format_is_kept_where_it_is_one() -> None:
    schema = "https://vega.github.io/schema/vega-lite/v5.20.1.json"
    assert through(VEGA, {"$schema": schema, "mark": "bar"}) == {"$schema": schema, "mark": "bar"}
    assert through(VEGA, {"$schema": "https://evil.example/v5.json", "mark": "bar"}) == {"mark": "bar"}


@pytest.mark.parametrize(
    "body",
    [
        {"data": {"url": "a.csv"}},
        {"mark": "image", "encoding": {"x": {"field": "a"}}},
        {"mark": {"type": "image"}},
        {"encoding": {"url": {"field": "made"}}, "transform": [{"calculate": "'ht'+'tp'", "as": "made"}]},
        {"encoding": {"href": {"value": "x"}}},
        {"usermeta": {"embedOptions": {"loader": {}}}},
        {"layout": {"images": [{"source": "https://evil.example/?secret"}]}},
        {"layout": {"images": [{"source": "relative/path"}]}},
        {"layout": {"images": [{"source": "data:image/svg+xml;base64,AAAA"}]}},
        {"data": [{"hovertemplate": "<a href='x'>y</a>"}]},
        {"data": [{"text": ["//evil.example"]}]},
        {"data": [{"text": ["JavaScript:alert(1)"]}]},
        {"data": [{"text": ["<img src=x onerror=alert(1)>"]}]},
        {"data": [{"bdata": "//evil.example/?a"}]},
        {"https://evil.example": 1},
        {"deep": json.loads("[" * 80 + "]" * 80)},
    ],
)  # fmt: skip
def test_a_chart_that_could_load_something_is_not_shown(body: Any) -> None:
    with pytest.raises(NotShown):
        through(PLOTLY, body)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"nonsense", b"\xff", b'{"data": [1e999]}', b"[" * 100_000, b'"' + b"x" * (5 << 20) + b'"']
)
def test_what_is_no_chart_is_not_shown(data: bytes) -> None:
    with pytest.raises(NotShown):
        validate_chart(PLOTLY, data)


@pytest.mark.parametrize(
    "change",
    [
        {"columns": "a"},
        {"rows": [[1, 2]]},
        {"rows": [[{"a": 1}]]},
        {"rows": [["x" * 500]]},
        {"rows": [[1]] * 300, "index": []},
        {"columns": [{"name": "a", "type": "x"}] * 200},
        {"index": [0, 1]},
        {"shape": [-1, 1]},
        {"shape": [True, 1]},
        {"columns": ["a"]},
    ],
)
def test_what_is_no_table_is_not_shown(change: dict[str, Any]) -> None:
    assert through(TABLE, FRAME) == FRAME
    with pytest.raises(NotShown):
        through(TABLE, FRAME | change)


def test_of_a_table_only_what_belongs_to_one_comes_through() -> None:
    assert through(TABLE, FRAME | {"html": "<script>"}) == FRAME


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["url", "mark", "source"]), inner),
    max_leaves=20,
)


BODIES = st.dictionaries(st.sampled_from(["columns", "rows", "index", "shape", "data"]), JSON)


@given(st.sampled_from([TABLE, PLOTLY, VEGA]), BODIES)
def test_anything_is_shown_or_not_and_what_is_shown_is_plain_json(mime: str, body: dict[str, Any]) -> None:
    try:
        shown = validate_chart(mime, json.dumps(body).encode())
    except NotShown:
        return
    assert shown.isascii()
    json.loads(shown, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize(("name", "mime", "chart"), [pytest.param(*one, id=one[0]) for one in ordinary()])
def test_a_chart_as_the_libraries_write_it_comes_through(name: str, mime: str, chart: Any) -> None:
    shown = through(mime, chart)
    if mime == VEGA:
        assert shown == chart
    else:
        assert shown["data"] == chart["data"]
        assert shown["layout"].keys() == chart["layout"].keys(), "of a template what concerns maps may be left out"


@pytest.mark.parametrize(
    ("mime", "chart"), [pytest.param(*one, id=f"{number}") for number, one in enumerate(hostile("127.0.0.1:9"))]
)
def test_no_chart_that_asks_a_server_for_something_comes_through(mime: str, chart: Any) -> None:
    with pytest.raises(NotShown):
        through(mime, chart)


def test_the_list_of_plotly_has_every_attribute_that_the_installed_one_knows() -> None:
    schema = json.loads((Path(plotly.__file__).parent / "validators" / "_validators.json").read_text())
    maps = re.compile(
        r"(?:layout\.)?(?:geo|map|mapbox|choropleth\w*|density(?:map|mapbox)|scatter(?:geo|map|mapbox))\b"
    )
    known = {path: body["params"]["plotly_name"] for path, body in schema.items() if not maps.match(path)}
    missing = {
        name
        for name in known.values()
        if name not in read_names(ATTRIBUTES_FILE) | ARGUMENTS and not name.endswith("src")
    }
    assert not {name for name in missing if not maps.match(name)}


def test_the_list_of_vega_lite_has_every_property_but_those_that_load_or_name_elements() -> None:
    [path] = (Path(altair.__file__).parent / "vegalite").glob("v*/schema/vega-lite-schema.json")
    schema = json.loads(path.read_text())
    loading = {"url", "href", "image", "usermeta", "element", "customFormatTypes", "$schema", "$ref"}
    unused = {"autocomplete", "placeholder", "event", "stream", "markname", "marktype", "consume"}
    assert _properties(schema) - read_names(FIELDS_FILE) <= loading | unused


def _properties(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {name for part in schema for name in _properties(part)}
    if not isinstance(schema, dict):
        return set()
    own = schema.get("properties")
    return {*(own if isinstance(own, dict) else ()), *(name for part in schema.values() for name in _properties(part))}
