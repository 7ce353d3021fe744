"""Tests ``%agent`` on branches, versions, names, notes and private conversations, in a real kernel."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.notebook.notebook import Notebook

SCRIPT: list[dict[str, Any]] = [
    {"when": "tell me one", "text": "One, the first time."},
    {"when": "tell me one", "text": "One, the second time."},
    {"when": "run a line", "calls": [{"name": "python", "arguments": {"code": "kept_after_undo = 1"}}]},
    {"when": "run a line", "text": "It ran."},
    {"text": "Hello.", "loop": True},
]


async def user_texts(notebook: Notebook) -> list[str]:
    return [message["content"] for message in await notebook.messages() if message["role"] == "user"]


async def test_versions_of_the_last_cell_are_listed_shown_and_gone_back_to(notebook: Notebook) -> None:
    await notebook.run("%%agent\ntell me one", cell="a")
    await notebook.run("%%agent\ntell me one", cell="a")
    rows = (await notebook.run("%agent versions")).plain.splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [["1", "main"], ["2", "tell-me-one"]]
    assert rows[2].endswith("current")
    earlier = await notebook.run("%agent versions 1")
    assert earlier.text == "One, the first time."
    assert earlier.plain.startswith("Stored answer of 20")
    assert "version 1 of 2 · branch main" in earlier.plain
    assert (
        "there is no version 3; the answers to this cell have the numbers 1 to 2"
        in (await notebook.run("%agent versions 3")).error
    )
    assert "continues the branch main, which has 1 turn." in (await notebook.run("%agent switch main")).plain
    listed = json.loads((await notebook.run("%agent branches --json")).plain)
    assert [(branch["name"], branch["current"]) for branch in listed] == [("main", True), ("tell-me-one", False)]
    assert "There is no branch 'nowhere'" in (await notebook.run("%agent switch nowhere")).error


async def test_a_branch_is_deleted_only_when_that_is_confirmed(notebook: Notebook) -> None:
    await notebook.run("%%agent\nhello", cell="a")
    await notebook.run("%%agent\nhello again", cell="a")
    assert "not confirmed" in (await notebook.run("%agent drop main")).error
    assert "not confirmed" in (await notebook.run("%agent drop main", ["n"])).error
    ran = await notebook.run("%agent drop main", ["y"])
    assert ran.asked == ["Delete the branch main permanently? [y]es / [n]o: "]
    assert len(json.loads((await notebook.run("%agent branches --json")).plain)) == 1


async def test_undo_takes_the_last_turn_back_and_says_what_it_can_not(notebook: Notebook) -> None:
    await notebook.run("%%agent\nhello")
    await notebook.run("%%agent --in live\nrun a line")
    ran = await notebook.run("%agent undo")
    assert "Removed: “run a line” and its answer" in ran.plain
    assert "Effects of its calls (python) remain" in ran.plain
    assert (await notebook.run("kept_after_undo")).plain == "1"
    assert await user_texts(notebook) == ["hello"]


async def test_a_fork_has_the_first_turns_and_the_notebook_goes_on_with_it_on_request(notebook: Notebook) -> None:
    for prompt in ("one", "two", "three"):
        await notebook.run(f"%%agent\n{prompt}")
    aside = await notebook.run("%agent fork 1")
    assert "has 1 turn of this one; %agent use session-" in aside.plain
    await notebook.run("%agent fork 2 --into mine-alone --use")
    assert await user_texts(notebook) == ["one", "two"]
    assert (await notebook.run("%%agent\nfour")).turn["session"] == "mine-alone"


async def test_a_session_has_a_title_tags_and_notes_and_is_found_by_them(notebook: Notebook) -> None:
    await notebook.run("%%agent\nhello")
    await notebook.run("%agent title <b>Rain & “snow”</b>")
    await notebook.run("%agent tags weather, north")
    await notebook.run("%agent note station=7 'place=Ålesund harbour'")
    await notebook.run("%agent note checked=true")
    assert json.loads((await notebook.run("%agent note --json")).plain) == {
        "station": 7,
        "place": "Ålesund harbour",
        "checked": True,
    }
    await notebook.run("%agent note station=")
    assert "station" not in (await notebook.run("%agent note")).plain
    for words in ("rain", "WEATHER"):
        [found] = json.loads((await notebook.run(f"%agent sessions {words} --json")).plain)
        assert (found["title"], found["tags"], found["bound"]) == ("<b>Rain & “snow”</b>", ["weather", "north"], True)
    assert "<b>Rain" not in "".join((await notebook.run("%agent sessions rain")).of("text/html"))
    assert "There is no session with 'hail'" in (await notebook.run("%agent sessions hail")).plain
    assert "There is no tag yet." in (await notebook.run("%agent tags --none")).plain


async def test_a_private_conversation_is_marked_and_leaves_nothing_behind(notebook: Notebook) -> None:
    before = (await notebook.run("%%agent\nhello")).turn["session"]
    assert "kept in memory only" in (await notebook.run("%agent private")).plain
    ran = await notebook.run("%%agent\nwhat nobody shall know")
    assert "private: kept in memory only" in ran.plain
    assert await user_texts(notebook) == ["what nobody shall know"]
    assert "in memory only: private" in (await notebook.run("%agent status")).plain
    assert (await notebook.run("%agent new")).status == "ok"
    assert "private" in (await notebook.run("%%agent\nwhat nobody shall know either")).plain, "a new one is private too"
    listed = json.loads((await notebook.run("%agent sessions --json")).plain)
    assert not [session for session in listed if session["private"]]
    async with notebook.server.client() as http:  # a save writes a sidecar, if there is something to write
        model = (await http.get("api/contents/shared.ipynb")).json()
        await http.put("api/contents/shared.ipynb", json=model)
    assert "is deleted" in (await notebook.run("%agent private off")).plain
    assert (await notebook.run("%%agent\nhello")).turn["session"] == before
    assert "not private" in (await notebook.run("%agent private off")).error
    kept = [file for file in notebook.server.directory.rglob("*") if file.is_file() and "ipython" not in file.parts]
    assert not [file for file in kept if b"what nobody shall know" in file.read_bytes()]


async def test_a_private_conversation_ends_with_its_kernel(fresh_notebook: Notebook) -> None:
    await fresh_notebook.run("%agent private")
    session = (await fresh_notebook.run("%%agent --in sandbox\nhello")).turn["session"]
    async with fresh_notebook.server.client() as http:
        path = f"agent/v1/sessions/{session}"
        assert (await http.get(path)).json()["private"]
        await fresh_notebook.restart()
        assert (await http.get(path)).status_code == 200, "a restart is no end"
        await fresh_notebook.shut_down()
        for _ in range(1_200):
            if (gone := (await http.get(path)).status_code) == 404:
                break
            await asyncio.sleep(0.05)
        assert gone == 404


async def test_letting_go_of_a_session_leaves_it_where_it_is(notebook: Notebook) -> None:
    before = (await notebook.run("%%agent\nhello")).turn["session"]
    assert f"is detached from {before} and starts a new one" in (await notebook.run("%agent unbind")).plain
    assert "has no session yet" in (await notebook.run("%agent branches")).error
    assert (await notebook.run("%%agent\nhello")).turn["session"] != before
    await notebook.run(f"%agent use {before}")
    assert await user_texts(notebook) == ["hello"]


async def test_clear_and_delete_ask_first(notebook: Notebook) -> None:
    session = (await notebook.run("%%agent\nhello")).turn["session"]
    assert "not confirmed" in (await notebook.run("%agent clear")).error
    assert "is empty" in (await notebook.run("%agent clear --yes")).plain
    assert await user_texts(notebook) == []
    [asked] = (await notebook.run(f"%agent delete {session}", ["y"])).asked
    assert asked.endswith(" with 0 turns permanently? [y]es / [n]o: ")
    assert "has no session yet" in (await notebook.run("%agent undo")).error


async def test_names_of_branches_are_completed(notebook: Notebook) -> None:
    await notebook.run(
        "from agent_kernel.notebook.magic import completion\ncompletion.ASK_S = 10.0\ncompletion.KEEP_S = 0.0"
    )
    await notebook.run("%%agent\nhello", cell="a")
    await notebook.run("%%agent\nhello", cell="a")
    assert await notebook.complete("%agent switch ") == ["hello", "main"]
    assert await notebook.complete("%agent switch h") == ["hello"]
