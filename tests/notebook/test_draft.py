"""Drafts as a person has them: a real kernel, a real server, the scripted engine."""

from __future__ import annotations

from typing import Any

from tests.notebook.notebook import Notebook

KEEP = "Keep monthly in your kernel? It runs the same code for real. [y]es / [n]o: "


def python(code: str, when: str, **more: Any) -> dict[str, Any]:
    return {"when": when, "calls": [{"name": "python", "arguments": {"code": code}}], **more}


SCRIPT = [
    python("df.groupby('month').rain.mean().plot()", "plot df by month"),
    {"when": "plot df by month", "text": "Plotted."},
    python("monthly = df.groupby('month').rain.mean().to_frame()\nmonthly", "save the monthly means as monthly"),
    {"when": "save the monthly means as monthly", "text": "Saved."},
    {"text": "ok", "loop": True},
]
TRAITS = {"python_in": ""}
DF = "import pandas as pd\ndf = pd.DataFrame({'month': ['a', 'b', 'a'], 'rain': [1, 2, 3]})"


async def test_plot_then_save_then_use_with_one_question_and_no_flag(notebook: Notebook) -> None:
    await notebook.run(DF)
    plotted = await notebook.run("%%agent\nplot df by month", [])
    assert plotted.asked == []
    assert plotted.turn["where"] == "draft"
    assert len(plotted.of("image/png")) == 1
    saved = await notebook.run("%%agent\nsave the monthly means as monthly", ["y"])
    assert saved.asked == [KEEP]
    used = await notebook.run("monthly.head()")
    assert "a       2.0" in used.plain
