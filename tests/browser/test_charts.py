"""Tests charts of sandboxed code in JupyterLab: ordinary ones are drawn, and no chart that passed the check sends a
request.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from agent_kernel.notebook.display.media_bundle import media_bundle
from agent_kernel.sandbox.host.chart_validation import NotShown, validate_chart
from tests.browser.lab import SLOW_MS, Lab, wait_until
from tests.sandbox.charts import PLOTLY, VEGA, Chart, hostile, ordinary
from tests.server import AgentServer

pytestmark = pytest.mark.browser

SCRIPT: list[dict[str, object]] = []
SHOW = (
    "import json\nfrom IPython.display import display\n"
    "for bundle in json.load(open('{file}.json')):\n    display(bundle, raw=True)\nprint('all shown')"
)
NOTEBOOKS = {f"{name}.ipynb": [SHOW.format(file=name)] for name in ("plotly", "vega", "hostile", "unchecked")}
"""One cell each: a cell shows at most fifty outputs, and those of cells that are out of sight are not drawn."""


class Listener:
    """A socket that counts the connections to it."""

    def __init__(self) -> None:
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.host = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextlib.contextmanager
def listening() -> Iterator[Listener]:
    with closing(Listener()) as listener:
        yield listener


def bundle(mime: str, data: bytes) -> dict[str, object]:
    return media_bundle(mime, base64.b64encode(data).decode(), "a chart")


def check_chart(mime: str, chart: Chart) -> dict[str, object] | None:
    try:
        return bundle(mime, validate_chart(mime, json.dumps(chart).encode()))
    except NotShown:
        return None


def write(root: Path, name: str, bundles: list[dict[str, object] | None]) -> None:
    """Write the bundles that passed the check to a file that the notebook displays."""
    (root / f"{name}.json").write_text(json.dumps([one for one in bundles if one]))


@pytest.mark.timeout(600)
def test_ordinary_charts_are_drawn_and_no_chart_asks_a_listener(server: AgentServer, lab: Lab) -> None:
    with listening() as listener:
        variants = hostile(listener.host)
        charts = list(ordinary())
        assert len(variants) >= 100
        assert len(charts) >= 40
        shown = {
            mime: [check_chart(mime, chart) for _, kind, chart in charts if kind == mime] for mime in (PLOTLY, VEGA)
        }
        write(server.root, "plotly", shown[PLOTLY])
        write(server.root, "vega", shown[VEGA])
        write(server.root, "hostile", [check_chart(mime, chart) for mime, chart in variants])
        write(server.root, "unchecked", [bundle(mime, json.dumps(chart).encode()) for mime, chart in variants[:2]])
        elsewhere: list[str] = []
        lab.page.on("request", lambda asked: None if _own(server, asked.url) else elsewhere.append(asked.url))
        _show(lab, "plotly", ".js-plotly-plot", len(shown[PLOTLY]))
        _show(lab, "vega", ".vega-embed canvas, .vega-embed svg.marks", len(shown[VEGA]))
        _show(lab, "hostile")
        assert (listener.connections, elsewhere) == (0, [])
        # What is not checked does reach the listener, so that the zero above says something.
        _show(lab, "unchecked")
        wait_until(lab.page, lambda: listener.connections > 0)


def _show(lab: Lab, name: str, selector: str = "", count: int = 0) -> None:
    """Run the cell of a notebook and hover over its charts, because some load tooltips and cursors only then."""
    lab.open(f"{name}.ipynb")
    lab.run(0, wait=False)
    lab.page.get_by_text("all shown").last.wait_for(timeout=2 * SLOW_MS)
    if count:
        _until_drawn(lab, selector, count)
    charts = lab.page.locator(".js-plotly-plot, .vega-embed")
    for drawn in charts.all():
        # JupyterLab may draw a chart anew when it scrolls into view; on a slow machine it is gone for a moment.
        with contextlib.suppress(PlaywrightTimeout):
            drawn.scroll_into_view_if_needed(timeout=5_000)
            drawn.hover(force=True, timeout=5_000)
    if count:
        _until_drawn(lab, selector, count)
    lab.page.wait_for_timeout(2_000)


def _until_drawn(lab: Lab, selector: str, count: int) -> None:
    for _ in range(120):
        drawn = lab.page.locator(selector).count()
        if drawn >= count:
            return
        lab.page.wait_for_timeout(1_000)
    lab.picture("charts")
    raise AssertionError(f"{drawn} of {count} were drawn: {selector}")


def _own(server: AgentServer, address: str) -> bool:
    return address.startswith((server.url, "blob:", "data:", server.url.replace("http", "ws", 1)))
