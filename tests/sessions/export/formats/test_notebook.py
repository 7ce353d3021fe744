from __future__ import annotations

import nbformat
from nbclient import NotebookClient

from agent_kernel.core.messages import Media, ToolCall, assistant, tool_result, user
from agent_kernel.core.session import Turn
from agent_kernel.sessions.export.import_export import export_session
from agent_kernel.sessions.store.memory import MemoryStore
from tests.sessions.talk import KEY


async def test_the_code_of_a_session_runs_again_as_a_notebook() -> None:
    store = MemoryStore()
    first, wrong, other = (
        ToolCall("call-0", "python", {"code": "x = 20"}),
        ToolCall("call-0", "python", {"code": "1 / 0"}),
        ToolCall("call-1", "web_search", {"query": "x"}),
    )
    last = ToolCall("call-0", "python", {"code": "print(x + 1)"})
    said = [
        user("count <b>"),
        assistant("", [first, other]),
        tool_result(first, "", "success"),
        tool_result(other, "found", "success"),
        assistant("", [wrong]),
        tool_result(wrong, "ZeroDivisionError", "error"),
        assistant("", [last]),
        tool_result(last, "21\n", "success"),
        assistant("21"),
    ]
    await store.add_turn(Turn("t1", KEY), said)
    written = await export_session(store, KEY, "notebook")
    await store.aclose()
    assert (written.suffix, written.left_out) == (".ipynb", {"calls of other tools": 1})
    notebook = nbformat.reads(written.document.decode(), as_version=4)
    assert [cell.cell_type for cell in notebook.cells] == ["markdown", "code", "code", "code"]
    assert notebook.cells[3].outputs[0].text == "21\n"
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    assert notebook.cells[3].outputs[0].text == "21\n"
    assert notebook.cells[2].outputs[0].ename == "ZeroDivisionError"


async def test_pictures_of_the_conversation_are_counted_and_the_notebook_says_that_it_lacks_them() -> None:
    store = MemoryStore()
    picture = Media.of("image/png", b"\x89PNG")
    await store.add_turn(Turn("t1", KEY), [user("what is this", [picture]), assistant("a dot")])
    written = await export_session(store, KEY, "notebook")
    await store.aclose()
    assert written.left_out == {"media": 1}
    notebook = nbformat.reads(written.document.decode(), as_version=4)
    assert [cell.source for cell in notebook.cells] == [
        "what is this",
        "This notebook does not contain the pictures and videos that were attached to messages (1).",
    ]
