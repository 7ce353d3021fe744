"""Tests the committed notebooks: clean, and able to run without a user. ``make demo`` runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tests.test_layers import ROOT

PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=PATHS, ids=lambda path: str(path.name))
def notebook(request: pytest.FixtureRequest) -> NotebookNode:
    return nbformat.read(request.param, as_version=4)


def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_quickstart_and_the_guides_are_there() -> None:
    assert {path.name for path in PATHS} >= {"quickstart.ipynb", "remote_engines.ipynb"}


def test_a_committed_notebook_is_valid_and_has_no_outputs(notebook: NotebookNode) -> None:
    nbformat.validate(notebook)
    assert [(cell.outputs, cell.execution_count) for cell in code(notebook)] == [([], None)] * len(code(notebook))


def test_no_two_cells_share_an_id(notebook: NotebookNode) -> None:
    ids = [cell.id for cell in notebook.cells]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("path", [path for path in PATHS if '"%%agent' in path.read_text()], ids=lambda path: path.name)
def test_live_code_is_allowed_with_a_reason_before_the_first_turn(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    sources = [cell.source for cell in notebook.cells]
    allow = sources.index("%agent allow live")
    assert notebook.cells[allow - 1].cell_type == "markdown"
    assert "because" in sources[allow - 1]
    assert not [source for source in sources[:allow] if source.startswith("%%agent")]


def test_every_turn_of_the_quickstart_is_among_the_tested_wordings() -> None:
    """``make bench`` runs each in five wordings; this holds the notebook to the first of them."""
    wordings = json.loads((ROOT / "tests" / "benchmarks" / "quickstart_wordings.json").read_text())["wordings"]
    cells = code(nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", as_version=4))
    asked = {cell.source.partition("\n")[2] for cell in cells if cell.source.startswith("%%agent")}
    assert not asked - {wording["prompt"] for wording in wordings}


def test_the_quickstart_ends_with_a_plain_cell_that_uses_what_the_agent_made() -> None:
    cells = code(nbformat.read(ROOT / "notebooks" / "quickstart.ipynb", as_version=4))
    turns = [cell.source for cell in cells if cell.source.startswith("%%agent")]
    made = set(re.findall(r"column (\w+)", turns[-1]))
    assert len(turns) >= 5
    assert not cells[-1].source.startswith("%")
    assert any(name in cells[-1].source for name in made)
