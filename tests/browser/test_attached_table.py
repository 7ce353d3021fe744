"""Tests the story of a table that is attached in the panel beside a notebook, in real JupyterLab."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import FilePayload, expect

from tests.browser.lab import SLOW_MS, Lab
from tests.browser.panel import ask, open_panel
from tests.scripted import python_when
from tests.server import AgentServer

pytestmark = pytest.mark.browser

TEAS = FilePayload(name="my teas.csv", mimeType="text/csv", buffer=b"tea,price\nAssam,7\nSencha,12\n")
CODE = "import pandas as pd\nteas = pd.read_csv('my_teas.csv')\nprint(teas.price.sum())"
SCRIPT: list[dict[str, Any]] = python_when("the sum of the prices", CODE)


def test_code_reads_a_table_that_was_attached_and_the_person_sees_where_it_is(lab: Lab, server: AgentServer) -> None:
    panel = open_panel(lab)
    panel.get_by_label("Files to attach").set_input_files([TEAS])
    attachments = panel.get_by_role("list", name="Attachments of this message")
    expect(attachments).to_contain_text("my teas.csv")
    expect(attachments.locator("progress")).to_have_count(0)
    turn = ask(panel, "the sum of the prices")
    # A call that fails creates no variables.
    expect(turn).to_contain_text("These variables exist only in a draft: teas.", timeout=SLOW_MS)
    expect(turn).to_contain_text("Saved in the folder of the notebook, where code can read it: my_teas.csv.")
    assert (server.root / "my_teas.csv").read_bytes() == TEAS["buffer"]
    lab.picture("attached-table")
