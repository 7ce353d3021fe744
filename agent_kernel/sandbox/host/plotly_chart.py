"""Validates Plotly charts by an allow-list of trace types and attribute names. The functions have no side effects.

Maps are not allowed, because rendering them loads styles, tiles and outlines from a server.
"""

from __future__ import annotations

import re
from typing import Any

from agent_kernel.sandbox.host.chart_text import (
    BASE64,
    INLINE,
    MAX_DEPTH,
    NUMBERS,
    NotShown,
    check_address,
    check_data,
    check_text,
    check_unknown,
    field_refused,
    is_numeric,
    read_names,
)

_TRACES = """
    bar barpolar box candlestick carpet cone contour contourcarpet funnel funnelarea heatmap histogram histogram2d
    histogram2dcontour icicle image indicator isosurface mesh3d ohlc parcats parcoords pie quiver sankey scatter
    scatter3d scattercarpet scattergl scatterpolar scatterpolargl scattersmith scatterternary splom streamtube
    sunburst surface table treemap violin volume waterfall
"""
TRACES = frozenset(_TRACES.split())
_OTHER_TYPES = """
    - linear log date category multicategory circle rect path line buttons dropdown constraint levels none radial
    horizontal vertical percent constant sqrt data raster fill
"""
OTHER_TYPES = frozenset(_OTHER_TYPES.split())
"""Allowed values of the attribute ``type`` in objects that are not traces: axes, shapes, menus, contours, error
bars."""
ATTRIBUTES_FILE = "plotly_attributes.txt"
"""The file with the attribute names of plotly.js, except those of maps and links to other data (``*src``). The test
``test_chart_validation.py`` compares this list with the schema of the installed Plotly."""
FREE = frozenset(
    {"meta", "customdata", "labelalias", "uirevision", "datarevision", "editrevision", "selectionrevision"}
)
"""Attributes whose values may have any shape, because Plotly only displays them as text or compares them."""
ARGUMENTS = frozenset({"args", "args2"})
MAP_DEFAULTS = re.compile(r"(?:geo|map|mapbox|choropleth\w*|density(?:map|mapbox)|scatter(?:geo|map|mapbox))\d*")
SWITCHES = frozenset({"responsive", "staticPlot", "scrollZoom", "displayModeBar", "displaylogo", "editable"})
"""Allowed switches in a chart's ``config``. The switches that are not allowed open other web pages or write HTML."""
FONT_STYLES = frozenset({"normal", "italic"})
PATH = re.compile(r"[.\[\]]+")
COUNTED = re.compile(r"(?<=[a-z])[2-9]\d*\Z|(?<=[a-z])1\d+\Z")
"""Matches the number at the end of the name of an additional axis, scene or legend, such as ``xaxis2``."""


def checked_plotly(body: dict[str, Any]) -> dict[str, Any]:
    """Return the figure without parts that have no effect. Raises NotShown."""
    for name, value in body.get("config", {}).items() if isinstance(body.get("config"), dict) else ():
        if name not in SWITCHES or not isinstance(value, bool):
            raise field_refused(f"config.{name}")
    figure = {}
    for name, value in body.items():
        if name in ("data", "layout", "frames"):
            figure[name] = _value(name, value, 0, in_template=False)
        elif name == "config" and isinstance(value, dict):
            figure[name] = value
        else:
            check_unknown(name, value)
    return figure


def _value(key: str, value: Any, depth: int, *, in_template: bool) -> Any:
    """Check the value of the attribute ``key``, or one item of a list that is its value, and return it without parts
    that have no effect. Raises NotShown."""
    if depth > MAX_DEPTH:
        raise NotShown("it nests too deeply")
    if key == "source":
        return _source(key, value)
    if key in FREE:
        check_data(value, depth)
        return value
    if key in ARGUMENTS and isinstance(value, list):
        return _arguments(value, depth)
    if isinstance(value, list):
        return [
            item if isinstance(item, NUMBERS) else _value(key, item, depth + 1, in_template=in_template)
            for item in value
        ]
    if isinstance(value, dict):
        return _attributes(value, depth, in_template=in_template or key == "template")
    if isinstance(value, str):
        _check_string(key, value)
    return value


def _attributes(value: dict[str, Any], depth: int, *, in_template: bool) -> dict[str, Any]:
    allowed = {}
    for key, item in value.items():
        if key == "bdata" and isinstance(item, str) and BASE64.fullmatch(item):
            allowed[key] = item
        elif name := _allowed_attribute(key):
            allowed[key] = _value(name, item, depth + 1, in_template=in_template)
        elif in_template and MAP_DEFAULTS.fullmatch(key):
            continue  # every Plotly template has defaults for maps, which have no effect without maps
        elif not in_template:
            check_unknown(key, item)
    return allowed


def _allowed_attribute(path: str) -> str:
    """Return the last attribute of ``path`` (``images[0].source``), or "" if one of its attributes is not allowed."""
    known, attribute = read_names(ATTRIBUTES_FILE), ""
    for name in PATH.split(path):
        if name.isdigit():
            continue  # an index, as in ``images[0]``
        attribute = name if name in known or name in ARGUMENTS else COUNTED.sub("", name)
        if attribute not in known and attribute not in ARGUMENTS:
            return ""
    return attribute


def _source(key: str, value: Any) -> Any:
    """Check a ``source`` attribute: embedded picture data, or the node numbers of a Sankey diagram's links."""
    if isinstance(value, str) and INLINE.fullmatch(value):
        return value
    if isinstance(value, dict) and isinstance(value.get("bdata"), str) and not BASE64.fullmatch(value["bdata"]):
        raise field_refused(key)
    if not is_numeric(value):
        raise field_refused(key)
    return value


def _arguments(value: list[Any], depth: int) -> list[Any]:
    """Check the arguments of a button or slider. They are ``[{attribute: value}, ...]``, ``[attribute, value, ...]`` or
    the names of frames."""
    if value and isinstance(value[0], str):
        name = _allowed_attribute(value[0])
        if not name:
            raise field_refused(value[0])
        rest = [_value(name, item, depth + 1, in_template=False) for item in value[1:]]
        return [value[0], *rest]
    return [_argument(item, depth + 1) for item in value]


def _argument(item: Any, depth: int) -> Any:
    """Check arguments of an animation: attributes, frames, or names of frames and numbers of traces."""
    if depth > MAX_DEPTH:
        raise NotShown("it nests too deeply")
    if isinstance(item, list):
        return [_argument(part, depth + 1) for part in item]
    return _value("args", item, depth, in_template=False)


def _check_string(key: str, value: str) -> None:
    if key == "type" and value not in TRACES and value not in OTHER_TYPES:
        raise NotShown(
            f"the chart draws {value[:40]!r}, which is not displayed here; maps, for example, load "
            "data from other machines"
        )
    if key == "style" and value not in FONT_STYLES:
        raise field_refused(key)
    if key == "operation":
        check_address(value)
    else:
        check_text(value)
