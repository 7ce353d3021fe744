"""What was drawn, as numbers: figures told as plain values, so that a test can tell a right picture from a wrong one.

Standard library and matplotlib only, and self-contained: its source also runs where the agent's code runs.
"""

from __future__ import annotations

import sys
from typing import Any

SHOWN: list[dict[str, Any]] = []
"""Every figure that was rendered since ``watch``."""


def watch() -> None:
    """From now on, whatever is rendered is told in SHOWN."""
    import matplotlib.figure

    render = matplotlib.figure.Figure.savefig

    def savefig(self: Any, *args: Any, **kwargs: Any) -> None:
        render(self, *args, **kwargs)
        SHOWN.append(told(self))

    setattr(matplotlib.figure.Figure, "savefig", savefig)  # noqa: B010  an assignment is no method to mypy


def carry(key: str) -> None:
    """From now on, every PNG that is rendered carries what it draws as text under ``key``."""
    import json

    import matplotlib.backend_bases

    render = matplotlib.backend_bases.FigureCanvasBase.print_figure

    def print_figure(self: Any, filename: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("format", "png") == "png":
            kwargs["metadata"] = {**(kwargs.get("metadata") or {}), key: json.dumps(told(self.figure))}
        return render(self, filename, *args, **kwargs)

    setattr(matplotlib.backend_bases.FigureCanvasBase, "print_figure", print_figure)  # noqa: B010  as above


def still_open() -> list[dict[str, Any]]:
    """Figures of pyplot that nobody has closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return [told(pyplot.figure(number)) for number in pyplot.get_fignums()] if pyplot else []


def told(figure: Any) -> dict[str, Any]:
    return {"axes": [_axes(axes) for axes in figure.axes]}


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
