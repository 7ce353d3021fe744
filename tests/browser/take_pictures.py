"""Takes the pictures of the README from the real product: JupyterLab, a kernel, and the default model, which must be
downloaded before. One is a screenshot, the other an animation.

Run it with ``make pictures``. It fails if a turn fails or its answer is wrong.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, expect

from tests.browser.film import Film
from tests.browser.lab import Lab, browser, lab_server
from tests.browser.panel import ask, shown_panel
from tests.conftest import chromium
from tests.narrowing import not_none
from tests.server import TOKEN

ANSWER_MS = 300_000
WARM_UP = "warm_up.ipynb"
"""A notebook whose turn loads the model, so that the pictures show the time of an answer alone."""
PICTURE_SIZE, FILM_SIZE = (1280, 800), (960, 620)
NOTEBOOK, FILM_NOTEBOOK = "rain.ipynb", "weather.ipynb"
RAIN = (62, 48, 55, 41, 38, 22, 15, 19, 44, 71, 83, 77)
PLOT = "%%agent\nplot rain_mm by month as a bar chart"
CELLS = (
    f"import pandas as pd\ndf = pd.DataFrame({{'month': range(1, 13), 'rain_mm': {list(RAIN)}}})",
    PLOT,
)
FILM_CELLS = ("import pandas as pd\ndf = pd.read_csv('rain.csv')\ndf.head(3)", "")
NOTEBOOKS = {NOTEBOOK: CELLS, FILM_NOTEBOOK: FILM_CELLS, WARM_UP: ("%%agent\nWhat is 3 * 4?",)}
QUESTION, ANSWER = "How much rain_mm is that in the whole year?", "575"
SCROLL_STEPS = 10
LONGEST_TURN_MS, STILL_MS, LAST_MS = 5000, 800, 1500
"""How long the animation shows a turn, a page on which nothing changes, and its last frame."""


def load_model(lab: Lab) -> None:
    lab.open(WARM_UP)
    lab.run(0, wait=False)
    expect(lab.output(0).get_by_text("s in all")).to_be_visible(timeout=ANSWER_MS)


def take_picture(lab: Lab, path: Path) -> None:
    """Run the notebook, ask the panel a question about it, and write a screenshot of the page."""
    page = lab.page
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


def take_film(lab: Lab, path: Path) -> None:
    """Film a person who types a question in a cell, sees the chart, opens the panel, and asks the next one there."""
    page, film = lab.page, Film(lab.page)
    page.set_viewport_size({"width": FILM_SIZE[0], "height": FILM_SIZE[1]})
    lab.open(FILM_NOTEBOOK)
    page.keyboard.press("Control+b")
    lab.run(0)
    lab.cell(0).locator(".cm-content").first.click()
    page.wait_for_timeout(500)
    film.show(1000)
    lab.cell(1).locator(".cm-content").click()
    film.show(300)
    film.type(PLOT)
    film.show(400)
    page.keyboard.press("Control+Enter")
    watch_turn(film, lambda: lab.output(1).get_by_text("s in all").is_visible())
    expect(lab.output(1).locator("img")).to_be_visible()
    scroll(film, lab)
    film.show(1200)
    page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name="Agent", exact=True).click()
    panel = shown_panel(page)
    page.wait_for_timeout(1000)
    film.show(1200)
    panel.get_by_label("Message to the agent").click()
    film.type(QUESTION)
    film.show(400)
    page.keyboard.press("Enter")
    turn = panel.locator(".ak-turn").last
    watch_turn(film, lambda: has_answer(turn))
    page.wait_for_timeout(500)
    film.show(LAST_MS)
    film.write(path)


def watch_turn(film: Film, ended: Callable[[], bool]) -> None:
    film.watch(ended, longest_ms=LONGEST_TURN_MS, timeout_ms=ANSWER_MS, still_ms=STILL_MS)


def has_answer(turn: Locator) -> bool:
    """Whether the turn is over, and its answer right."""
    if turn.get_attribute("data-state") != "committed" or QUESTION not in turn.inner_text():
        return False
    expect(turn).to_contain_text(ANSWER)
    return True


def scroll(film: Film, lab: Lab) -> None:
    """Turn the wheel until the cell with the question is at the top of the notebook."""
    cell, top = lab.cell(1), lab.page.locator(".jp-Notebook").bounding_box()
    cell.hover(position={"x": 200, "y": 20})
    box = not_none(cell.bounding_box())
    for _ in range(SCROLL_STEPS):
        lab.page.mouse.wheel(0, (box["y"] - not_none(top)["y"]) / SCROLL_STEPS)
        lab.page.wait_for_timeout(30)
        film.show(40)


def main(folder: Path) -> None:
    program = chromium()
    if program is None:
        raise SystemExit("Pictures need Chromium. Install it (Debian: apt-get install chromium).")
    with (
        tempfile.TemporaryDirectory(prefix="agent-kernel-pictures-") as directory,
        lab_server(Path(directory), [], NOTEBOOKS, {"engine": "local"}) as server,
        browser(program, server.url, TOKEN, size=PICTURE_SIZE) as lab,
    ):
        rows = "".join(f"{month},{rain}\n" for month, rain in enumerate(RAIN, 1))
        (server.root / "rain.csv").write_text(f"month,rain_mm\n{rows}")
        load_model(lab)
        take_picture(lab, folder / "notebook.png")
        take_film(lab, folder / "notebook.gif")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
