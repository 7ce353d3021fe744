"""Tests turns whose context is the page of their notebook in place of the conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_kernel.core.errors import NotFound
from agent_kernel.core.events import Event, Notice
from agent_kernel.core.protocols import ToolContext, ToolOutput
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import Note, TurnRequest
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from agent_kernel.tools.base.notebook_access import SavedNotebook
from agent_kernel.tools.notebook.current_notebook import LIVE_DOCUMENT
from agent_kernel.tools.notebook.notebook_tools import NotebookTools
from agent_kernel.turn.agent import Agent
from agent_kernel.turn.agent_options import TurnNotebook, TurnServices


def cell(id: str, source: str, output: str = "", kind: str = "code") -> dict[str, Any]:
    outputs = [{"output_type": "stream", "name": "stdout", "text": output}] if output else []
    return {"id": id, "cell_type": kind, "source": source, "outputs": outputs, "execution_count": None}


@dataclass
class Saved:
    """A notebook file that no page has open."""

    cells: list[dict[str, Any]]
    path: str = "mine.ipynb"
    kernel: None = None
    jobs: None = None
    drafts: None = None

    async def describe_data(self, prompt: str, *, in_draft: bool) -> tuple[Note, ...]:
        return ()

    async def document(self) -> SavedNotebook:
        if not self.path:
            raise NotFound("never saved")
        return SavedNotebook(self.path, 0.0, {"cells": self.cells})


class Page(ClientCallBroker):
    """A page that has the notebook open, with cells that are not saved."""

    def __init__(self, cells: Sequence[dict[str, Any]]) -> None:
        super().__init__()
        self.cells = cells
        self.turns: list[str] = []

    async def offer(self, context: ToolContext) -> ToolOutput:
        assert context.call.name == LIVE_DOCUMENT
        self.turns.append(context.turn)
        return ToolOutput("", details={"path": "mine.ipynb", "cells": list(self.cells)})


@dataclass
class World:
    notebook: Saved
    client_calls: ClientCallBroker = field(default_factory=ClientCallBroker)
    engine: ScriptedEngine = field(default_factory=lambda: ScriptedEngine([{"text": "Answer.", "loop": True}]))
    store: MemoryStore = field(default_factory=MemoryStore)

    async def ask(self, prompt: str, id: str, **more: Any) -> list[Event]:
        agent = Agent(
            self.store,
            self.engine,
            SessionKey("local", "s"),
            services=TurnServices(sources=[NotebookTools(self.client_calls)]),
            notebook=TurnNotebook(access=self.notebook),
        )
        return [event async for event in agent.stream(TurnRequest(prompt, cell=id, **more))]

    @property
    def seen(self) -> list[str]:
        """Return what the model saw last, without its instructions and the answers."""
        messages = self.engine.requests[-1].messages
        return [message.text for message in messages if message.role == "user"]


PAGE = [
    cell("t", "# Sales", kind="markdown"),
    cell("a", "%%agent\nfirst"),
    cell("c", "df = load()\nprint(len(df))", "12\n"),
    cell("b", "%%agent\nsecond"),
    cell("e", ""),
    cell("d", "%%agent --above\nthird"),
    cell("z", "print('below')"),
]


async def test_above_is_the_page_in_its_order_whatever_was_asked_when() -> None:
    world = World(Saved(PAGE))
    for prompt, id in (("second", "b"), ("elsewhere", "gone"), ("first", "a")):
        await world.ask(prompt, id)
    await world.ask("third", "d", page="above")
    title, first, code, second, third = world.seen
    assert (first, second, third) == ("first", "second", "third")
    assert title.startswith("Cells of the notebook, as they stand on its page:")
    assert "# Sales" in title
    assert "df = load()" in code
    assert "--> 12" in code
    answers = [message.text for message in world.engine.requests[-1].messages if message.role == "assistant"]
    assert answers == ["Answer.", "Answer."]
    await world.ask("and as ever", "y")
    assert world.seen == ["second", "elsewhere", "first", "third", "and as ever"], "the conversation is what it was"


async def test_a_turn_on_another_branch_is_seen_if_its_cell_is_above() -> None:
    world = World(Saved(PAGE))
    await world.ask("first", "a")
    await world.ask("second", "b")
    [first, _] = await world.store.turns(SessionKey("local", "s"))
    await world.store.branch(SessionKey("local", "s"), before=first.id)
    await world.ask("first, again", "a")
    await world.ask("third", "d", page="above")
    assert [words for words in world.seen if "Cells" not in words] == ["first, again", "second", "third"]


async def test_named_cells_and_nothing_at_all() -> None:
    world = World(Saved(PAGE))
    await world.ask("first", "a")
    await world.ask("alone", "x", page="none")
    assert world.seen == ["alone"]
    await world.ask("of two", "x", page="2,1")
    first, code, asked = world.seen
    assert (first, asked) == ("first", "of two")
    assert "df = load()" in code
    events = await world.ask("of what", "x", page="nope")
    assert "There is no cell 'nope'" in str(events[-1].to_json())


async def test_a_page_that_is_open_is_asked_even_where_no_tool_may_be_called() -> None:
    page = Page([*PAGE[:3], cell("new", "unsaved = 1"), cell("d", "%%agent --above\nx")])
    world = World(Saved(PAGE), page)
    events = await world.ask("x", "d", page="above", client_tools=frozenset({LIVE_DOCUMENT}), max_tool_rounds=0)
    assert "unsaved = 1" in world.seen[-2]
    assert page.turns == [events[0].turn]
    assert world.engine.requests[-1].tools == ()


@pytest.mark.parametrize("ran", [(), ("late", "d")])
async def test_a_cell_that_is_not_saved_yet_counts_as_the_last_and_says_so(ran: tuple[str, ...]) -> None:
    world = World(Saved(PAGE))
    await world.ask("not saved either", "late")
    events = await world.ask("x", "fresh", page="above", ran=ran)
    assert any(isinstance(event.body, Notice) and "not saved yet" in event.body.text for event in events)
    assert "print('below')" in "".join(world.seen)
    assert ("not saved either" in world.seen) is bool(ran)


async def test_without_a_notebook_the_conversation_is_seen_and_a_notice_says_why() -> None:
    world = World(Saved([], path=""))
    await world.ask("first", "a")
    events = await world.ask("x", "d", page="above")
    assert world.seen == ["first", "x"]
    [notice] = [event.body.text for event in events if isinstance(event.body, Notice)]
    assert "There is no notebook page here" in notice
