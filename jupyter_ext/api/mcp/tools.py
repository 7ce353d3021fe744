"""Runs the tools that MCP clients call, with which they ask the agent and read conversations and notebooks. Access is
checked as in every route."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_kernel.core.errors import InvalidRequest, NotFound
from agent_kernel.core.messages import Message, shorten
from agent_kernel.core.session import Session
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.permissions.gate import DEFAULTS
from agent_kernel.tools.notebook.cell_map import cells_of, map_cells, read, select_cells
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.api.http.json_body import validation_message
from jupyter_ext.api.mcp.turn import Client, InvalidArguments, McpOutcome, McpQuestion, McpTurn
from jupyter_ext.auth.callers import Caller
from jupyter_ext.notebooks.attached_notebook import AttachedNotebooks
from jupyter_ext.notebooks.bindings import Notebooks, is_notebook
from jupyter_ext.turns.access import Access
from jupyter_ext.turns.idempotency import StartedTurn
from jupyter_ext.turns.turn_control import TurnControl
from jupyter_ext.turns.turn_starter import TurnDescription, TurnStarter
from jupyter_ext.turns.turns import LiveTurn, Turns

ANSWERS = frozenset(DEFAULTS)
"""The kinds of approval that an MCP client can answer, each by its name: a missing answer then counts as a refusal
after ``approval_timeout_s``. The value ``*`` is not used, because the turn would then wait forever."""
LISTED = 20
ITEM_CHARS = 4_000
READ_CHARS = 60_000
Id = Annotated[str, Field(min_length=1, max_length=512)]


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class AgentArguments(Arguments):
    prompt: Annotated[str, Field(min_length=1, max_length=1_000_000, description="What to ask the agent")]
    session: Annotated[
        Id | None, Field(description="The id of a conversation to continue; it is created if it does not exist")
    ] = None
    notebook: Annotated[
        str | None,
        Field(
            max_length=1_000,
            description="The path of a notebook: the turn continues its conversation, and the agent can read its cells",
        ),
    ] = None
    max_rounds: Annotated[int | None, Field(ge=0, le=256, description="The maximum number of rounds of tool calls")] = (
        None
    )


class ListArguments(Arguments):
    limit: Annotated[
        int,
        Field(ge=1, le=200, description="The maximum number of conversations; the most recently used ones come first"),
    ] = LISTED


class ReadArguments(Arguments):
    session: Annotated[Id, Field(description="The id of a conversation, as list_sessions returns it")]
    limit: Annotated[int, Field(ge=1, le=500, description="How many of its newest messages to return")] = 50


class NotebookArguments(Arguments):
    notebook: Annotated[str, Field(min_length=1, max_length=1_000, description="Path of a notebook")]
    cells: Annotated[
        str,
        Field(
            max_length=1_000, description="The cells to read, by number or id, such as '3, 5-8'; empty: list all cells"
        ),
    ] = ""
    start: Annotated[int, Field(ge=0, description="The number of the first cell in the list; cells count from 0")] = 0


@dataclass(frozen=True, slots=True)
class ToolKind:
    description: str
    arguments: type[Arguments]

    @property
    def schema(self) -> dict[str, Any]:
        return self.arguments.model_json_schema()


TOOLS: Mapping[str, ToolKind] = {
    "agent": ToolKind("Send a prompt to the agent of this Jupyter server, and return its answer.", AgentArguments),
    "list_sessions": ToolKind("List the conversations with the agent, the most recently used first.", ListArguments),
    "read_session": ToolKind("Return the messages of a conversation with the agent.", ReadArguments),
    "read_notebook": ToolKind(
        "The cells of a notebook, as it was saved: a list, or some of them with their outputs. To run one, or to look "
        "at variables, ask the agent with that notebook.",
        NotebookArguments,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class McpTools:
    """Runs the calls of MCP clients."""

    runtime: Runtime
    access: Access
    turns: Turns
    control: TurnControl
    starter: TurnStarter
    notebooks: Notebooks
    attached_notebooks: AttachedNotebooks

    async def call(
        self, name: str, arguments: Mapping[str, Any], caller: Caller, client: Client
    ) -> McpOutcome | McpQuestion:
        """Run a tool. Raises InvalidArguments, and errors of ``core/errors.py`` from the call."""
        try:
            given = TOOLS[name].arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise InvalidArguments(validation_message(error)) from None
        if isinstance(given, AgentArguments):
            return await self._agent(given, caller, client)
        if isinstance(given, ListArguments):
            return await self._list(given, caller)
        if isinstance(given, NotebookArguments):
            return await self._cells(given)
        assert isinstance(given, ReadArguments)
        return await self._read(given, caller)

    # ------------------------------------------------------------------------------------------------ agent

    async def _agent(self, arguments: AgentArguments, caller: Caller, client: Client) -> McpOutcome | McpQuestion:
        if client.state:
            return await self._resume(caller, client)
        turn = await self._start(arguments, caller)
        return await McpTurn(self.turns, self.control, turn, client).outcome()

    async def _resume(self, caller: Caller, client: Client) -> McpOutcome | McpQuestion:
        """Continue a turn for a client that repeats its call with answers. Access to the turn id that the client sends
        is checked as for any other id."""
        try:
            state = json.loads(client.state)
            id, after = str(state["turn"]), int(state["after"])
        except (ValueError, KeyError, TypeError):
            raise InvalidArguments("requestState was not sent by this server.") from None
        turn = await self.access.turn(caller, id)
        following = McpTurn(self.turns, self.control, turn, client)
        for question, (action, content) in client.answers.items():
            await following.answer(question, action, content)
        return await following.outcome(after)

    async def _start(self, arguments: AgentArguments, caller: Caller) -> LiveTurn:
        request = TurnRequest(arguments.prompt, answers=ANSWERS, max_tool_rounds=arguments.max_rounds)
        description = TurnDescription(
            request,
            session=arguments.session,
            notebook=await self._notebook(arguments.notebook) if arguments.notebook else "",
            metadata={"client": "mcp"},
            route="mcp",
        )
        begun = await self.starter.start(caller, description)
        assert isinstance(begun, StartedTurn), "an MCP client accepts no stored answer"
        return begun.turn

    async def _notebook(self, path: str) -> str:
        """Return the checked path of the notebook. Raises InvalidRequest, NotFound."""
        place = path.strip("/")
        if not is_notebook(place):
            raise InvalidRequest("notebook must be the path of a .ipynb file below the server's root.")
        if not await self.attached_notebooks.exists(place):
            raise NotFound(f"There is no notebook {place}.")
        return place

    # ------------------------------------------------------------------------------------------------ notebooks

    async def _cells(self, arguments: NotebookArguments) -> McpOutcome:
        """Return the cells of a notebook. Raises InvalidRequest, NotFound."""
        document = await self.attached_notebooks.open_file(await self._notebook(arguments.notebook)).document()
        cells = cells_of(document.content)
        facts = {"notebook": document.path, "cells": len(cells), "saved": document.saved}
        if not arguments.cells.strip():
            return McpOutcome(map_cells(cells, arguments.start), facts)
        selected, executed = select_cells(cells, arguments.cells)
        if executed:
            raise InvalidRequest(
                "Only the kernel knows which code ran as In[...]; name cells by their number, or ask the agent."
            )
        return McpOutcome(read(selected, READ_CHARS), facts)

    # ------------------------------------------------------------------------------------------------ sessions

    async def _list(self, arguments: ListArguments, caller: Caller) -> McpOutcome:
        sessions = await self.runtime.store.list(caller.namespace, arguments.limit)
        rows = [await self._row(session) for session in sessions]
        lines = [f"{row['id']}  {row['title'] or 'untitled'} ({row['turns']} turns)" for row in rows]
        return McpOutcome("\n".join(lines) or "There is no conversation yet.", {"sessions": rows})

    async def _row(self, session: Session) -> dict[str, Any]:
        return {
            "id": session.key.id,
            "title": session.title,
            "turns": session.turn_count,
            "updated": session.updated,
            "notebooks": await self.notebooks.paths(session.key),
        }

    async def _read(self, arguments: ReadArguments, caller: Caller) -> McpOutcome:
        session = await self.access.session(caller, arguments.session)
        items = await self.runtime.store.latest(session.key, arguments.limit)
        lines = [line for item in items if (line := _visible_text(item.message))]
        text = shorten("\n\n".join(lines) or "(nothing was said)", READ_CHARS)
        return McpOutcome(text, {**await self._row(session), "items": len(items)})


def _visible_text(message: Message) -> str:
    """Return the text of the message that a person would see."""
    if message.hidden or message.role == "system":
        return ""
    name = f"result of {message.name or 'a tool'}" if message.role == "tool" else message.role
    calls = "".join(f" [called {call.name}]" for call in message.calls)
    text = shorten(message.text, ITEM_CHARS)
    return f"{name}: {text}{calls}" if text or calls else ""
