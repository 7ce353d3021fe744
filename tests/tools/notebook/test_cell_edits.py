"""Tests changes of the open notebook: the question to the user, the message to the page, and the result for
the model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_kernel.core.errors import AgentKernelError, Conflict, InvalidRequest, NotFound
from agent_kernel.core.events import ApprovalRequired, CallFinished, EventBody
from agent_kernel.core.messages import Media, Message, ToolCall
from agent_kernel.core.protocols import CallPreparer, Tool, ToolContext, ToolOutput
from agent_kernel.core.turn_request import Note, TurnRequest
from agent_kernel.permissions import Answer, Approvals, Gate
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from agent_kernel.tools.base.notebook_access import SavedNotebook
from agent_kernel.tools.base.tool_source import ToolSourceContext
from agent_kernel.tools.notebook.cell_edits import EditContext, edit_tools
from agent_kernel.tools.notebook.cell_map import NotebookCell
from agent_kernel.tools.notebook.current_notebook import LIVE_DOCUMENT, MAX_CELLS, NotebookView, ReadCellsMemory
from agent_kernel.tools.notebook.notebook_tools import NotebookTools
from agent_kernel.turn.tool_executor import RoundPosition, Toolbox
from tests.tools.asking import context
from tests.turns import KEY

EDITS = frozenset({"insert_cell", "edit_cell", "delete_cell", "move_cell", "run_cells"})
SERVED = EDITS | {LIVE_DOCUMENT}


@dataclass
class Page:
    """A page with three open cells, one with an unsaved edit; it does what it is told."""

    sources: dict[str, str] = field(
        default_factory=lambda: {"aaaa1111": "x = 1", "aaaa2222": "y = 2\ny", "bbbb3333": "# words"}
    )
    writable: bool = True
    refuses: str = ""
    asked: list[ToolCall] = field(default_factory=list)

    async def offer(self, context: ToolContext) -> ToolOutput:
        if context.call.name == LIVE_DOCUMENT:
            return ToolOutput("", details=self.document())
        self.asked.append(context.call)
        if self.refuses:
            return ToolOutput(self.refuses, "error", details={"more": "of it"})
        given = context.call.arguments
        if context.call.name == "run_cells":
            ran = [
                self.cell(
                    cell["cell"],
                    index=list(self.sources).index(cell["cell"]),
                    outputs=[{"output_type": "stream", "text": "done"}],
                )
                for cell in given["cells"]
            ]
            return ToolOutput("", media=(Media.of("image/png", b"png"),), details={"cells": ran})
        cell = given.get("cell", "new44444")
        if "after" in given:
            self.sources[cell] = given["after"]
        told = {"cell": cell, "index": 1, "notebook": "rain.ipynb"}
        return ToolOutput("", details=told | ({"kept": {"source": given["before"]}} if "from" in given else {}))

    def document(self) -> dict[str, Any]:
        cells = [self.cell(id) for id in self.sources]
        return {"path": "rain.ipynb", "writable": self.writable, "active": "aaaa2222", "selected": [], "cells": cells}

    def cell(self, id: str, **more: Any) -> dict[str, Any]:
        return {
            "id": id,
            "cell_type": "markdown" if id.startswith("bbbb") else "code",
            "source": self.sources[id],
            **more,
        }


def desk(page: Page, own: str = "") -> tuple[dict[str, Tool], ReadCellsMemory]:
    known = ReadCellsMemory()
    tools = edit_tools(EditContext(NotebookView(None, page), page, known, own=own), SERVED)
    return {tool.spec.name: tool for tool in tools}, known


async def prepare_call(tool: Tool, **arguments: Any) -> dict[str, Any]:
    assert isinstance(tool, CallPreparer)
    asked = context(tool.spec.name, arguments)
    return dict((await tool.prepare(asked.call, asked)).arguments)


async def run_call(tool: Tool, **arguments: Any) -> ToolOutput:
    """Prepare the call and run it as allowed. Return its result."""
    ready = await prepare_call(tool, **arguments)
    return await tool.call(ready, context(tool.spec.name, ready))


@pytest.mark.parametrize("handle", ["aaaa2222", "aaaa2", "1"])
async def test_a_cell_is_named_by_its_id_the_beginning_of_it_or_its_number(handle: str) -> None:
    tools, _ = desk(Page())
    ready = await prepare_call(tools["edit_cell"], cell=handle, find="y = 2", replace="y = 3")
    assert (ready["cell"], ready["before"], ready["after"]) == ("aaaa2222", "y = 2\ny", "y = 3\ny")
    assert ready["diff"] == "cell 2 (aaaa2222)\n@@ -1,2 +1,2 @@\n-y = 2\n+y = 3\n y"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"cell": "aaaa", "find": "x", "replace": "z"}, "begins more than one id: aaaa1111, aaaa2222"),
        ({"cell": "zzzz", "find": "x", "replace": "z"}, "There is no cell 'zzzz'"),
        ({"cell": "aaa", "find": "x", "replace": "z"}, "There is no cell 'aaa'"),
        ({"cell": "aaaa2222", "find": "y", "replace": "z"}, "is 2 times in cell 1"),
        (
            {"cell": "aaaa2222", "find": "q", "replace": "z"},
            "is not in cell 1 (aaaa2222). Its present text is:\ny = 2\ny",
        ),
        ({"cell": "aaaa2222", "find": "", "replace": "z"}, "is not in cell 1"),
        ({"cell": "aaaa2222", "find": "y = 2", "replace": "y = 2"}, "already has this text"),
        ({"cell": "aaaa2222", "find": "y = 2"}, "Give either 'source', or 'find' and 'replace'"),
        ({"cell": "aaaa2222"}, "Give either"),
        ({"cell": "aaaa2222", "find": "y", "source": "y"}, "Give either"),
        ({"cell": "aaaa2222", "find": "y = 2", "replace": "y" * 200_001}, "at most 200,000 characters"),
        ({"cell": "bbbb3333", "find": "words", "replace": "z"}, "contains the prompt of this turn"),
    ],
)
async def test_an_edit_that_can_not_be_is_refused_with_what_to_do(arguments: dict[str, Any], reason: str) -> None:
    page = Page()
    tools, _ = desk(page, own="bbbb3333")
    with pytest.raises(InvalidRequest) as refused:
        await prepare_call(tools["edit_cell"], **arguments)
    assert reason in str(refused.value)
    assert not page.asked


async def test_nothing_is_replaced_or_deleted_that_the_model_has_not_read_as_it_is() -> None:
    page = Page()
    tools, _ = desk(page)
    for name, arguments in (("edit_cell", {"source": "y = 9"}), ("delete_cell", {})):
        cell = "aaaa2222" if name == "edit_cell" else "aaaa1111"
        with pytest.raises(Conflict, match="was not read by you yet, so nothing was done"):
            await prepare_call(tools[name], cell=cell, **arguments)
        page.sources[cell] += " # typed meanwhile"
        with pytest.raises(Conflict, match="has changed since you read it"):
            await prepare_call(tools[name], cell=cell, **arguments)
        ready = await prepare_call(tools[name], cell=cell, **arguments)
        assert ready["before"] == page.sources[cell], "the refusal has told what it says"


async def test_a_long_cell_has_to_be_read_whole() -> None:
    tools, _ = desk(Page({"long": "x" * 5_000}))
    for _ in range(2):
        with pytest.raises(Conflict, match="Read it first"):
            await prepare_call(tools["edit_cell"], cell="long", source="short")


async def test_the_model_knows_what_it_wrote() -> None:
    tools, _ = desk(Page())
    inserted = await run_call(tools["insert_cell"], source="z = 3")
    assert inserted.text == "Inserted: it is cell 1 (new44444) now. It has not run."
    edited = await run_call(tools["edit_cell"], cell="new44444", source="z = 4")
    assert edited.text.startswith("Edited: cell 1 (new44444)")
    assert edited.details["change"] == {
        "do": "edit",
        "cell": "new44444",
        "index": 1,
        "turn": "turn-1",
        "notebook": "rain.ipynb",
        "type": "code",
        "before": "z = 3",
        "after": "z = 4",
    }


async def test_a_cell_without_a_place_comes_below_the_last_one_then_below_the_person() -> None:
    page = Page()
    tools, _ = desk(page)
    assert (await prepare_call(tools["insert_cell"], source="z"))["below"] == "aaaa2222"
    await run_call(tools["insert_cell"], source="z", below="start")
    assert page.asked[-1].arguments["below"] == ""
    assert (await prepare_call(tools["insert_cell"], source="z"))["below"] == "new44444"
    own, _ = desk(Page(), own="aaaa1111")
    assert (await prepare_call(own["insert_cell"], source="z"))["below"] == "aaaa1111"
    empty, _ = desk(Page({}))
    assert (await prepare_call(empty["insert_cell"], source="z"))["below"] == ""


async def test_a_move_says_from_where_to_where_and_one_to_its_own_place_is_none() -> None:
    tools, _ = desk(Page())
    ready = await prepare_call(tools["move_cell"], cell="0", below="bbbb3333")
    assert (ready["below"], ready["from"]) == ("bbbb3333", "")
    assert ready["diff"] == "cell 1 (aaaa1111) moves below cell 3 (bbbb3333)"
    for below in ("0", "1"):
        with pytest.raises(InvalidRequest, match="is already at this position"):
            await prepare_call(tools["move_cell"], cell="1", below=below)


async def test_a_deleted_cell_is_kept_with_its_call() -> None:
    page = Page()
    tools, known = desk(page)
    known.read(KEY, list(page.sources.items()))
    gone = await run_call(tools["delete_cell"], cell="aaaa2222")
    assert gone.details["change"]["kept"] == {"source": "y = 2\ny"}
    assert gone.details["change"]["from"] == "aaaa1111"


async def test_what_the_page_refuses_is_told_as_it_is_and_changes_nothing_that_is_known() -> None:
    page = Page(refuses="Cell 1 (aaaa2222) was changed meanwhile")
    tools, known = desk(page)
    output = await run_call(tools["edit_cell"], cell="aaaa2222", find="y = 2", replace="y = 3")
    assert (output.status, output.text, output.details) == ("error", page.refuses, {})
    assert not known._sessions


async def test_a_read_only_notebook_and_one_that_is_not_open_are_not_changed() -> None:
    tools, _ = desk(Page(writable=False))
    with pytest.raises(Conflict, match="read-only"):
        await prepare_call(tools["insert_cell"], source="z")

    class Gone:
        async def offer(self, context: ToolContext) -> ToolOutput:
            return ToolOutput("no client attached", "error")

    closed = edit_tools(EditContext(NotebookView(None, Gone()), Gone(), ReadCellsMemory()), SERVED)
    for tool in closed:
        with pytest.raises(NotFound, match="no client attached"):
            await prepare_call(tool, source="z", cell="0", cells="0", below="start")


async def test_cells_run_with_the_code_that_was_shown_and_answer_with_outputs_and_pictures() -> None:
    page = Page()
    tools, _ = desk(page)
    last = await run_call(tools["run_cells"], cells="1")
    assert last.text == "[1 aaaa2222 code]\ny = 2\ny\n--> done"
    ready = await prepare_call(tools["run_cells"], cells="0-1")
    assert ready["code"] == "x = 1\n\ny = 2\ny"
    assert ready["cells"] == [{"cell": "aaaa1111", "source": "x = 1"}, {"cell": "aaaa2222", "source": "y = 2\ny"}]
    output = await tools["run_cells"].call(ready, context("run_cells", ready))
    assert output.text.startswith("[0 aaaa1111 code]\nx = 1\n--> done")
    assert [medium.mime for medium in output.media] == ["image/png"]
    for cells, reason in (("2", "has no code to run"), ("In[1]", "by number or id"), ("9", "There is no cell")):
        with pytest.raises(InvalidRequest, match=reason.replace("[", r"\[")):
            await prepare_call(tools["run_cells"], cells=cells)
    page.sources["aaaa1111"] = " %%agent\nhello"
    with pytest.raises(InvalidRequest, match="is a prompt for you"):
        await prepare_call(tools["run_cells"], cells="0")


async def test_a_person_writes_another_text_and_the_cell_gets_that_one() -> None:
    page = Page()
    tools, known = desk(page)
    answers = iter(["y = 4\ny", "y = 4\ny", "z = 1"])
    gate = Gate(Approvals(), ask=lambda question: Answer("approve", edited=next(answers)))
    toolbox = Toolbox(list(tools.values()), gate)
    edit = {"cell": "aaaa2222", "find": "y = 2", "replace": "y = 3"}
    calls = [
        ToolCall("c1", "edit_cell", edit),
        ToolCall("c2", "edit_cell", {**edit, "find": "y = 4"}),
        ToolCall("c3", "insert_cell", {"source": "z = 0", "below": "start"}),
    ]
    results: list[Message] = []
    events: list[EventBody] = []
    for call in calls:
        results += [one async for one in toolbox.run([call], RoundPosition(KEY, "t", 1), events.append)]
    assert "In its place they wrote:\ny = 4\ny\n" in results[0].text
    assert "has the text of the person" in results[0].text
    assert "The text is the same as that of the cell, so nothing would change." in results[1].text
    assert page.asked[0].arguments["diff"] == "cell 2 (aaaa2222)\n@@ -1,2 +1,2 @@\n-y = 2\n+y = 4\n y"
    assert [call.arguments["after"] for call in page.asked] == ["y = 4\ny", "z = 1"]
    changes = [body.details.get("change") for body in events if isinstance(body, CallFinished)]
    assert [change and change["after"] for change in changes] == ["y = 4\ny", None, "z = 1"]
    assert known.state(KEY, NotebookCell(1, "aaaa2222", "code", "y = 4\ny", None, ())) == "same"


async def test_a_person_is_asked_about_the_exact_change_and_a_no_leaves_the_cell() -> None:
    page, asked = Page(), list[ApprovalRequired]()

    def answer(required: ApprovalRequired) -> bool:
        asked.append(required)
        return "z" in required.code

    tools, _ = desk(page)
    toolbox = Toolbox(list(tools.values()), Gate(Approvals(), ask=answer))
    calls = [
        ToolCall("c1", "edit_cell", {"cell": "0", "find": "1", "replace": "7"}),
        ToolCall("c2", "edit_cell", {"cell": "0", "find": "x", "replace": "z"}),
    ]
    results: list[Message] = [
        result async for result in toolbox.run(calls, RoundPosition(KEY, "t1", 1), lambda body: None)
    ]
    assert [required.code for required in asked] == [
        "cell 1 (aaaa1111)\n@@ -1 +1 @@\n-x = 1\n+x = 7",
        "cell 1 (aaaa1111)\n@@ -1 +1 @@\n-x = 1\n+z = 1",
    ]
    assert [required.kind for required in asked] == ["notebook.edit"] * 2
    assert [result.status for result in results] == ["denied", "success"]
    assert page.sources["aaaa1111"] == "z = 1"


class Saved:
    """The notebook's file, without unsaved changes."""

    path = "rain.ipynb"
    kernel = None
    jobs = None
    drafts: None = None

    async def describe_data(self, prompt: str, *, in_draft: bool) -> tuple[Note, ...]:
        return ()

    async def document(self) -> SavedNotebook:
        return SavedNotebook(self.path, 0.0, {"cells": [{"id": "aaaa1111", "cell_type": "code", "source": "saved"}]})


async def offer_tools(client: frozenset[str], page: Page | None = None, **request: Any) -> dict[str, Tool]:
    client_calls = ClientCallBroker(claim_within_s=0.01)
    if page:
        client_calls.offer = page.offer  # type: ignore[method-assign]  # instead of waiting for a client of HTTP
    occasion = ToolSourceContext(
        KEY, TurnRequest("p", client_tools=client, **request), lambda body: None, notebook=Saved()
    )
    return {tool.spec.name: tool for tool in (await NotebookTools(client_calls).offer(occasion)).tools}


async def test_they_are_there_only_while_a_page_serves_them_and_then_instead_of_running_behind_it() -> None:
    magic = frozenset({"python", "run_cell", "variables"})
    assert not EDITS & set(await offer_tools(magic))
    assert set(await offer_tools(magic | SERVED)) >= EDITS
    assert "run_cell" in await offer_tools(magic)
    assert "run_cell" not in await offer_tools(magic | SERVED)
    draft = await offer_tools(magic | SERVED, where="draft")
    assert "run_cells" not in draft
    assert "run_cell" in draft
    assert set(await offer_tools(SERVED, tools=("edit_cell",))) == {"edit_cell"}


async def test_reading_prefers_the_open_document_and_says_when_it_had_to_take_the_file() -> None:
    read = (await offer_tools(SERVED, Page()))["read_cells"]
    told = await read.call({"cells": "aaaa1"}, context("read_cells", {}))
    assert told.text.startswith("rain.ipynb as it stands open in the page")
    assert "x = 1" in told.text
    where = await (await offer_tools(SERVED, Page()))["notebook_cells"].call({}, context("notebook_cells", {}))
    assert "The person is at cell 1 (aaaa2222)." in where.text
    left = await (await offer_tools(SERVED))["read_cells"].call({"cells": "0"}, context("read_cells", {}))
    assert "as last saved (later edits are not in it: no client attached" in left.text
    assert "saved" in left.text


async def test_a_cell_that_was_read_short_is_not_known() -> None:
    long = "\n".join(f"line {number}" for number in range(2_000))
    tools = await offer_tools(SERVED, Page({"long": long, "short": "x = 1"}))
    await tools["read_cells"].call({"cells": "0, 1"}, context("read_cells", {}))
    with pytest.raises(Conflict, match="was not read"):
        await prepare_call(tools["edit_cell"], cell="long", source="short")
    assert (await prepare_call(tools["edit_cell"], cell="short", source="x = 2"))["before"] == "x = 1"


async def test_a_short_cell_that_did_not_fit_is_not_known() -> None:
    """Also where its words stand in what was read."""
    page = Page(dict.fromkeys(("one", "two", "four", "five"), "x = 1\n" * 207) | {"three": "x = 1"})
    tools = await offer_tools(SERVED, page)
    read = await tools["read_cells"].call({"cells": "0-4"}, context("read_cells", {}))
    assert "did not fit" in read.text
    assert "three" not in read.text
    with pytest.raises(Conflict, match="was not read"):
        await prepare_call(tools["edit_cell"], cell="three", source="x = 2")
    assert (await prepare_call(tools["edit_cell"], cell="one", source="x = 2"))["after"] == "x = 2"


def test_what_is_known_has_an_end() -> None:
    known = ReadCellsMemory()
    known.read(KEY, [(str(number), "") for number in range(MAX_CELLS + 5)])
    assert len(known._sessions[KEY]) == MAX_CELLS


async def test_a_page_that_tells_nonsense_does_no_harm() -> None:
    class Odd:
        async def offer(self, context: ToolContext) -> ToolOutput:
            return ToolOutput("", details={"cells": [3, {"id": 5}], "active": [], "selected": "x", "path": 7})

    [edit] = edit_tools(EditContext(NotebookView(None, Odd()), Odd(), ReadCellsMemory()), frozenset({"edit_cell"}))
    with pytest.raises(AgentKernelError):
        await prepare_call(edit, cell="aaaa1111", find="x", replace="y")
