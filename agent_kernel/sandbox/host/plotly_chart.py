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
_KEYS = """
    a a0 aaxis active activebgcolor activecolor activeselection activeshape add align alignmentgroup alphahull
    ambient anchor angle angleref angularaxis annotationdefaults annotations arrangement array arraydtick arrayminus
    arraytick0 arrowcolor arrowhead arrowlen arrowref arrowside arrowsize arrowwidth aspectmode aspectratio atype
    autobinx autobiny autocolorscale autocontour autoexpand automargin autorange autorangeoptions autoshift autosize
    autotickangles autotypenumbers ax axis axref ay ayref b b0 backgroundcolor backoff bandwidth bar barcornerradius
    bargap bargroupgap barmode barnorm barpolar base baseframe baseratio baxis bdata bgcolor bingroup bordercolor
    borderpad borderwidth bounds box boxgap boxgroupgap boxmean boxmode boxpoints branchvalues btype bundlecolors
    buttondefaults buttons c calendar camera candlestick caps captureevents carpet categoryarray categoryorder cauto
    caxis cells center cheaterslope cheatertype clickanywhere clickmode clicktoshow clipmax clipmin cliponaxis close
    cmax cmid cmin color coloraxis colorbar coloring colormodel colors colorscale colorscaledefaults colorscales
    colorway column columnorder columns columnwidth computed cone connectgaps connector constrain constraintext
    constraintoward constraintrange contour contourcarpet contours copy_ystyle copy_zstyle cornerradius count counts
    cumulative currentbin currentvalue customdata da dash data datarevision db decreasing delaunayaxis delta
    depthfade diagonal diffuse dimensiondefaults dimensions direction displayindex diverging dividercolor
    dividerwidth dlabel domain dr dragmode drawdirection dtheta dtick dtickrange dtype duration dvalue dx dy easing
    edgeshape editable editrevision enabled end endline endlinecolor endlinewidth entrywidth entrywidthmode error_x
    error_y error_z execute exponentformat extendfunnelareacolors extendiciclecolors extendpiecolors
    extendsunburstcolors extendtreemapcolors eye facecolor facenormalsepsilon family fgcolor fgopacity fill
    fillcolor fillgradient fillmode fillpattern fillrule fixedrange flatshading flip font format frame frames
    fresnel fromcurrent funnel funnelarea funnelareacolorway funnelgap funnelgroupgap funnelmode gauge gradient grid
    gridcolor griddash gridshape gridwidth group groupclick groupdoubleclick groupnorm groups grouptitlefont header
    heatmap height hiddenlabels hidesurface high highlight highlightcolor highlightwidth histfunc histnorm histogram
    histogram2d histogram2dcontour hole hoveranywhere hovercolor hoverdistance hoverformat hoverinfo hoverlabel
    hovermode hoveron hoverongaps hoversort hoversubplots hovertemplate hovertemplatefallback hovertext i icicle
    iciclecolorway ids imag image imagedefaults images imaginaryaxis immediate include increasing indentation
    indicator insiderange insidetextanchor insidetextfont insidetextorientation intensity intensitymode isomax
    isomin isosurface itemclick itemdoubleclick itemsizing itemwidth j jitter k l label label0 labelalias labelangle
    labelfont labelformat labelpadding labelprefix labels labelside labelsuffix layer layout leaf legend legendgroup
    legendgrouptitle legendrank legendwidth len lengthfactor lengthmode lenmode level lighting lightposition line
    linecolor lineposition linewidth link locations low lowerfence margin marker matches maxallowed maxdepth
    maxdisplayed maxheight mean meanline measure median mesh3d meta method min minallowed minexponent minor
    minorgridcolor minorgridcount minorgriddash minorgridwidth minorloglabels minorticklen minreducedheight
    minreducedwidth minsize mirror mode modebar modebardisable multiselect name namelength nbinsx nbinsy ncontours
    newselection newshape node notched notchspan notchwidth nticks number offset offsetgroup ohlc opacity
    opacityscale open operation ordering orientation outliercolor outlierwidth outlinecolor outlinewidth
    outsidetextfont overlaying packing pad padding paper_bgcolor parcats parcoords parents path pathbar pattern
    period pie piecolorway plot_bgcolor pointpos points polar position prefix project projection pull q1 q3
    quartilemethod quiver r r0 radialaxis range rangebreakdefaults rangebreaks rangefont rangemode rangeselector
    rangeslider real realaxis redraw reference relative remove reversescale root rotation roughness row roworder
    rows sankey scale scaleanchor scalegroup scalemode scaleratio scatter scatter3d scattercarpet scattergap
    scattergl scattermode scatterpolar scatterpolargl scattersmith scatterternary scene sd sdmultiple sector
    selectdirection selected selectedpoints selectiondefaults selectionrevision selections separatethousands
    separators sequential sequentialminus shadow shape shapedefaults shapes shift show showactive showarrow
    showaxeslabels showbackground showdividers showexponent showgrid showlabels showlegend showline showlines
    showlowerhalf showscale showspikes showticklabels showtickprefix showticksuffix showupperhalf showwhiskers side
    simplify size sizemin sizemode sizeref sizex sizey sizing slices sliderdefaults sliders smith smoothing solidity
    sort sortpaths source spaceframe span spanmode specular spikecolor spikedash spikedistance spikemode spikesides
    spikesnap spikethickness split splom squarifyratio stackgaps stackgroup standoff start startarrowhead
    startarrowsize startline startlinecolor startlinewidth starts startstandoff step stepdefaults stepmode steps
    stop streamtube style subplot subplots subtitle suffix sum sunburst sunburstcolorway surface surfaceaxis
    surfacecolor symbol symmetric t table target template templateitemname ternary text textangle textcase textfont
    textinfo textposition texttemplate texttemplatefallback theta theta0 thetaunit thickness thicknessmode threshold
    tick0 tickangle tickcolor tickfont tickformat tickformatstopdefaults tickformatstops ticklabelindex
    ticklabelmode ticklabeloverflow ticklabelposition ticklabelshift ticklabelstandoff ticklabelstep ticklen
    tickmode tickprefix ticks tickson ticksuffix ticktext tickvals tickwidth tiling title titleclick
    titledoubleclick titlefont titleoffset titleposition titleside totals tracegroupgap traceorder traceref
    tracerefminus traces transition transpose treemap treemapcolorway type u uhoverformat uid uirevision
    unifiedhovertitle uniformtext unselected up updatemenudefaults updatemenus upperfence usecolormap v valign value
    valueformat valuehoverformat valueminus values valuesuffix variant vertexcolor vertexnormalsepsilon vhoverformat
    violin violingap violingroupgap violinmode visible volume w waterfall waterfallgap waterfallgroupgap
    waterfallmode weight whiskerwidth whoverformat width x x0 x0shift x1 x1shift xanchor xaxes xaxis xbingroup xbins
    xcalendar xclick xgap xhoverformat xpad xperiod xperiod0 xperiodalignment xref xshift xside xsizemode xtype y y0
    y0shift y1 y1shift yanchor yaxes yaxis ybingroup ybins ycalendar yclick ygap yhoverformat ypad yperiod yperiod0
    yperiodalignment yref yshift yside ysizemode ytype z zauto zaxis zcalendar zeroline zerolinecolor zerolinelayer
    zerolinewidth zhoverformat zmax zmid zmin zorder zsmooth
"""
KEYS = frozenset(_KEYS.split())
"""Attribute names of plotly.js, except those of maps and links to other data (``*src``). The test ``test_charts.py``
compares this list with the schema of the installed Plotly."""
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
            continue  # all Plotly templates have defaults for maps; without maps they have no effect
        elif not in_template:
            check_unknown(key, item)
    return allowed


def _allowed_attribute(path: str) -> str:
    """Return the last attribute of ``path`` (``images[0].source``), or "" if one of its attributes is not allowed."""
    names = [name for name in PATH.split(path) if not name.isdigit()]
    plain = [name if name in KEYS or name in ARGUMENTS else COUNTED.sub("", name) for name in names]
    return plain[-1] if plain and all(name in KEYS or name in ARGUMENTS for name in plain) else ""


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
