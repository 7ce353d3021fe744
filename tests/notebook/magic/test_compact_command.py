"""``%agent compact`` and ``%agent usage``."""

from __future__ import annotations

from tests.notebook.notebook import Notebook

SCRIPT = [{"text": "Hello.", "loop": True}]


async def test_a_summary_is_made_and_taken_back_and_what_all_of_it_cost_is_told(fresh_notebook: Notebook) -> None:
    assert "has no session yet" in (await fresh_notebook.run("%agent compact")).error
    await fresh_notebook.run("%%agent\nhello")
    assert "no turn of this conversation is old enough" in (await fresh_notebook.run("%agent compact")).plain
    for _ in range(3):
        await fresh_notebook.run("%%agent\nhello")
    shown = (await fresh_notebook.run("%agent compact")).plain
    assert "The model continues from this summary; every turn is kept." in shown
    assert shown.rstrip().endswith("Hello.")
    usage = (await fresh_notebook.run("%agent usage")).plain
    rows = {line.split("  ")[0]: line for line in usage.splitlines() if line}
    assert {"all", "model scripted", "branch main"} <= set(rows)
    assert "4 + 1 summaries" in rows["all"]
    assert "The newest summary is removed" in (await fresh_notebook.run("%agent compact undo")).plain
    assert (
        "Nothing was removed: this conversation has no summary."
        in (await fresh_notebook.run("%agent compact undo")).plain
    )
    assert "%agent compact summarises" in (await fresh_notebook.run("%agent compact now")).error
