"""Takes the picture at the top of the README from the real product: JupyterLab, a kernel, and the default model, which
must be downloaded before.

Run it with ``make pictures``. It fails if a turn fails or its answer is wrong.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.lab import Lab, browser, lab_server
from tests.browser.panel import ask, shown_panel
from tests.conftest import chromium
from tests.server import TOKEN

ANSWER_MS = 300_000
WARM_UP = "warm_up.ipynb"
"""A notebook whose turn loads the model, so that the picture shows the time of an answer alone."""
SIZE = (1280, 800)
NOTEBOOK = "rain.ipynb"
CELLS = (
    "import pandas as pd\n"
    "df = pd.DataFrame({'month': range(1, 13), 'rain_mm': [62, 48, 55, 41, 38, 22, 15, 19, 44, 71, 83, 77]})",
    "%%agent\nplot rain_mm by month as a bar chart",
)
NOTEBOOKS = {NOTEBOOK: CELLS, WARM_UP: ("%%agent\nWhat is 3 * 4?",)}
QUESTION, ANSWER = "How much rain_mm is that in the whole year?", "575"


def take_picture(lab: Lab, path: Path) -> None:
    """Load the model, run the notebook, ask the panel a question about it, and write a screenshot of the page."""
    page = lab.page
    lab.open(WARM_UP)
    lab.run(0, wait=False)
    expect(lab.output(0).get_by_text("s in all")).to_be_visible(timeout=ANSWER_MS)
    lab.open(NOTEBOOK)
    page.keyboard.press("Control+b")  # The file browser would take the room of the panel.
    lab.run(0)
    lab.run(1, wait=False)
    expect(lab.output(1).locator("img")).to_be_visible(timeout=ANSWER_MS)
    expect(lab.output(1).get_by_text("s in all")).to_be_visible(timeout=ANSWER_MS)
    lab.wait_idle()
    turn = ask(shown_panel(page), QUESTION)
    expect(turn).to_have_attribute("data-state", "committed", timeout=ANSWER_MS)
    expect(turn).to_contain_text(ANSWER)
    lab.cell(0).scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path)


def main(folder: Path) -> None:
    program = chromium()
    if program is None:
        raise SystemExit("Pictures need Chromium. Install it (Debian: apt-get install chromium).")
    with (
        tempfile.TemporaryDirectory(prefix="agent-kernel-pictures-") as directory,
        lab_server(Path(directory), [], NOTEBOOKS, {"engine": "local"}) as server,
        browser(program, server.url, TOKEN, size=SIZE) as lab,
    ):
        take_picture(lab, folder / "notebook.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
