"""Runs recorded turns again: asks the model again, runs the code again, or both. The remaining parts of a turn come
from the record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent_kernel.cli.replaying.notebook_code import NotebookCode
from agent_kernel.cli.replaying.recorded_turn import RecordedTurn, same_call
from agent_kernel.cli.replaying.verdict import ReplayedTurn, ReplayVerdict, verdict
from agent_kernel.core.files import File
from agent_kernel.core.messages import Message, ToolCall, Usage
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    Engine,
    EngineInfo,
    EngineRequest,
    Sampling,
    TextChunk,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.session import SessionKey, new_id
from agent_kernel.core.turn_request import Note, TurnRequest
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.tools.base.tool_source import ToolSource
from agent_kernel.tools.code.python import SANDBOXED
from agent_kernel.turn.agent import Agent
from agent_kernel.turn.agent_options import TurnServices

IN_KERNEL = ("live", "draft")
LIVE_TOOLS = ("python", "reset_python", "shell")
NOT_RECORDED = "This call was not recorded, so there is no result for it. Answer from the results that there are."


@dataclass(frozen=True, slots=True)
class LiveTools:
    """The environment in which a replay runs tools again.

    ``sources`` provide the tools python and shell. ``files`` are the files of the conversation, each with its bytes, or
    with None if these are missing. They are copied into the work directory. ``cells`` are the code cells of the
    notebook, for turns that ran in its kernel.
    """

    sandbox: Sandbox
    sources: Sequence[ToolSource]
    files: Sequence[tuple[File, bytes | None]] = ()
    cells: NotebookCode | None = None


class Replay:
    """A replay of recorded turns. Without ``engine``, the model's replies come from the record. Without ``tools``, the
    tool results come from the record."""

    def __init__(self, turns: Sequence[RecordedTurn], engine: Engine | None, tools: LiveTools | None) -> None:
        self._turns = turns
        self._engine = engine
        self._tools = tools
        self._key = SessionKey("local", new_id("replay"))
        self._store = MemoryStore()

    async def verdicts(
        self, only: str = "", on_turn: Callable[[RecordedTurn], None] = lambda turn: None
    ) -> AsyncIterator[ReplayVerdict]:
        """Yield one verdict for each replayed turn, in order.

        ``only`` is the id of the one turn to replay, empty for all turns. With live tools, the turns before it run too,
        because they create its variables, but have no verdict. ``on_turn`` is called with each turn before it runs.
        """
        earlier: list[Message] = []
        absent = self._place_files()
        try:
            for turn in self._turns:
                if only not in ("", turn.turn.id) and self._tools is None:
                    continue
                on_turn(turn)
                now = await self._replay(turn, tuple(earlier))
                earlier += now.messages
                if only in ("", turn.turn.id):
                    found = verdict(turn, now, model=self._engine is not None, tools=self._tools is not None)
                    yield _with_files(found, absent)
                if turn.turn.id == only:
                    return
        finally:
            if self._tools is not None:
                await self._tools.sandbox.close(self._key, remove=True)
            await self._store.aclose()

    def _place_files(self) -> list[str]:
        """Copy the files of the conversation into the work directory. Return the names of the files whose bytes are
        missing."""
        absent: list[str] = []
        for file, data in self._tools.files if self._tools else ():
            if data is None:
                absent.append(file.name)
                continue
            assert self._tools is not None
            place = self._tools.sandbox.workdir(self._key) / Path(file.name).name
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            place.write_bytes(data)
        return absent

    async def _replay(self, turn: RecordedTurn, earlier: tuple[Message, ...]) -> ReplayedTurn:
        if problem := await self._cells_before(turn):
            return ReplayedTurn((), earlier, problem)
        recorded = self._recorded_tools(turn)
        request = TurnRequest(
            turn.prompt,
            turn.media,
            tuple(Note("", note) for note in turn.notes),
            where="sandbox",
            sampling=Sampling(temperature=0.0),
            messages=() if self._tools else tuple(message for message in turn.earlier if message.role != "system"),
            history="append",
        )
        key = self._key if self._tools else SessionKey("local", new_id("replay"))
        result = await self._agent(key, turn, recorded).run(request)
        items = [item.message for item in await self._store.latest(key, None) if item.turn == result.turn]
        calls = [call.name for tool in recorded for call in tool.unknown]
        error = result.error.message if result.error else ""
        if calls and result.state == "committed" and not result.text:
            error = f"the model made calls that were not recorded: {', '.join(calls)}"
        return ReplayedTurn(tuple(items), earlier if self._tools else turn.earlier, error)

    def _agent(self, key: SessionKey, turn: RecordedTurn, recorded: Sequence[Tool]) -> Agent:
        engine = self._engine or RecordedEngine(turn.replies)
        sources = self._tools.sources if self._tools else ()
        gate = Gate(Approvals())
        return Agent(
            self._store, engine, key, recorded, gate=gate, services=TurnServices(sources=sources), check_numbers=False
        )

    def _recorded_tools(self, turn: RecordedTurn) -> list[RecordedTool]:
        names = dict.fromkeys(call.name for call in turn.calls)
        return [RecordedTool(name, turn) for name in names if self._tools is None or name not in LIVE_TOOLS]

    async def _cells_before(self, turn: RecordedTurn) -> str:
        """Run the notebook's own cells above a turn that ran in the notebook's kernel. Return the reason if one of
        them fails, otherwise an empty string."""
        tools = self._tools
        if tools is None or tools.cells is None or turn.turn.where not in IN_KERNEL:
            return ""
        for number, code in tools.cells.take_above(turn.turn.cell):
            result = await tools.sandbox.run(self._key, code)
            if result.status != "success":
                return f"cell {number} of the notebook: {result.error or result.stderr or result.status}"
        return ""


def _with_files(verdict: ReplayVerdict, absent: Sequence[str]) -> ReplayVerdict:
    return (
        replace(verdict, files=(*verdict.files, *absent)) if verdict.result == "could not run" and absent else verdict
    )


class RecordedEngine:
    """An engine whose answers are ``replies`` in order, one for each model call. The agent makes a call without tools
    after repeated failures; such a call gets the last reply."""

    def __init__(self, replies: Sequence[Message]) -> None:
        self._replies = list(replies)

    def info(self) -> EngineInfo:
        return EngineInfo("recorded", True, 0, vision=True, state="ready")

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        if not request.tools:
            self._replies = self._replies[-1:]
        reply = self._replies.pop(0) if self._replies else Message("assistant")
        if reply.text:
            yield TextChunk(reply.text)
        calls = reply.calls if request.tools else ()
        for call in calls:
            yield CallChunk(call)
        yield EndChunk("calls" if calls else "stop", Usage())

    async def aclose(self) -> None:
        """Do nothing, because the engine holds no resources."""


class RecordedTool:
    """One tool as a recorded turn used it. A call with the arguments of a recorded call gets the result of that call;
    each result is returned only once. ``unknown`` collects the calls that were not recorded."""

    def __init__(self, name: str, turn: RecordedTurn) -> None:
        self.spec = _spec(name, [call.arguments for call in turn.calls if call.name == name])
        self._left = [call for call in turn.calls if call.name == name]
        self._results = turn.results
        self.unknown: list[ToolCall] = []

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        requested_call = ToolCall(context.call.id, self.spec.name, arguments)
        recorded_call = next((call for call in self._left if same_call(call, requested_call)), None)
        result = self._results.get(recorded_call.id) if recorded_call else None
        if recorded_call is None or result is None:
            self.unknown.append(requested_call)
            return ToolOutput(NOT_RECORDED, "error")
        self._left.remove(recorded_call)
        return ToolOutput(result.text, result.status or "success", result.media)


def _spec(name: str, recorded_arguments: Sequence[Mapping[str, Any]]) -> ToolSpec:
    """Return the specification of a tool. For python, this is the specification of the sandbox's tool. For any other
    tool, the specification states only the names of the arguments, which are taken from the recorded arguments
    ``recorded_arguments``."""
    if name == SANDBOXED.name:
        return SANDBOXED
    names = dict.fromkeys(argument for arguments in recorded_arguments for argument in arguments)
    schema = {"type": "object", "properties": {argument: {} for argument in names}}
    return ToolSpec(name, f"The tool {name}, as it was used before.", schema, kind=SANDBOXED.kind, where="sandbox")
