"""Tests agent cells that run again in a real kernel: one by one, and by requests that are sent all at once."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.notebook.notebook import Notebook
from tests.server import Json

DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('drawn')"
SCRIPT: list[dict[str, Any]] = [
    {"when": "first words", "text": "The first time."},
    {"when": "first words", "text": "The second time."},
    {"when": "other words", "text": "Otherwise."},
    {"when": "stay as it is", "text": "It stays."},
    {"when": "draw a line", "calls": [{"name": "python", "arguments": {"code": DRAW}}]},
    {"when": "draw a line", "text": "There it is."},
    {"when": "make a list", "calls": [{"name": "python", "arguments": {"code": "made = sorted(source)"}}]},
    {"when": "make a list", "text": "Made."},
    {"when": "make a list", "calls": [{"name": "python", "arguments": {"code": "made = sorted(source)"}}]},
    {"when": "make a list", "text": "Made again."},
    {
        "when": "sum of the rain",
        "calls": [{"name": "python", "arguments": {"code": "total = rain.sum()\nprint(total)"}}],
    },
    {"when": "sum of the rain", "text": "It rains."},
    {"when": "sort them", "calls": [{"name": "python", "arguments": {"code": "made = sorted(source)"}}]},
    {"when": "sort them", "text": "Sorted."},
    {"when": "sort them", "calls": [{"name": "python", "arguments": {"code": "made = sorted(source)"}}]},
    {"when": "sort them", "text": "Sorted again."},
    {"text": "Anew.", "loop": True},
]


async def user_texts(notebook: Notebook) -> list[str]:
    return [
        message["content"]
        for message in await notebook.messages()
        if message["role"] == "user" and not message.get("hidden")
    ]


async def calls_of_the_model(notebook: Notebook) -> int:
    """Return the number of turns on all branches."""
    async with notebook.server.client() as http:
        binding: Json = (await http.get("agent/v1/binding", params={"kernel": notebook.kernel})).json()
    turns: int = binding["session"]["turns"]
    return turns


async def test_a_cell_run_again_alone_is_asked_again_in_its_place_and_says_which_version_it_is(
    notebook: Notebook,
) -> None:
    first = await notebook.run("%%agent\nfirst words", cell="a")
    assert "version" not in first.plain
    again = await notebook.run("%%agent\nfirst words", cell="a")
    assert again.text == "The second time."
    assert "version 2 of 2 · branch first-words · %agent versions shows the others" in again.plain
    assert (again.turn["version"], again.turn["versions"], again.turn["replaces"]) == (2, 2, first.turn["turn"])
    edited = await notebook.run("%%agent\nother words", cell="a")
    assert "version 3 of 3" in edited.plain
    assert await user_texts(notebook) == ["other words"]


async def test_a_cell_further_up_says_where_the_later_turns_are(notebook: Notebook) -> None:
    for cell in "abc":
        await notebook.run(f"%%agent\nstory {cell}", cell=cell)
    ran = await notebook.run("%%agent\nstory a", cell="a")
    assert "Asked again from here: 2 later turns stay on the branch main. To return: %agent switch main" in ran.plain
    assert await user_texts(notebook) == ["story a"]
    await notebook.run("%%agent\nstory b", cell="b")
    assert await user_texts(notebook) == ["story a", "story b"]


async def test_under_run_all_an_unchanged_cell_shows_what_it_said_and_no_model_is_asked(notebook: Notebook) -> None:
    cells = {
        "one": "%%agent\nstay as it is",
        "two": "1 + 1",
        "three": "%%agent --in sandbox\ndraw a line",
    }
    before = await notebook.run_all(cells)
    assert [ran.status for ran in before.values()] == ["ok"] * 3
    assert "Stored" not in before["one"].plain + before["three"].plain
    asked = await calls_of_the_model(notebook)
    after = await notebook.run_all(cells)
    assert after["one"].text == before["one"].text == "It stays."
    assert after["one"].plain.startswith("Stored answer of 20")
    assert after["one"].turn["turn"] == before["one"].turn["turn"]
    assert after["one"].turn["stored"] > 0
    assert after["three"].of("image/png") == before["three"].of("image/png") != []
    assert after["three"].text == "There it is."
    assert await calls_of_the_model(notebook) == asked
    fresh = await notebook.run_all({**cells, "one": "%%agent --fresh\nstay as it is"})
    assert fresh["one"].text == "Anew."
    assert "Stored" not in fresh["three"].plain, "what came before it is not the same any more"


async def test_cells_run_one_after_another_by_hand_are_asked_again(notebook: Notebook) -> None:
    cells = {"one": "%%agent\nwhat is one", "two": "%%agent\nwhat is two"}
    await notebook.run_all(cells)
    by_hand = await notebook.run_all(cells, apart_s=0.1)
    assert "Stored" not in by_hand["one"].plain + by_hand["two"].plain
    assert "version 2 of 2" in by_hand["one"].plain


async def test_a_changed_variable_that_the_model_is_told_of_makes_a_cell_another_one(notebook: Notebook) -> None:
    cells = {"one": "count = 3", "two": "%%agent\nis {count} much?"}
    await notebook.run_all(cells)
    assert (await notebook.run_all(cells))["two"].plain.startswith("Stored")
    changed = await notebook.run_all({**cells, "one": "count = 4"})
    assert "version 2 of 2" in changed["two"].plain


async def test_a_turn_whose_variables_are_gone_is_asked_again(notebook: Notebook) -> None:
    await notebook.run("source = [2, 1]")
    cells = {"x": "0", "two": "%%agent --in live\nmake a list"}
    assert (await notebook.run_all(cells))["two"].text == "Made."
    assert (await notebook.run_all(cells))["two"].plain.startswith("Stored"), "made is still what it was"
    await notebook.run("source = [3, 1]")
    assert (await notebook.run_all(cells))["two"].text == "Made again."


async def test_a_first_cell_that_loads_equal_data_again_leaves_the_stored_answers(notebook: Notebook) -> None:
    load = "import pandas as pd\nrain = pd.DataFrame({'mm': [1.5, None], 'month': ['a', 'b']}).mm"
    cells = {"load": load, "ask": "%%agent --in draft\nthe sum of the rain", "own": "total = 5"}
    assert (await notebook.run_all(cells))["ask"].text == "It rains."
    again = (await notebook.run_all(cells))["ask"]
    assert again.plain.startswith("Stored"), again.plain
    other = (await notebook.run_all({**cells, "load": load.replace("1.5", "2.5")}))["ask"]
    assert "Stored" not in other.plain
    assert "Asked again: " in other.plain


async def test_why_a_cell_is_asked_again_is_said(notebook: Notebook) -> None:
    await notebook.run("source = [2, 1]")
    cells = {"one": "%%agent\nwhat is this", "two": "%%agent --in live\nsort them"}
    first = await notebook.run_all(cells)
    assert "Asked again" not in first["one"].plain + first["two"].plain
    await notebook.run("source = [3, 1]")
    moved = await notebook.run_all(cells)
    assert moved["one"].plain.startswith("Stored")
    assert "Asked again: source is not what the code of its answer used." in moved["two"].plain
    edited = await notebook.run_all({**cells, "one": "%%agent\nwhat is that"})
    assert "Asked again: the prompt changed." in edited["one"].plain
    assert "Asked again: the earlier part of the conversation changed." in edited["two"].plain
    cooler = await notebook.run_all({"one": "%%agent --temperature 0.5\nwhat is that", "x": "1"})
    assert "Asked again: its options changed." in cooler["one"].plain


async def test_messages_of_the_panel_stay_in_the_conversation_that_is_shown(notebook: Notebook) -> None:
    async def shown() -> list[str]:
        async with notebook.server.client() as http:
            binding: Json = (await http.get("agent/v1/binding", params={"kernel": notebook.kernel})).json()
            listed = await http.get(f"agent/v1/sessions/{binding['session']['id']}/turns")
        return [turn["prompt"] for turn in listed.json()["turns"]]

    await notebook.run("%%agent\nask from a cell", cell="a")
    async with notebook.server.client() as http:
        body = {"prompt": "ask from the panel", "kernel": notebook.kernel}
        turn = (await http.post("agent/v1/turns", json=body)).json()["turn"]
        while (await http.get(f"agent/v1/turns/{turn}")).json()["state"] == "open":
            await asyncio.sleep(0.05)
    await notebook.run("%%agent\nask from another cell", cell="b")
    ran = await notebook.run("%%agent\nask from a cell", cell="a")
    assert "Asked again from here: 1 later turn stays" in ran.plain
    assert await shown() == ["ask from a cell", "ask from the panel"]
    await notebook.run("%%agent\nask from another cell", cell="b")
    await notebook.run("%%agent\nask from a cell", cell="a")
    assert await shown() == ["ask from a cell", "ask from the panel"]


async def test_stored_answers_are_shown_whatever_the_order_in_which_the_cells_first_ran(notebook: Notebook) -> None:
    cells = {name: f"%%agent\nanswer {name} whenever" for name in ("first", "second", "third")}
    for name in ("third", "first", "second"):
        await notebook.run(cells[name], cell=name)
    for order in (("first", "second", "third"), ("second", "third", "first")):
        ran = await notebook.run_all({name: cells[name] for name in order})
        assert [ran[name].plain.startswith("Stored") for name in order] == [True] * 3
