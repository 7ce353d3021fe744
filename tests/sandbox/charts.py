"""Ordinary charts, and charts that try to contact a listener when they are drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
from plotly.subplots import make_subplots

PLOTLY = "application/vnd.plotly.v1+json"
VEGA = "application/vnd.vegalite.v5+json"
Chart = dict[str, Any]

RNG = np.random.default_rng(7)
SALES = pd.DataFrame(
    {
        "month": pd.date_range("2024-01-01", periods=12, freq="MS").repeat(2),
        "shop": ["north", "south"] * 12,
        "sold": RNG.integers(20, 90, 24),
        "price": RNG.normal(10, 2, 24).round(2),
    }
)
FLOWS: Chart = {
    "node": {"label": ["gas", "coal", "heat"]},
    "link": {"source": [0, 1], "target": [2, 2], "value": [3, 4]},
}
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def animate() -> go.Figure:
    return px.scatter(SALES, x="sold", y="price", animation_frame=SALES.month.dt.month, range_x=[0, 100])


def _menus() -> go.Figure:
    figure = go.Figure([go.Bar(x=["a", "b"], y=[1, 2]), go.Scatter(x=["a", "b"], y=[2, 1])])
    buttons = [
        {"label": "Bars", "method": "update", "args": [{"visible": [True, False]}, {"title.text": "Bars"}]},
        {"label": "Red", "method": "restyle", "args": ["marker.color", "red"]},
        {"label": "As lines", "method": "restyle", "args": [{"type": "scatter", "mode": "lines"}, [0]]},
        {"label": "Narrow", "method": "relayout", "args": [{"xaxis.range": [0, 1], "shapes[0].line.color": "red"}]},
    ]
    steps = [{"method": "relayout", "args": ["yaxis.range", [0, top]], "label": str(top)} for top in (2, 4)]
    return figure.update_layout(updatemenus=[{"buttons": buttons}], sliders=[{"steps": steps, "active": 0}])


def _picture() -> go.Figure:
    figure = go.Figure(go.Scatter(x=[1, 2], y=[3, 4]))
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": 1, "sizex": 0.2, "sizey": 0.2}
    return figure.add_layout_image(source=PICTURE, **place)


def _axes() -> go.Figure:
    figure = make_subplots(rows=2, cols=2, specs=[[{}, {"secondary_y": True}], [{"type": "polar"}, {"type": "domain"}]])
    figure.add_trace(go.Scatter(y=[1, 3, 2], name="x < y"), 1, 1)
    figure.add_trace(go.Bar(y=[1, 3, 2]), 1, 2)
    figure.add_trace(go.Scatter(y=[10, 30, 20]), 1, 2, secondary_y=True)
    figure.add_trace(go.Scatterpolar(r=[1, 2, 3], theta=[0, 90, 180]), 2, 1)
    figure.add_trace(go.Pie(labels=["a", "b"], values=[1, 2]), 2, 2)
    return figure.add_annotation(text="<b>top</b><br>of it", x=1, y=3, arrowhead=2).add_shape(
        type="line", x0=0, x1=2, y0=2, y1=2, line_dash="dot"
    )


PLOTLY_FIGURES: dict[str, Callable[[], go.Figure]] = {
    "bars": lambda: px.bar(SALES, x="month", y="sold", color="shop", barmode="group", title="Sold: by month"),
    "scatter": lambda: px.scatter(SALES, x="sold", y="price", color="shop", size="sold", hover_data=["month"]),
    "lines": lambda: px.line(SALES, x="month", y="sold", color="shop", markers=True, template="plotly_dark"),
    "area": lambda: px.area(SALES, x="month", y="sold", color="shop"),
    "histogram": lambda: px.histogram(SALES, x="price", nbins=8, marginal="rug", color="shop"),
    "box": lambda: px.box(SALES, x="shop", y="price", points="all", notched=True),
    "violin": lambda: px.violin(SALES, x="shop", y="price", box=True),
    "strip": lambda: px.strip(SALES, x="shop", y="price"),
    "pie": lambda: px.pie(SALES, names="shop", values="sold", hole=0.4),
    "sunburst": lambda: px.sunburst(SALES, path=["shop", "price"], values="sold"),
    "treemap": lambda: px.treemap(SALES, path=[px.Constant("all"), "shop"], values="sold"),
    "icicle": lambda: px.icicle(SALES, path=["shop", "price"], values="sold"),
    "heatmap": lambda: px.imshow(RNG.random((5, 5)), text_auto=True, color_continuous_scale="Viridis"),
    "density": lambda: px.density_heatmap(SALES, x="sold", y="price"),
    "contours": lambda: px.density_contour(SALES, x="sold", y="price"),
    "constraint": lambda: go.Figure(
        go.Contour(z=[[1, 2], [3, 4]], contours={"type": "constraint", "operation": "<", "value": 2})
    ),
    "facets": lambda: px.scatter(SALES, x="sold", y="price", facet_col="shop", trendline=None),
    "matrix": lambda: px.scatter_matrix(SALES, dimensions=["sold", "price"], color="shop"),
    "parallel": lambda: px.parallel_coordinates(SALES, dimensions=["sold", "price"]),
    "categories": lambda: px.parallel_categories(SALES, dimensions=["shop"]),
    "polar": lambda: px.line_polar(r=[1, 3, 2], theta=["n", "e", "s"], line_close=True),
    "ternary": lambda: px.scatter_ternary(a=[1, 2], b=[2, 1], c=[1, 1]),
    "funnel": lambda: px.funnel(x=[10, 5, 1], y=["seen", "tried", "kept"]),
    "timeline": lambda: px.timeline(
        pd.DataFrame({"s": ["2024-01-01"], "e": ["2024-02-01"], "t": ["plan"]}), x_start="s", x_end="e", y="t"
    ),
    "ecdf": lambda: px.ecdf(SALES, x="price"),
    "space": lambda: px.scatter_3d(SALES, x="sold", y="price", z="sold", color="shop"),
    "candles": lambda: go.Figure(
        go.Candlestick(x=["2024-01-01", "2024-01-02"], open=[1, 2], high=[3, 4], low=[0, 1], close=[2, 3])
    ),
    "waterfall": lambda: go.Figure(
        go.Waterfall(x=["a", "b", "sum"], y=[3, -1, 0], measure=["relative"] * 2 + ["total"])
    ),
    "sankey": lambda: go.Figure(go.Sankey(**FLOWS)),
    "gauge": lambda: go.Figure(
        go.Indicator(mode="gauge+number+delta", value=7, delta={"reference": 5}, title="Speed (km/h)")
    ),
    "table": lambda: go.Figure(go.Table(header={"values": ["a", "b"]}, cells={"values": [[1, 2], ["x", "y/z"]]})),
    "animated": animate,
    "menus": _menus,
    "picture": _picture,
    "axes": _axes,
}


def _interactive() -> Any:
    brush, least = (
        alt.selection_interval(name="brush"),
        alt.param(name="least", value=30, bind=alt.binding_range(max=90)),
    )
    chart = (
        alt.Chart(SALES)
        .mark_point(tooltip=True)
        .encode(
            x="sold:Q",
            y="price:Q",
            color=alt.condition(brush, "shop:N", alt.value("lightgray")),
            tooltip=["shop:N", alt.Tooltip("month:T", format="%b %Y")],
        )
    )
    return chart.transform_filter("datum.sold >= least && datum.price < 100").add_params(brush, least)


ALTAIR_CHARTS: dict[str, Callable[[], Any]] = {
    "bars": lambda: alt.Chart(SALES).mark_bar().encode(x="yearmonth(month):O", y="sum(sold):Q", color="shop:N"),
    "points": lambda: alt.Chart(SALES).mark_circle(size=60).encode(x="sold", y="price", tooltip=["shop", "price"]),
    "lines": lambda: alt.Chart(SALES).mark_line(point=True).encode(x="month:T", y="sold:Q").interactive(),
    "area": lambda: alt.Chart(SALES).mark_area(opacity=0.4).encode(x="month:T", y=alt.Y("sold:Q").stack("normalize")),
    "histogram": lambda: alt.Chart(SALES).mark_bar().encode(alt.X("price:Q").bin(maxbins=8), y="count()"),
    "box": lambda: alt.Chart(SALES).mark_boxplot(extent="min-max").encode(x="shop:N", y="price:Q"),
    "heatmap": lambda: alt.Chart(SALES).mark_rect().encode(x="month(month):O", y="shop:N", color="mean(sold):Q"),
    "ring": lambda: alt.Chart(SALES).mark_arc(innerRadius=40).encode(theta="sum(sold):Q", color="shop:N"),
    "labels": lambda: (
        alt.Chart(SALES).mark_bar().encode(x="sum(sold):Q", y="shop:N")
        + alt.Chart(SALES).mark_text(dx=12).encode(x="sum(sold):Q", y="shop:N", text="sum(sold):Q")
    ),
    "beside": lambda: (
        alt.Chart(SALES).mark_tick().encode(x="price:Q") | alt.Chart(SALES).mark_bar().encode(x="count()", y="shop:N")
    ),
    "facets": lambda: alt.Chart(SALES).mark_point().encode(x="sold:Q", y="price:Q").facet("shop:N"),
    "calculated": lambda: (
        alt.Chart(SALES)
        .transform_calculate(income="datum.sold * datum.price / 2")
        .transform_calculate(label="datum.shop + ': ' + format(datum.price, '.1f')")
        .mark_bar()
        .encode(x="sum(income):Q", y="label:N")
    ),
    "regression": lambda: (
        alt.Chart(SALES).mark_point().encode(x="sold:Q", y="price:Q")
        + alt.Chart(SALES).transform_regression("sold", "price").mark_line().encode(x="sold:Q", y="price:Q")
    ),
    "folded": lambda: (
        alt.Chart(SALES).transform_fold(["sold", "price"], as_=["what", "how much"]).mark_line()
        .encode(x="month:T", y="how much:Q", color="what:N")
    ),
    "window": lambda: (
        alt.Chart(SALES).transform_window(rolling="mean(sold)", frame=[-2, 0]).mark_line()
        .encode(x="month:T", y="rolling:Q").properties(title=alt.Title("Rolling", subtitle="three months"))
    ),
    "interactive": _interactive,
    "repeated": lambda: (
        alt.Chart(SALES).mark_point().encode(alt.X(alt.repeat("column"), type="quantitative"), y="price:Q")
        .repeat(column=["sold", "price"])
    ),
    "axes": lambda: (
        alt.Chart(SALES).mark_bar(cursor="pointer", cornerRadius=3)
        .encode(x=alt.X("month:T", axis=alt.Axis(labelExpr="timeFormat(datum.value, '%b')")), y="sold:Q")
        .configure_axis(grid=False).configure_view(strokeWidth=0)
    ),
}  # fmt: skip


def ordinary() -> Iterator[tuple[str, str, Chart]]:
    """Yield (name, MIME type, chart) as the libraries write them."""
    for name, figure in PLOTLY_FIGURES.items():
        yield f"plotly {name}", PLOTLY, json.loads(figure().to_json())
    for name, chart in ALTAIR_CHARTS.items():
        yield f"altair {name}", VEGA, chart().to_dict()


def spellings(host: str) -> list[str]:
    """Return the spellings of a listener's address that browsers accept."""
    return [
        f"http://{host}/x",
        f"https:/{host}/x",
        f"https:{host}/x",
        f"https:\\\\{host}\\x",
        f"https:\\{host}/x",
        f"//{host}/x",
        f"\\\\{host}\\x",
        f"/\\{host}/x",
        f"\\/{host}/x",
        f"ht\ntps:/{host}/x",
        f"\tHtTpS:/{host}/x",
        f"/\t/{host}/x",
        f" https:/{host}/x",
        f"http&#58;//{host}/x",
        f"h\u200bttp://{host}/x",
    ]


def _trace(**trace: Any) -> Chart:
    return {"data": [trace]}


def _layout(**layout: Any) -> Chart:
    return {"data": [{"type": "scatter", "x": [1, 2], "y": [1, 2]}], "layout": layout}


PLACE = {"xref": "paper", "yref": "paper", "x": 0, "y": 1, "sizex": 1, "sizey": 1}
TILES: Chart = {"version": 8, "sources": {}, "layers": []}


def hostile_plotly(host: str) -> Iterator[Chart]:
    """Yield charts that request something of ``host`` when they are drawn, clicked or hovered over."""
    for address in spellings(host):
        yield _layout(images=[PLACE | {"source": address}])
        yield _trace(type="image", source=address)
    near = f"https:/{host}/x"
    yield _layout(images=[PLACE | {"source": [near]}])
    yield _layout(images=[PLACE | {"source": {"0": near}}])
    yield _layout(images=[PLACE | {"source": "x"}])
    yield _layout(images=[PLACE | {"source": "../../files/x"}])
    yield _layout(images=[PLACE | {"source": "data:image/svg+xml;base64,PHN2Zy8+"}])
    yield _layout(template={"layout": {"images": [PLACE | {"name": "n", "source": near}]}})
    yield _layout(images=[PLACE | {"Source": near}])
    yield _trace(type="image", source=[[near]])
    for kind in ("scattermap", "scattermapbox", "choroplethmap", "choroplethmapbox", "densitymap", "densitymapbox"):
        yield _trace(type=kind, lat=[1], lon=[1], z=[1])
    for kind in ("scattergeo", "choropleth"):
        yield _trace(type=kind, lat=[1], lon=[1], locations=["DEU"], z=[1])
    yield _trace(type="choropleth", geojson=near, locations=["a"], z=[1])
    yield _trace(type="choroplethmap", geojson=f"//{host}/x", locations=["a"], z=[1])
    for style in (near, TILES | {"glyphs": near}, TILES | {"sprite": near}, "open-street-map"):
        yield {"data": [{"type": "scattermap", "lat": [1], "lon": [1]}], "layout": {"map": {"style": style}}}
        yield _layout(map={"style": style})
        yield _layout(mapbox={"style": style, "accesstoken": "pk.x"})
    sources = TILES | {"sources": {"s": {"type": "raster", "tiles": [near]}}, "layers": [{"id": "l", "source": "s"}]}
    yield _layout(map={"style": sources})
    yield _layout(map={"layers": [{"sourcetype": "geojson", "source": near}]})
    yield _layout(map={"layers": [{"sourcetype": "raster", "source": [near]}]})
    yield _layout(geo={"scope": "world"})
    for config in ({"plotlyServerURL": near}, {"topojsonURL": near}, {"mapboxAccessToken": "pk.x"}, {"linkText": "x"}):
        yield _layout() | {"config": config | {"showLink": True, "sendData": True}}
    yield _layout() | {"config": {"modeBarButtonsToAdd": [{"name": "x", "icon": {"svg": f"<image href='{near}'/>"}}]}}
    yield _layout() | {"config": {"locales": {"x": {"dictionary": {}}}}}
    for argument in (
        {"images[0].source": near},
        {"images": [PLACE | {"source": near}]},
        {"map.style": near},
        {"template.layout.images[0].source": near},
    ):
        yield _layout(updatemenus=[{"buttons": [{"method": "relayout", "args": [argument]}]}])
        yield _layout(sliders=[{"steps": [{"method": "relayout", "args": [argument]}]}])
    yield _layout(updatemenus=[{"buttons": [{"method": "relayout", "args": ["images[0].source", "relative/x"]}]}])
    yield _layout(updatemenus=[{"buttons": [{"method": "restyle", "args": ["type", "scattermap"]}]}])
    yield _layout(updatemenus=[{"buttons": [{"method": "restyle", "args": [{"type": ["choropleth"]}]}]}])
    yield _layout(updatemenus=[{"buttons": [{"method": "animate", "args": [[_trace(type="image", source="x")]]}]}])
    yield _layout() | {"frames": [{"name": "f", "layout": {"images": [PLACE | {"source": "x"}]}}]}
    yield _layout() | {"frames": [{"name": "f", "data": [{"type": "image", "source": "x"}]}]}
    yield _trace(type="scatter", y=[1], hovertemplate=f"<a href='{near}'>x</a>")
    yield _trace(type="scatter", y=[1], hovertemplate="<%{meta[0]}", meta=["a href='x'>y</a>"])
    yield _trace(type="scatter", y=[1], hovertemplate=f"<span style='mask:url({near})'>x</span>")
    yield _layout(xaxis={"tickprefix": "<", "ticktext": ["a href='x'>y"], "tickvals": [1]})
    yield _layout(title={"text": f"$\\style{{background:url({near})}}{{x}}$"})
    yield _layout(title={"text": "$\\href{x}{y}$"})
    yield _layout(font={"family": f"x;background:url({near})"})
    yield _layout(paper_bgcolor=f"url( {near} )")
    yield {"data": [{"type": "scatter", "y": [1], "stylesheet": near}]}
    yield {"data": [], "layout": {}, "external": near}


def _mark(mark: Any, **more: Any) -> Chart:
    data = {"values": [{"a": 1, "b": "x"}]}
    return {"data": data, "mark": mark, "encoding": {"x": {"field": "a", "type": "quantitative"}}} | more


def hostile_vega(host: str) -> Iterator[Chart]:
    near = f"https:/{host}/x"
    for address in spellings(host):
        yield {"data": {"url": address}, "mark": "point"}
        yield _mark({"type": "image", "url": address, "width": 10, "height": 10})
    made = {"transform": [{"calculate": f"'ht' + 'tp:' + '/{host}/x'", "as": "made"}]}
    yield _mark("image", encoding={"url": {"field": "made"}}, **made)
    yield _mark("Image")
    yield _mark({"type": "point", "href": near})
    yield _mark("point", encoding={"href": {"field": "made"}}, **made)
    yield _mark("point", transform=[{"lookup": "a", "from": {"data": {"url": near}, "key": "a"}}])
    yield _mark("point", transform=[{"lookup": "a", "from": {"data": {"url": "x"}, "key": "a"}}])
    yield _mark("point", usermeta={"embedOptions": {"loader": {"baseURL": near}}})
    yield _mark("point", usermeta={"embedOptions": {"config": near}})
    yield _mark({"type": "point", "cursor": f"url({near}), auto"})
    yield _mark({"type": "point", "cursor": {"expr": "'url(ht' + 'tp:' + '/x)'"}})
    yield _mark("point", view={"cursor": {"signal": "'u' + 'rl(x)'"}})
    yield _mark("point", config={"point": {"cursor": {"expr": "x"}}})
    yield _mark("point", encoding={"tooltip": [{"field": "made", "title": "image"}]}, **made)
    yield _mark("point", encoding={"tooltip": [{"field": "image"}]})
    yield _mark({"type": "point", "tooltip": {"content": "data"}}, transform=[{"calculate": "'x'", "as": "image"}])
    pivot = [{"calculate": "'ima' + 'ge'", "as": "k"}, {"pivot": "k", "value": "a"}]
    yield _mark({"type": "point", "tooltip": {"content": "data"}}, transform=pivot)
    yield _mark({"type": "point", "tooltip": {"expr": "{image: 'x'}"}})
    yield _mark({"type": "point", "tooltip": {"expr": "{'image': datum.b}"}})
    yield _mark("point") | {"data": {"values": [{"a": 1, "image": "x"}]}}
    yield _mark("point") | {"data": {"values": "a,image\n1,x", "format": {"type": "csv"}}}
    yield _mark("point") | {"datasets": {"d": [{"image": "x"}]}}
    for bind in (
        {"input": "image", "src": near},
        {"input": "image", "src": "x"},
        {"input": "text", "onfocus": "fetch('x')", "autofocus": True},
        {"input": "range", "style": f"background:url({near})"},
        {"input": "text", "element": "body"},
        {"input": "submit", "formaction": near},
        {"a": {"input": "image", "src": "x"}},
    ):
        yield _mark("point", params=[{"name": "p", "value": 1, "bind": bind}])
        yield _mark("point", params=[{"name": "p", "select": {"type": "point", "fields": ["a"]}, "bind": bind}])
    for expression in (
        "event.view.fetch('x')",
        "event.target.ownerDocument.location",
        "item.mark.group.context",
        "datum.constructor.constructor('x')()",
        "datum['constructor']",
        "/'/.test(event.view) ? 1 : '/'",
        "\\u0065vent.view",
        "'x' + `y`",
        f"'http:/{host}'",
        f"'\\\\\\\\{host}'",
    ):
        yield _mark("point", transform=[{"filter": expression}])
        yield _mark("point", params=[{"name": "p", "expr": expression}])
        yield _mark("point", encoding={"x": {"field": "a", "scale": {"domain": [{"signal": expression}, 5]}}})
        yield _mark("point", encoding={"x": {"field": "a", "axis": {"values": {"expr": expression}}}})
    yield _mark("point", config={"signals": [{"name": "s", "update": "1"}]})
    yield _mark("point", config={"customFormatTypes": True}, encoding={"text": {"field": "a", "formatType": "x"}})
    yield _mark("point", params=[{"name": "p", "select": {"type": "point", "on": "click[event.view.fetch('x')]"}}])
    yield _mark("point", background=f"url({near})")
    yield _mark("point", title={"text": near})
    yield _mark("point", loader={"http": {}})
    yield {"signals": [{"name": "s", "update": "1"}], "marks": [{"type": "image", "encode": {}}]}
    yield {"layer": [_mark({"type": "image", "url": "x"})]}
    yield {"hconcat": [{"vconcat": [_mark("point") | {"data": {"url": near}}]}]}
    yield {"$schema": f"https:/{host}/vega-lite/v5.json"} | _mark("point", **{"$ref": near})


def hostile(host: str) -> list[tuple[str, Chart]]:
    """Return (MIME type, chart) of all hostile charts."""
    return [*((PLOTLY, one) for one in hostile_plotly(host)), *((VEGA, one) for one in hostile_vega(host))]
