"""Tests ``%agent search`` in a real kernel, and the text of its results."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.search_command import OWN, SearchQuery
from tests.notebook.notebook import Notebook

SCRIPT: list[dict[str, Any]] = [{"text": "Hello.", "loop": True}]


def hit(text: str, title: str = "stones", id: str = "session-1") -> dict[str, Any]:
    session = {"id": id, "title": title, "updated": 1_700_000_000.0, "turns": 2}
    return {"session": session, "notebooks": ["a.ipynb"], "snippets": [{"role": "user", "text": text}]}


async def test_what_was_said_is_found_with_the_way_to_go_on(notebook: Notebook) -> None:
    session = (await notebook.run("%%agent\nwhat is <i>Labradorite</i>?")).turn["session"]
    ran = await notebook.run("%agent search labrador nothing")
    assert "user: what is <i>Labradorite</i>?" in ran.plain
    assert f"%agent use {session}" in ran.plain
    assert OWN in ran.plain
    (shown,) = ran.of("text/html")
    assert "what is &lt;i&gt;<mark>Labrador</mark>ite&lt;/i&gt;?" in shown
    found = json.loads((await notebook.run("%agent search --json LABRADORITE")).plain)
    assert [entry["session"]["id"] for entry in found] == [session]


async def test_a_notebook_searches_the_others_when_the_person_agrees(
    notebook: Notebook, fresh_notebook: Notebook
) -> None:
    other = (await fresh_notebook.run("%%agent\nmy charoite")).turn["session"]
    assert (await notebook.run("%agent search charoite")).plain == f"Nothing was found. {OWN}"
    running = asyncio.create_task(notebook.run("%agent search --all charoite"))
    await notebook.until_shown("Let this notebook search")
    [url] = re.findall(r"href='([^']+)'", notebook.shown[0])
    async with notebook.server.client() as http:
        await http.get(url)
        token = http.cookies.get("_xsrf") or ""
        done = await http.post(url, data={"decision": "confirmed", "_xsrf": token}, headers={"Referer": url})
    assert done.status_code == 200
    assert f"%agent use {other}" in (await running).plain
    assert f"%agent use {other}" in (await notebook.run("%agent search charoite")).plain
    assert (await notebook.run("%agent search --here charoite")).plain == "Nothing was found."


async def test_without_words_it_says_how(notebook: Notebook) -> None:
    assert "the words to search for are missing" in (await notebook.run("%agent search --all")).error


@pytest.mark.parametrize(
    ("line", "words", "flags"),
    [
        ('"a b" --here', ('"a', 'b"'), {"--here"}),
        ("--json it's 100% --verbose", ("it's", "100%", "--verbose"), {"--json"}),
    ],
)
def test_every_word_that_is_no_flag_is_looked_for(line: str, words: tuple[str, ...], flags: set[str]) -> None:
    search = SearchQuery.of(line)
    assert (search.words, set(search.flags)) == (words, flags)


def test_nothing_to_look_for_is_a_mistake() -> None:
    with pytest.raises(AgentError, match="search for are missing"):
        SearchQuery.of("  --here ")


def test_what_is_found_can_not_become_part_of_the_page() -> None:
    attack = "<script>alert(1)</script> x' onmouseover='y (z)*"
    answer = {"hits": [hit(attack, title=attack, id=attack)], "searched": "all"}
    shown = SearchQuery.of("<script> (z)* '").bundle(answer)["text/html"]
    assert "<script" not in shown
    assert "<mark>&lt;script&gt;</mark>alert" in shown
    assert "<mark>(z)*</mark>" in shown
    assert "' onmouseover" not in shown


def test_a_hit_in_plain_text_has_a_line_for_each_snippet() -> None:
    bundle = SearchQuery.of("stone").bundle({"hits": [hit("a stone", title="About\nstones")], "searched": "all"})
    first, second, third = bundle["text/plain"].splitlines()
    assert re.fullmatch(r"About stones · 2023-11-1\d \d\d:\d\d · 2 turns · a\.ipynb", first)
    assert (second, third) == ("    user: a stone", "    to continue it: %agent use session-1")
