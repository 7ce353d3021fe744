"""``%agent fix``, ``explain`` and ``improve`` in a real kernel, with the scripted engine."""

from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.notebook.draft import jail
from tests.notebook.notebook import Notebook
from tests.scripted import python_when

pytestmark = pytest.mark.skipif(bool(jail.missing()), reason=jail.missing())

TRAITS = {"python_in": ""}
CELL = "total = 0\nfor price in [2, 4]:\n    total += price\nprint('total', total)"
BETTER = "total = sum([2, 4])\nprint('total', total)"


SCRIPT: list[dict[str, Any]] = [
    *python_when("by a try", *["try:\n    share = 1 / none\nexcept Exception as e:\n    print(e)"] * 2),
    *python_when("by silence", "print('no share')", "share = 1 / 2\n"),
    {"when": "as written", "text": "```python\ntry:\n    share = 1 / none\nexcept ZeroDivisionError:\n    pass\n```"},
    {"when": "with patience", "text": "The divisor is zero."},
    {"when": "with another word", "text": "It adds prices."},
    *python_when("by its number", "share = 1 / 4"),
    *python_when("by a sum", BETTER),
    *python_when("by another result", "total = sum([2, 5])\nprint('total', total)"),
    *python_when("by another output", "total = sum([2, 4])\nprint('the total is', total)"),
    *python_when("by nothing", CELL + "  # the same"),
    {"text": "Anything.", "loop": True},
]


@pytest.fixture
def notebook(fresh_notebook: Notebook) -> Notebook:
    return fresh_notebook


@pytest.mark.parametrize("words", ["by a try", "as written --in sandbox"])
async def test_a_fix_that_hides_the_error_is_not_proposed(notebook: Notebook, words: str) -> None:
    await notebook.run("none = 0")
    await notebook.run("share = 1 / none", cell="broken")
    words, _, options = words.partition(" --")
    ran = await notebook.run(f"%agent fix {'--' * bool(options)}{options} {words}", [])
    assert ran.status == "ok", ran.error
    assert ran.payload == []
    assert "proposed" in ran.plain
    assert "catches ZeroDivisionError at the statement that failed" in ran.all


async def test_the_model_is_told_that_its_fix_leaves_out_the_statement_and_corrects_it(
    notebook: Notebook,
) -> None:
    await notebook.run("none = 0")
    await notebook.run("share = 1 / none", cell="broken")
    ran = await notebook.run("%agent fix by silence", [])
    assert [one["text"] for one in ran.payload] == ["share = 1 / 2"], "without the line break at the end"
    told = [message["content"] for message in await notebook.messages() if message["role"] == "tool"]
    assert any("leaves out the statement that failed" in text for text in told)


async def test_fix_corrects_the_failed_cell_that_is_named(notebook: Notebook) -> None:
    await notebook.run("share = 1 / 0", cell="first")
    await notebook.run("print([][1])", cell="second")
    ran = await notebook.run("%agent fix In[1] by its number", [])
    assert [one["text"] for one in ran.payload] == ["share = 1 / 4"]
    hidden, asked, *_ = await notebook.messages()
    assert asked["content"].startswith("Correct the cell In[1], which failed with ZeroDivisionError")
    assert asked["content"].endswith("It makes share.\nby its number")
    assert "[][1]" not in hidden["content"]
    assert "In[9] is not among the last that failed" in (await notebook.run("%agent fix In[9]")).error


async def test_explain_reads_the_failed_cell_and_runs_nothing(notebook: Notebook) -> None:
    assert "no cell has run" in (await notebook.run("%agent explain")).error
    await notebook.run("none = 0")
    await notebook.run("share = 1 / none", cell="broken")
    ran = await notebook.run("%agent explain with patience", [])
    assert (ran.text, ran.payload) == ("The divisor is zero.", [])
    hidden, asked, *_ = await notebook.messages()
    assert asked["content"].startswith("Explain in plain words what the cell In[3] does and why it failed with ZeroDiv")
    assert "share = 1 / none" in hidden["content"]
    assert "none: int" in hidden["content"]


async def test_explain_reads_the_last_cell_even_after_an_earlier_failure(notebook: Notebook) -> None:
    await notebook.run("share = 1 / 0", cell="broken")
    await notebook.run("prices = [2, 4]\nprint(sum(prices))")
    assert (await notebook.run("%agent explain with another word")).text == "It adds prices."
    hidden, asked, *_ = await notebook.messages()
    assert asked["content"].startswith("Explain in plain words what the cell In[2] does.")
    assert "print(sum(prices))" in hidden["content"]
    assert "prices: list" in hidden["content"]


async def test_improve_proposes_a_cell_that_prints_the_same_and_leaves_equal_variables(
    notebook: Notebook,
) -> None:
    await notebook.run(CELL)
    ran = await notebook.run("%agent improve by a sum", [])
    assert ran.status == "ok", ran.error
    assert [one["text"] for one in ran.payload] == [BETTER]
    assert "+total = sum([2, 4])" in ran.plain
    _, asked, *_ = await notebook.messages()
    assert "It makes total." in asked["content"]
    assert (await notebook.run("price")).plain == "4", "nothing ran in the kernel"


@pytest.mark.parametrize("words", ["by another result", "by another output", "by nothing"])
async def test_improve_proposes_nothing_else(notebook: Notebook, words: str) -> None:
    await notebook.run(CELL)
    ran = await notebook.run(f"%agent improve {words}", [])
    assert ran.payload == []
    assert "No other cell was found that prints the same and leaves equal variables" in ran.plain


async def test_improve_needs_a_cell_that_ran_and_a_draft(notebook: Notebook) -> None:
    await notebook.run("share = 1 / 0", cell="broken")
    assert "failed; %agent fix corrects it" in (await notebook.run("%agent improve")).error
    await notebook.run("share = 1 / 2")
    assert "no draft can be made here: you chose --in live" in (await notebook.run("%agent improve --in live")).error
