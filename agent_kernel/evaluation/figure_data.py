"""Describes the content of a matplotlib figure as numbers and texts, so that an expression can check whether the figure
is right.

This module imports only the standard library and matplotlib, because its source is also executed in the kernel or
sandbox in which the agent's code runs."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterator
from typing import Any

MARK = "FigureData"
"""Key of the PNG metadata that contains the description of the figure."""


def mark_figures() -> None:
    """From now on, whenever a figure is rendered to a PNG, store its description in the metadata of the PNG."""
    import matplotlib.backend_bases

    render = matplotlib.backend_bases.FigureCanvasBase.print_figure

    def print_figure(self: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("format", "png") == "png":
            kwargs["metadata"] = {**(kwargs.get("metadata") or {}), MARK: json.dumps(describe(self.figure))}
        return render(self, filename, *args, **kwargs)

    setattr(matplotlib.backend_bases.FigureCanvasBase, "print_figure", print_figure)  # noqa: B010  mypy refuses an assignment


def read_mark(png: str) -> dict[str, Any] | None:
    """Return the description of the figure from the metadata of a PNG, or None if there is none. ``png`` is the image
    in Base64."""
    try:
        for kind, body in _chunks(base64.b64decode(png)):
            name, _, text = body.partition(b"\0")
            if kind == b"tEXt" and name == MARK.encode():
                mark: dict[str, Any] = json.loads(text.decode("latin-1"))
                return mark
    except (binascii.Error, ValueError):
        pass
    return None


def describe(figure: Any) -> dict[str, Any]:
    return {"axes": [_axes(axes) for axes in figure.axes]}


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at + 8 <= len(png):
        size, kind = struct.unpack_from(">I4s", png, at)
        yield kind, png[at + 8 : at + 8 + size]
        at += 12 + size


def _axes(axes: Any) -> dict[str, Any]:
    patches = [(type(patch).__name__, patch) for patch in axes.patches]
    legend = axes.get_legend()
    return {
        "title": axes.get_title(),
        "xlabel": axes.get_xlabel(),
        "ylabel": axes.get_ylabel(),
        "legend": [text.get_text() for text in legend.get_texts()] if legend else [],
        "lines": [
            {"x": _numbers(line.get_xdata(orig=False)), "y": _numbers(line.get_ydata(orig=False))}
            for line in axes.get_lines()
        ],
        "bars": [
            {"x": float(bar.get_x()), "width": float(bar.get_width()), "height": float(bar.get_height())}
            for kind, bar in patches
            if kind == "Rectangle"
        ],
        "wedges": [abs(wedge.theta2 - wedge.theta1) / 360 for kind, wedge in patches if kind == "Wedge"],
        "points": [_numbers(point) for points in axes.collections for point in points.get_offsets()],
    }


def _numbers(values: Any) -> list[float]:
    return [float(value) for value in values]
