"""Tests that the agent changes and runs cells of the notebook that is open in JupyterLab, and that a user reviews the
changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab, lab_server
from tests.browser.panel import ask as ask_panel
from tests.browser.panel import ended, use_kernel
from tests.scripted import call_when
from tests.server import TOKEN, AgentServer

pytestmark = pytest.mark.browser
SLOW = 30_000
SLEEPING = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
SHOWN = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell"
SOURCES = f"""() => [...document.querySelectorAll('{SHOWN}')].map(
  cell => [...cell.querySelectorAll('.jp-InputArea .cm-line')].map(line => line.textContent).join('\\n'))"""


SCRIPT = [
    call_when("add a cell", "insert_cell", source="total = 40 + 2\ntotal", below="cell-0"),
    {"when": "add a cell", "text": "Added."},
    call_when("rename it", "edit_cell", cell="cell-1", source="df_new"),
    call_when("rename it", "edit_cell", cell="cell-1", find="df", replace="df_new"),
    {"when": "rename it", "text": "As you like."},
    call_when("tidy up", "read_cells", cells="0-3"),
    call_when("tidy up", "edit_cell", cell="cell-0", source="import math\ndf = math.pi"),
    call_when("tidy up", "edit_cell", cell="cell-1", find="df", replace="df * 2"),
    call_when("tidy up", "edit_cell", cell="cell-3", find="600", replace="0"),
    call_when("tidy up", "delete_cell", cell="cell-2"),
    call_when("tidy up", "insert_cell", source="# Result", type="markdown", below="start"),
    {"when": "tidy up", "text": "Tidy."},
    call_when("double it", "edit_cell", cell="cell-0", find="df = 1", replace="df = 2"),
    call_when("double it", "edit_cell", cell="cell-1", find="df", replace="df + df"),
    {"when": "double it", "text": "Doubled."},
    call_when("run them", "run_cells", cells="cell-0, cell-1"),
    {"when": "run them", "text": "It ran."},
    call_when("wait for it", "run_cells", cells="cell-3"),
    call_when("add one below", "insert_cell", source="two = 1 + 1"),
    {"when": "add one below", "text": "There."},
    call_when("run again", "run_cells", cells="cell-1"),
    {"text": "ok", "loop": True},
]


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AgentServer]:
    notebooks = {
        "rain.ipynb": ["df = 1", "df", "print('third')", SLEEPING],
        "other.ipynb": ["df = 1", "df"],
        "asks.ipynb": ["%%agent\nadd one below", "df"],
    }
    with lab_server(tmp_path, SCRIPT, notebooks, dark="reviews" in request.node.name) as server:
        yield server


def ask(lab: Lab, prompt: str) -> Locator:
    """Send a message in the side bar, opening it first if needed. Return the turn that answers."""
    panel = lab.page.get_by_role("region", name="Agent", exact=True)
    if not panel.is_visible():
        lab.page.get_by_role("tab", name="Agent", exact=True).click()
    return ask_panel(use_kernel(panel), prompt)


def sources(lab: Lab) -> list[str]:
    return [str(text) for text in lab.page.evaluate(SOURCES)]


def results(server: AgentServer, turn: str) -> list[dict[str, Any]]:
    """Return the data of the finished calls of a turn, as the server reports them."""
    return [event["data"] for event in events(server, turn) if event["type"] == "call.finished"]


def events(server: AgentServer, turn: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a turn as they arrive. The client is blocking, because Playwright uses the event loop of this
    thread.
    """
    with (
        server.blocking_client({"Authorization": f"token {TOKEN}"}) as client,
        client.stream("GET", f"agent/v1/turns/{turn}/events") as reply,
    ):
        for line in reply.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


def approve(server: AgentServer, turn: str, what: str) -> None:
    """Approve a call whose code contains ``what``, from another client than the panel."""
    asked = next(
        event["data"]
        for event in events(server, turn)
        if event["type"] == "approval.required" and what in event["data"]["code"]
    )
    body = {"decision": "approve", "shown": asked["shown"]}
    with server.blocking_client({"Authorization": f"token {TOKEN}"}) as client:
        client.post(f"agent/v1/agent/approvals/{asked['approval']}", json=body).raise_for_status()


def id_of(turn: Locator) -> str:
    return turn.get_attribute("data-turn") or ""


def test_a_person_reviews_what_the_agent_changes_and_takes_it_back(lab: Lab, server: AgentServer) -> None:
    lab.open("rain.ipynb")
    cells = lab.page.locator(".jp-Notebook .jp-Cell")

    added = ask(lab, "add a cell")
    expect(added.locator(".ak-diff")).to_contain_text("total = 40 + 2", timeout=SLOW)
    lab.picture("edits-insert-asked")
    expect(cells).to_have_count(4)
    added.get_by_role("button", name="Accept", exact=True).click()
    ended(added)
    expect(cells).to_have_count(5)
    assert sources(lab)[1] == "total = 40 + 2\ntotal"

    renamed = ask(lab, "rename it")
    expect(renamed.locator(".ak-approval .ak-diff")).to_contain_text("df_new", timeout=SLOW)
    renamed.get_by_role("button", name="Reject").click()
    ended(renamed)
    assert sources(lab)[2] == "df"
    unread, denied = results(server, id_of(renamed))
    assert "was not read by you yet, so nothing was done. Its present text is:\ndf\n" in unread["text"]
    assert denied["status"] == "denied"

    tidy = ask(lab, "tidy up")
    for _ in range(3):  # of three tools; each other edit goes by the first yes
        tidy.get_by_role("button", name="Always in this conversation").click(timeout=SLOW)
    ended(tidy)
    assert sources(lab)[1:4] == ["import math\ndf = math.pi", "total = 40 + 2\ntotal", "df * 2"]
    reviews = tidy.locator(".ak-review")
    expect(reviews).to_have_count(5)
    lab.picture("edits-review-dark")
    reviews.nth(1).get_by_role("button", name="Accept").click()
    expect(reviews.nth(1)).to_have_attribute("data-standing", "accepted")
    reviews.nth(2).get_by_role("button", name="Reject").click()
    expect(reviews.nth(2)).to_have_attribute("data-standing", "undone")
    assert sources(lab)[4] == SLEEPING

    lab.type_into(1, "mine = 3")
    expect(reviews.nth(0)).to_have_attribute("data-standing", "touched")
    lab.save()
    saved = {cell["id"]: cell["metadata"] for cell in json.loads((server.root / "rain.ipynb").read_text())["cells"]}
    assert saved["cell-1"]["agent_kernel"]["edited"] is True

    lab.page.reload()
    lab.wait_idle()
    again = lab.page.locator(".ak-turn").last
    again.get_by_role("button", name="Undo changes").click(timeout=SLOW)
    expect(again.locator(".ak-review-turn")).to_contain_text("Cell 1 was not undone: you have changed it.")
    expect(cells).to_have_count(5)
    assert sources(lab) == ["mine = 3", "total = 40 + 2\ntotal", "df", "print('third')", SLEEPING]
    lab.picture("edits-undone-dark")


def test_a_changed_cell_is_refused_and_a_turn_keeps_its_notebook(lab: Lab, server: AgentServer) -> None:
    """Two windows have the notebook; one of them makes each change, once."""
    lab.open("rain.ipynb")
    second = Lab(lab.page.context.new_page(), server.url, TOKEN)
    second.open("rain.ipynb")
    lab.page.bring_to_front()

    turn = ask(lab, "double it")
    expect(turn.locator(".ak-approval")).to_be_visible(timeout=SLOW)
    id = id_of(turn)
    for window in (second, lab):
        window.page.bring_to_front()
        window.type_into(0, "df = 1 # mine")
    turn.get_by_role("button", name="Accept", exact=True).click()
    expect(turn.locator(".ak-approval .ak-diff")).to_contain_text("df + df", timeout=SLOW)
    for window in (second, lab):
        window.page.bring_to_front()
        window.page.locator(".jp-DirListing-item", has_text="other.ipynb").dblclick()
        window.page.locator(".lm-TabBar-tab.jp-mod-current", has_text="other.ipynb").wait_for(timeout=SLOW)
    approve(server, id, "df + df")
    told = list(events(server, id))
    refused, done = [event["data"] for event in told if event["type"] == "call.finished"]
    assert "was changed meanwhile, so nothing was done" in refused["text"]
    assert (done["status"], done["details"]["change"]["notebook"]) == ("success", "rain.ipynb")
    claims = [event["data"]["call"] for event in told if event["type"] == "call.claimed"]
    assert claims == [refused["call"]] * 2 + [done["call"]] * 2, "one window looks and changes, the other does not"
    seen = []
    for window in (second, lab):
        window.page.bring_to_front()
        expect(window.page.locator(SHOWN)).to_have_count(2, timeout=SLOW)
        assert sources(window) == ["df = 1", "df"], "of the other notebook nothing changed"
        window.page.locator(".lm-TabBar-tab", has_text="rain.ipynb").first.click()
        expect(window.page.locator(SHOWN)).to_have_count(4)
        seen.append(sources(window)[1])
    assert sorted(seen) == ["df", "df + df"]


def test_cells_run_in_the_notebook_and_stop_reaches_only_those(lab: Lab, server: AgentServer) -> None:
    lab.open("rain.ipynb")
    ran = ask(lab, "run them")
    expect(ran.locator(".ak-approval")).to_contain_text("df = 1", timeout=SLOW)
    ran.get_by_role("button", name="Always in this conversation").click()
    ended(ran)
    expect(lab.output(1)).to_have_text("1")
    [result] = results(server, id_of(ran))
    assert result["status"] == "success"
    assert "--> 1" in result["text"]

    started = ask(lab, "wait for it")
    expect(started).to_contain_text("begun", timeout=SLOW)
    lab.picture("edits-running")
    lab.page.locator(".ak-stop").click()
    expect(started).to_have_attribute("data-state", "cancelled", timeout=SLOW)
    expect(lab.output(3).last).to_contain_text("KeyboardInterrupt", timeout=SLOW)
    lab.wait_idle()

    lab.type_into(0, SLEEPING)
    lab.run(0, wait=False)
    expect(lab.output(0)).to_contain_text("begun", timeout=SLOW)
    lab.type_into(2, "pass")
    waits = ask(lab, "run again")
    expect(waits.locator(".ak-call")).to_have_attribute("data-status", "running", timeout=SLOW)
    lab.page.locator(".ak-stop").click()
    expect(waits).to_have_attribute("data-state", "cancelled", timeout=SLOW)
    lab.page.wait_for_timeout(500)
    expect(lab.cell(0).locator(".jp-InputPrompt")).to_have_text("[*]:")
    expect(lab.output(0)).not_to_contain_text("KeyboardInterrupt")


def test_a_cell_that_asks_gets_a_cell_below_it_while_its_kernel_is_busy(lab: Lab, server: AgentServer) -> None:
    lab.open("asks.ipynb")
    lab.page.get_by_role("tab", name="Agent").click()
    lab.page.get_by_role("region", name="Agent").wait_for()
    lab.run(0, wait=False)
    lab.page.locator(".jp-Stdin-input").wait_for(timeout=SLOW)
    expect(lab.cell(0)).to_contain_text("a new code cell below cell 1 (cell-0)")
    expect(lab.cell(0)).to_contain_text("+two = 1 + 1")
    lab.picture("edits-asked-in-a-cell")
    lab.answer("y")
    expect(lab.cell(0)).to_contain_text("There.", timeout=SLOW)
    lab.wait_idle()
    assert sources(lab)[1:] == ["two = 1 + 1", "df"]
