"""Tests ``--above`` in a real kernel, with the notebook as it was saved."""

from __future__ import annotations

import json
from typing import Any

from tests.notebook.notebook import Notebook
from tests.server import Json

SCRIPT: list[dict[str, Any]] = [{"text": "Answer.", "loop": True}]


def cells(*sources: tuple[str, str]) -> list[Json]:
    empty: Json = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    return [{**empty, "id": id, "source": source} for id, source in sources]


async def messages_seen(notebook: Notebook, turn: str) -> int:
    """Return how many messages the model read in the first round, including its instructions."""
    async with notebook.server.client() as http:
        events = (await http.get(f"agent/v1/turns/{turn}/events")).text
    told = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]
    return int(next(event["data"]["messages"] for event in told if event["type"] == "context"))


async def test_the_cells_above_are_the_history_and_the_conversation_stays_what_it_was(fresh_notebook: Notebook) -> None:
    page = cells(("a", "%%agent\nfirst"), ("b", "n = 1"), ("c", "%%agent --above\nthird"), ("d", "%%agent\nbelow"))
    path = next(fresh_notebook.server.root.glob("test_the_cells_above*.ipynb"))
    path.write_text(json.dumps({"cells": page, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    await fresh_notebook.run("%%agent\nbelow", cell="d")
    await fresh_notebook.run("%%agent\nfirst", cell="a")
    ran = await fresh_notebook.run("%%agent --above\nthird", cell="c")
    assert ran.status == "ok", ran.error
    # instructions; first and its answer; the code cell; third
    assert await messages_seen(fresh_notebook, ran.turn["turn"]) == 5
    said = [message["content"] for message in await fresh_notebook.messages() if message["role"] == "user"]
    assert said == ["below", "first", "third"]
    alone = await fresh_notebook.run("%%agent -c none\nalone", cell="e")
    assert await messages_seen(fresh_notebook, alone.turn["turn"]) == 2
    unsaved = await fresh_notebook.run("%%agent --above\nnew", cell="new")
    assert "not saved yet" in unsaved.plain
    assert "There is no cell 'zzzz'" in (await fresh_notebook.run("%%agent -c zzzz\nx", cell="f")).error
    again = await fresh_notebook.run_all({"a": "%%agent\nfirst", "c": "%%agent --above\nthird"})
    assert "Stored" not in again["c"].plain, "what stands above may have changed"
