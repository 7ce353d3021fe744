"""Tests a session as a Markdown page: it is readable, and hostile text stays inside its block."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest
from markdown_it import MarkdownIt

from agent_kernel.core.events import TurnState
from agent_kernel.core.files import File
from agent_kernel.core.messages import Media, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import Owner, Turn
from agent_kernel.core.wire.turn_end import STOPPED_BY_USER
from agent_kernel.sessions.export.formats.markdown import prose
from agent_kernel.sessions.export.import_export import export_session
from agent_kernel.sessions.store.memory import MemoryStore
from tests.sessions.talk import KEY

PNG = Media.of("image/png", b"\x89PNG small")
DIGEST = sha256(b"x").hexdigest()


def render_prose(text: str) -> str:
    return "\n".join(prose(text))


HOSTILE = [
    "</details><script>alert(1)</script>",
    "`<script>` and \\`<script>\\`",
    "`a\nb` <script> `c",
    "1. ```\n   code\n   ```\n<script>",
    "- x\n\n      ```\n      y\n      ```\n\n<script>",
    "> ```\n<script>",
    "~~~\n```\n~~~\n<script>",
    "```` ```\n<script>",
    "```a`b\n<script>",
    "<!-- <script> -->",
    "    ```\n<script>",
    "[x](javascript:alert(1)) [y](<javascript:alert(1)>)\n\n[z]: javascript:alert(1)",
    "```\n</pre><script>\n``` x\n<script>\n```\n<script>",
    "\t```\n<script>\n\t```\n<script>",
    "***\n* * ```\n<script>",
    "+ \t~~~\n  <script>\n  ~~~\n<script>",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_html_of_a_message_is_html_on_the_page(text: str) -> None:
    page = MarkdownIt("commonmark").render(render_prose(text) + "\n\nafter")
    assert not re.search(r"<script|</details|<!--|href=.javascript", page, re.IGNORECASE), page


@pytest.mark.parametrize("text", ["```python\nx", "~~~~\n```\ny", "```\na\n``\n"])
def test_a_fence_that_a_message_leaves_open_ends_with_it(text: str) -> None:
    page = MarkdownIt("commonmark").render(render_prose(text) + "\n\n### after")
    assert "<h3>after</h3>" in page


def test_code_in_a_fence_stays_as_it_is() -> None:
    code = "```html\n<div>`x`</div>\n```"
    assert render_prose(code) == code


async def test_a_page_names_branches_and_folds_reasoning_and_tools() -> None:
    store = MemoryStore()
    call = ToolCall("c", "python", {"code": "print('```')\n1 < 2"})
    answered = [assistant("", [call], "hm <b>"), tool_result(call, "```\n2", "error", [PNG]), assistant("**two**")]
    await store.create(KEY, "A <b> & *c*")
    await store.add_turn(Turn("t1", KEY, model="m"), [user("add\n# not a heading of the page"), *answered])
    await store.add_turn(Turn("t2", KEY), [user("more")])
    await store.branch(KEY, before="t2", name="other `way`")
    await store.add_turn(Turn("t3", KEY), [user("else")])
    await store.switch(KEY, "main")
    page = await export_session(store, KEY, "markdown")
    text = page.document.decode()
    assert (page.media_type, page.suffix, page.files) == ("text/markdown", ".md", {})
    assert text.startswith("# A &lt;b> &amp; \\*c\\*\n")
    assert "> # not a heading of the page" in text
    assert "````python\nprint('```')\n1 < 2\n````" in text
    assert "<details><summary>Reasoning</summary>\n\n```\nhm <b>\n```" in text
    assert "<summary>Run Python: result (failed)</summary>\n\n````\n```\n2\n````" in text
    assert text.index("> more") < text.index("## Branch `` other `way` `` (from `main`, item 4)") < text.index("> else")
    assert text.count("**two**") == 1, "what branches share is told once"
    assert "data:image/png;base64," in text
    alone = (await export_session(store, KEY, "markdown", branch="other `way`")).document.decode()
    assert "> else" in alone
    assert "> more" not in alone
    beside = await export_session(store, KEY, "markdown-files")
    assert beside.files == {f"images/{PNG.hash[:16]}.png": PNG.data}
    assert f"(images/{PNG.hash[:16]}.png)".encode() in beside.document
    await store.aclose()


async def test_a_page_has_the_titles_that_a_reader_knows_and_no_notes_for_the_model() -> None:
    store = MemoryStore()
    drawn, read, own = (
        ToolCall("c1", "python", {"code": "df.plot()"}),
        ToolCall("c2", "read_file", {"path": "data/sales.csv"}),
        ToolCall("c3", "lookup", {"word": "x"}),
    )
    note = "[1 figure(s) shown]"
    await store.create(KEY)
    await store.add_turn(
        Turn("t1", KEY),
        [
            user("draw"),
            assistant("", [drawn, read, own]),
            tool_result(drawn, f"a line\n{note}\nErr: x", "success", [PNG]),
            tool_result(read, note, "success"),
            tool_result(own, "no", "denied"),
        ],
    )
    text = (await export_session(store, KEY, "markdown")).document.decode()
    assert re.findall("<summary>(.*)</summary>", text) == [
        "Run Python",
        "Read file data/sales.csv",
        "lookup",
        "Run Python: result",
        "Read file: result",
        "lookup: result (denied)",
    ]
    assert "```\na line\nErr: x\n```" in text
    assert text.count(note) == 1, "a tool that shows no image printed this text itself"
    await store.aclose()


async def test_a_turn_names_the_files_that_were_attached_to_it() -> None:
    store = MemoryStore()
    await store.create(KEY)
    await store.add_turn(Turn("t1", KEY), [user("first")])
    sent = File(
        "file-1", "sales `1`.csv", "text/csv", 1, 0.0, purpose="user_data", turn=1, hash=sha256(b"x").hexdigest()
    )
    made = File("file-2", "made.csv", "text/csv", 1, 0.0, turn=1, hash=DIGEST)
    await store.add_files(KEY, [(sent, b"x"), (made, b"x")])
    await store.add_turn(Turn("t2", KEY), [user("second"), assistant("yes"), user("third")])
    text = (await export_session(store, KEY, "markdown")).document.decode()
    attached = "> second\n\nAttached: `` sales `1`.csv ``\n"
    assert attached in text
    assert text.count("Attached:") == 1
    await store.aclose()


async def test_a_page_says_how_a_turn_ended_that_was_not_answered() -> None:
    store, owner = MemoryStore(), Owner.here()
    await store.create(KEY)
    ends: list[tuple[TurnState, str]] = [("cancelled", STOPPED_BY_USER), ("cancelled", "the server was stopped")]
    for number, (state, reason) in enumerate([*ends, ("failed", "The model <b> broke.")]):
        turn = await store.open_turn(Turn(f"t{number}", KEY, model="m"), owner)
        await store.close_turn(turn, owner, state, reason)
    page = (await export_session(store, KEY, "markdown")).document.decode()
    assert [line.rpartition("`m` · ")[2] for line in page.splitlines() if "`m` · " in line] == [
        "You stopped this turn.",
        "The turn was cancelled: the server was stopped.",
        "The turn failed: The model &lt;b> broke.",
    ]
    await store.aclose()


async def test_a_branch_that_leaves_in_the_middle_of_a_turn_hides_nothing_of_it() -> None:
    store, owner = MemoryStore(), Owner.here()
    await store.add_turn(Turn("t1", KEY), [user("one"), assistant("first half"), assistant("second half")])
    edit = await store.open_turn(Turn("t2", KEY), owner)
    await store.append_at(edit, owner, [user("edited")], 3, behind=2)
    await store.close_turn(edit, owner, "committed")
    page = (await export_session(store, KEY, "markdown")).document.decode()
    assert [page.count(text) for text in ("one", "first half", "second half", "edited")] == [1, 1, 1, 1]
    assert page.index("edited") < page.index("### Turn 1, continued") < page.index("second half")
    await store.aclose()
