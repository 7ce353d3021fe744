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
)

SCHEMA = re.compile(r"https://vega\.github\.io/schema/vega-lite/v[\d.]{1,10}\.json")
_MARKS = "arc area bar boxplot circle errorband errorbar geoshape line point rect rule square text tick trail"
MARKS = frozenset(_MARKS.split())
_KEYS = """
    aggregate align anchor and angle animationDuration arc area argmax argmin aria ariaRole ariaRoleDescription as
    aspect autosize axis axisBand axisBottom axisDiscrete axisLeft axisPoint axisQuantitative axisRight axisTemporal
    axisTop axisX axisXBand axisXDiscrete axisXPoint axisXQuantitative axisXTemporal axisY axisYBand axisYDiscrete
    axisYPoint axisYQuantitative axisYTemporal background band bandPaddingInner bandPaddingOuter bandPosition
    bandSize bandWithNestedOffsetPaddingInner bandWithNestedOffsetPaddingOuter bandwidth bar barBandPaddingInner
    base baseline bbox between bin binSpacing bind binned bins blend borders bottom bounds box boxplot calculate
    category center circle clamp clear clip clipAngle clipExtent clipHeight coefficient color column columnPadding
    columns concat condition config constant contains content continuousBandSize continuousHeight continuousPadding
    continuousWidth coordinates cornerRadius cornerRadiusBottomLeft cornerRadiusBottomRight cornerRadiusEnd
    cornerRadiusTopLeft cornerRadiusTopRight count countTitle counts cumulative currency cursor data datasets date
    dateTime datum day days debounce decimal default delimiter density description detail dir direction disable
    discreteBandSize discreteHeight discreteWidth distance diverging divide domain domainCap domainColor domainDash
    domainDashOffset domainMax domainMid domainMin domainOpacity domainRaw domainWidth dx dy ellipsis empty encoding
    encodings endAngle equal errorband errorbar exponent expr extent extentMajor extentMinor facet feature features
    field fieldTitle fields fill fillColor fillOpacity filled filter fit flatten fold font fontSize fontStyle
    fontWeight for format formatType fraction frame framesPerSecond from gamma geometries geometry geoshape gradient
    gradientDirection gradientHorizontalMaxLength gradientHorizontalMinLength gradientLabelLimit gradientLabelOffset
    gradientLength gradientOpacity gradientStrokeColor gradientStrokeWidth gradientThickness
    gradientVerticalMaxLength gradientVerticalMinLength graticule grid gridAlign gridCap gridColor gridDash
    gridDashOffset gridOpacity gridWidth group-subtitle group-title groupby grouping gt gte guide-label guide-title
    hconcat header headerColumn headerFacet headerRow heatmap height hours id ignorePeers impute init innerRadius
    input interpolate interval invalid iso joinaggregate key keyvals labelAlign labelAnchor labelAngle labelBaseline
    labelBound labelColor labelExpr labelFlush labelFlushOffset labelFont labelFontSize labelFontStyle
    labelFontWeight labelLimit labelLineHeight labelOffset labelOpacity labelOrient labelOverlap labelPadding
    labelSeparation labels latitude latitude2 layer layout left legend legendX legendY limit line lineBreak
    lineHeight lobes locale loess longitude longitude2 lookup lt lte mark max maxBandSize maxExtent maxFontSize
    maxOpacity maxSize maxStrokeWidth maxbins maxsteps mean median merge mesh method milliseconds min minBandSize
    minExtent minFontSize minOpacity minSize minStrokeWidth minstep minsteps minus minutes month months multi name
    nan nearest nice normalizedNumberFormat normalizedNumberFormatType not number numberFormat numberFormatType
    numerals offset offsetBandPaddingInner offsetBandPaddingOuter on oneOf op opacity options or order ordinal
    orient outerRadius outliers padAngle padding paddingInner paddingOuter parallel parallels param params parse
    percent periods pivot point pointPadding pointRadius position precision probs projection properties property
    quantile quantileCount quantizeCount quarter r1 r2 radius radius2 radius2Offset radiusOffset ramp range rangeMax
    rangeMin rangeStep ratio react rect rectBandPaddingInner reflectX reflectY regression repeat rescale resize
    resolve reverse right rotate round row rowPadding rule sample scale scheme seconds select selection sequence
    shape shortDays shortMonths shortTimeLabels signal single size smooth sort source spacing spec sphere square
    stack start startAngle step stepMajor stepMinor steps stop stops stroke strokeCap strokeColor strokeDash
    strokeDashOffset strokeJoin strokeMiterLimit strokeOffset strokeOpacity strokeWidth style subtitle subtitleColor
    subtitleFont subtitleFontSize subtitleFontStyle subtitleFontWeight subtitleLineHeight subtitlePadding sum symbol
    symbolBaseFillColor symbolBaseStrokeColor symbolDash symbolDashOffset symbolDirection symbolFillColor
    symbolLimit symbolOffset symbolOpacity symbolSize symbolStrokeColor symbolStrokeWidth symbolType tension test
    text theta theta2 theta2Offset thetaOffset thickness thousands throttle tick tickBand tickBandPaddingInner
    tickCap tickColor tickCount tickDash tickDashOffset tickExtra tickMinStep tickOffset tickOpacity tickRound
    tickSize tickWidth ticks tilt time timeFormat timeFormatType timeUnit timeUnitBandPosition timeUnitBandSize
    title titleAlign titleAnchor titleAngle titleBaseline titleColor titleFont titleFontSize titleFontStyle
    titleFontWeight titleLimit titleLineHeight titleOpacity titleOrient titlePadding titleX titleY toggle tooltip
    tooltipFormat top trail transform translate type unionWith unit unselectedOpacity useUnaggregatedDomain utc
    valid value values vconcat view views week width window x x1 x2 x2Offset xError xError2 xOffset xReverse y y1 y2
    y2Offset yError yError2 yOffset year zero zindex zoom
"""
KEYS = frozenset(_KEYS.split())
"""Property names of Vega-Lite, except those that load something or refer to elements of the page that displays the
chart. The test ``test_charts.py`` compares this list with the schema of the installed Altair."""
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


def _attributes(value: dict[str, Any], depth: int, seen: set[str], *, named: bool = False) -> dict[str, Any]:
    """Check a value. With ``named``, its keys are names chosen by the chart's author."""
    allowed = {}
    for key, item in value.items():
        if named:
            check_text(key)
            allowed[key] = _value("", item, depth + 1, seen)
        elif key in KEYS:
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
        raise field_refused("values")  # columns as text, which is not checked
    if key in DATA:
        return _data(key, value, depth, seen)
    if isinstance(value, list):
        return [_value(key, item, depth + 1, seen) for item in value]
    if isinstance(value, dict):
        if key == "tooltip" and value.get("content") == "data":
            seen.add("tooltip of all fields")
        return _attributes(value, depth, seen, named=key in NAMED and "condition" not in value)
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
