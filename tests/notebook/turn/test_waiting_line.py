"""Tests the line that says that a cell waits for its model."""

from __future__ import annotations

from tests.notebook.notebook import Notebook

SCRIPT = [
    {"when": "count", "calls": [{"name": "python", "arguments": {"code": "len([1, 2])"}}]},
    {"when": "count", "text": "Two of them.", "deltas": 3, "delay": 0.5},
    {"text": "ok", "loop": True},
]


async def test_a_cell_says_that_it_waits_for_the_model_also_after_a_call(notebook: Notebook) -> None:
    ran = await notebook.run("%%agent --in draft\ncount")
    done = next(place for place, shown in enumerate(ran.history) if "done" in shown)
    assert any("Waiting for scripted" in shown for shown in ran.history[done:])
    assert "Waiting" not in ran.all
    assert ran.text == "Two of them."
    assert len(ran.outputs) == 3, "the call, the answer and the summary"
