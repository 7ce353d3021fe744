"""``%agent export``, ``import`` and ``clear outputs`` in a real kernel."""

from __future__ import annotations

import json
from typing import Any

from tests.notebook.notebook import Notebook, Ran

SCRIPT: list[dict[str, Any]] = [{"text": "Hello.", "loop": True}]


def error_of(ran: Ran) -> str:
    """Return the error message of a cell whose only output is its error."""
    (output,) = ran.outputs
    return str(output["evalue"])


async def test_a_conversation_goes_into_files_and_comes_back(notebook: Notebook) -> None:
    session = (await notebook.run("%%agent\nmy spectrolite")).turn["session"]
    assert "(agent-kernel)" in (await notebook.run("%agent export talk.json")).plain
    assert "(markdown)" in (await notebook.run("%agent export talk.md")).plain
    assert "(openai)" in (await notebook.run("%agent export plain.json --format openai")).plain
    folder = notebook.server.root
    assert "> my spectrolite" in (folder / "talk.md").read_text()
    assert json.loads((folder / "plain.json").read_text())["messages"][0]["content"] == "my spectrolite"
    unknown = error_of(await notebook.run("%agent export talk.html"))
    assert unknown == "No format has the suffix .html. Use .json, .jsonl, .md, .ipynb, or --format."
    assert not (folder / "talk.html").exists()
    assert "exists already" in error_of(await notebook.run("%agent export talk.json"))
    shown = (await notebook.run("%agent import talk.json --yes")).plain
    assert "my spectrolite" in shown
    assert "%agent use session-" in shown
    assert (await notebook.run("%agent status")).plain.count(session) == 1, "it goes on with its own"
    came = (await notebook.run("%agent import plain.json --yes --use")).plain
    assert "this notebook continues it" in came
    assert session not in (await notebook.run("%agent status")).plain


async def test_what_can_not_come_in_is_said_in_one_line_and_nothing_is_written(notebook: Notebook) -> None:
    (notebook.server.root / "bad.json").write_text('{"messages": [{"role": "root", "content": "x"}]}')
    before = (await notebook.run("%agent sessions --json")).plain
    assert "messages[0].role" in error_of(await notebook.run("%agent import bad.json --yes"))
    assert "cannot be read" in error_of(await notebook.run("%agent import nowhere.json --yes"))
    assert (await notebook.run("%agent sessions --json")).plain == before


async def test_without_cleared_cells_there_is_nothing_to_clear(notebook: Notebook) -> None:
    await notebook.run("%%agent\nhello")
    assert "Nothing was removed" in (await notebook.run("%agent clear outputs")).plain
    assert "%agent export" in (await notebook.run("%agent help")).plain
