"""Runs the tool calls of a round: checks them, asks the permission gate, runs them, and limits their results. A call
that fails becomes a result that the model can read."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from agent_kernel.core.errors import AgentKernelError, EngineError, client_text
from agent_kernel.core.events import CallFinished, CallStarted, Emit, EventBody, FileProduced
from agent_kernel.core.files import NOT_PRODUCED, File, ProducedFile, RequestedFile, describe_files
from agent_kernel.core.messages import Message, ToolCall, shorten, tool_result
from agent_kernel.core.programs.program_outcome import ProgramOutcome
from agent_kernel.core.protocols import (
    RESULT_CHARS,
    CallPreparer,
    CallReviser,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from agent_kernel.core.seams.file_store import FileKeeper
from agent_kernel.core.seams.program_trials import ProgramTrials
from agent_kernel.core.session import SessionKey
from agent_kernel.permissions import Gate
from agent_kernel.permissions.gate import FOREIGN
from agent_kernel.permissions.path_grants import ApprovedPaths
from agent_kernel.tools.base.argument_check import describe_misfit
from agent_kernel.turn.voting_engine import Try
from agent_kernel.turn.work_time import WorkTime

SAME_FAILURES = 2
MAX_UNOFFERED_REPLIES = 2
"""Number of replies that may call tools although the request offered none of the server's. The model reads that such a
call failed, and can then answer. Without this limit, a model that only calls tools would keep the turn running."""
EDITED = "The person changed your text before they approved the call. In its place they wrote:\n{text}\n\n"
EDITED_CHARS = 4_000
"""Maximum characters of a person's edited text that the model reads in place of the text that it wrote itself."""


@dataclass(frozen=True, slots=True)
class RoundPosition:
    """The position of a round of calls in a conversation; ``ordinal`` counts the session's turns from 0."""

    key: SessionKey
    turn: str
    round: int
    ordinal: int = 0


class Toolbox:
    """The tools of one turn.

    ``files`` stores the files that calls produce; with None they are not stored. ``foreign`` names the text of unknown
    origin that the conversation contained before the first call; it is empty if there was none. ``wanted`` are the
    files that the request asks the turn to produce.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        gate: Gate,
        files: FileKeeper | None = None,
        *,
        foreign: str = "",
        wanted: Sequence[RequestedFile] = (),
    ) -> None:
        self._tools = {tool.spec.name: tool for tool in tools}
        self._gate = gate
        self._files = files
        self._foreign = foreign
        self._failures: Counter[str] = Counter()
        self._offers_own_tools, self._unoffered_replies = True, 0
        self._missing = {file.path: _not_produced(file) for file in wanted}

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self._tools.values())

    @property
    def caller_specs(self) -> tuple[ToolSpec, ...]:
        """The tools whose calls end the turn, because the caller runs them."""
        return tuple(spec for spec in self.specs if spec.where == "caller")

    def offer(self, *, last: bool) -> tuple[ToolSpec, ...]:
        """Choose the tools that the next request offers to the model, and return them. Only the caller's functions are
        offered if the rounds are used up (``last``), or if the same call has failed twice, because another attempt
        would not help."""
        self._offers_own_tools = not last and all(count < SAME_FAILURES for count in self._failures.values())
        return self.specs if self._offers_own_tools else self.caller_specs

    async def run(self, calls: Sequence[ToolCall], place: RoundPosition, emit: Emit) -> AsyncGenerator[Message, None]:
        """Yield the result of every call as soon as it exists. Calls that share state run in order, all others in
        parallel. Raises EngineError after MAX_UNOFFERED_REPLIES replies that call tools which were not offered."""
        self._unoffered_replies += not self._offers_own_tools
        if self._unoffered_replies > MAX_UNOFFERED_REPLIES:
            raise EngineError(
                f"The model keeps calling the tool {calls[0].name!r}, which the request does not offer.",
                hint="Send the prompt again, or use another model.",
            )
        alone = [call for call in calls if self._shares_state(call)]
        tasks = [asyncio.create_task(self._run_call(call, place, emit)) for call in calls if call not in alone]
        try:
            waiting = (self._run_call(call, place, emit) for call in alone)
            for ending in itertools.chain(waiting, asyncio.as_completed(tasks)):
                result, finished = await ending
                try:
                    yield result
                finally:  # emitted after the result is saved, so that readers of the event find its media in the store
                    emit(finished)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def program_trials(self, place: RoundPosition, emit: Emit) -> Try | None:
        """Return the function that tries programs in the environment of the ``python`` tool. Return None if that
        environment cannot try programs, or may not do so without asking a person."""
        tool = self._tools.get("python")
        context = ToolContext(place.key, place.turn, place.round, ToolCall("", "python", {}), emit, place.ordinal)
        if tool is None or not await self._gate.allows_unasked(tool.spec, context):
            return None
        if not isinstance(tool, ProgramTrials):
            return None

        async def try_programs(programs: Sequence[str], names: Sequence[str]) -> list[ProgramOutcome]:
            return await tool.try_programs(programs, names, context)

        return try_programs

    def _shares_state(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is None or tool.spec.shared_state

    async def _run_call(self, call: ToolCall, place: RoundPosition, emit: Emit) -> tuple[Message, CallFinished]:
        work = WorkTime()

        def note_event(body: EventBody) -> None:
            work.note(body)
            emit(body)

        tool = self._tools.get(call.name)
        context = ToolContext(place.key, place.turn, place.round, call, note_event, place.ordinal, self._foreign)
        context = replace(context, paths=ApprovedPaths(self._gate, context))
        emit(CallStarted(call.id, call.name, dict(call.arguments), tool.spec.where if tool else "server"))
        output = await self._output(tool, context)
        output = replace(output, text=shorten(output.text, tool.spec.result_chars if tool else RESULT_CHARS))
        files = await self._store_files(output, context)
        if output.files and self._files is not None:
            output = replace(output, text=f"{output.text}\n{describe_files((*files, *_absent(output)))}")
        if output.status != "success":
            self._failures[f"{call.name} {json.dumps(call.arguments, sort_keys=True, default=str)}"] += 1
        media, ids = tuple(_media_to_json(output)), tuple(file.id for file in files)
        details = dict(output.details)
        ended = CallFinished(call.id, call.name, output.status, output.text, 0.0, media, details, ids)
        work.note(ended)
        result = tool_result(call, output.text, output.status, output.media)
        return result, replace(ended, seconds=work.seconds)

    async def _store_files(self, output: ToolOutput, context: ToolContext) -> list[File]:
        """Store the files of a call. A requested file that this call did not produce may come from a later one; ``end``
        records the missing ones."""
        if not output.files or self._files is None:
            return []
        self._missing |= {file.name: file for file in output.files if file.error == NOT_PRODUCED}
        produced = [file for file in output.files if file.error != NOT_PRODUCED]
        stored = await self._files.keep(produced, context, within_s=output.keep_s)
        for stored_file in stored:
            context.emit(FileProduced(context.call.id, stored_file.wire))
            self._missing.pop(stored_file.file.name, None)
        return [stored_file.file for stored_file in stored]

    async def end(self, place: RoundPosition, emit: Emit) -> None:
        """Record a placeholder for each requested file that no call produced. Raises StoreError."""
        if self._files is None or not self._missing:
            return
        context = ToolContext(place.key, place.turn, place.round, ToolCall("", "", {}), emit, place.ordinal)
        for file in await self._files.keep(list(self._missing.values()), context):
            emit(FileProduced("", file.wire))

    async def _output(self, tool: Tool | None, context: ToolContext) -> ToolOutput:
        call = context.call
        if tool is None:
            return ToolOutput(
                f"There is no tool {call.name!r}; there are: {', '.join(self._tools) or 'none'}.", "error"
            )
        if problem := describe_misfit(call, tool.spec.schema):
            return ToolOutput(problem, "error")
        try:
            call = await tool.prepare(call, context) if isinstance(tool, CallPreparer) else call
        except AgentKernelError as error:
            return ToolOutput(client_text(error), "error")
        context = replace(context, call=call)
        verdict = await self._gate.decide(tool.spec, context)
        if not verdict.allowed:
            return ToolOutput(f"This call did not run: {verdict.reason}.", "denied")
        if verdict.edited is None:
            return await self._run_tool(tool, context)
        note = EDITED.format(text=shorten(verdict.edited, EDITED_CHARS))
        try:
            context = replace(context, call=_revise(tool, call, verdict.edited), edited=True)
        except AgentKernelError as error:
            return ToolOutput(f"{note}It did not run: {error}", "error")
        output = await self._run_tool(tool, context)
        return replace(output, text=f"{note}{output.text}")

    async def _run_tool(self, tool: Tool, context: ToolContext) -> ToolOutput:
        if not self._foreign and tool.spec.kind in FOREIGN:
            self._foreign = f"{tool.spec.name} brought text from elsewhere into this turn"
        elif not self._foreign and tool.spec.fetches:
            self._foreign = f"{tool.spec.name} may have brought text from elsewhere into this turn"
        try:
            output = await tool.call(context.call.arguments, context)
        except Exception as error:  # noqa: BLE001  a tool that fails in any way has a result that the model reads
            return ToolOutput(f"{type(error).__name__}: {error}", "error")
        if not self._foreign and output.foreign:
            self._foreign = f"{tool.spec.name} brought text from elsewhere into this turn"
        return output


def _revise(tool: Tool, call: ToolCall, text: str) -> ToolCall:
    """Return the call with ``text``, which a person wrote in place of one of its arguments. Raises AgentKernelError if
    the call cannot run with that text."""
    call = replace(call, arguments={**call.arguments, tool.spec.editable: text})
    return tool.revise(call) if isinstance(tool, CallReviser) else call


def _not_produced(requested: RequestedFile) -> ProducedFile:
    return ProducedFile(requested.path, format=requested.format, error=NOT_PRODUCED)


def _absent(output: ToolOutput) -> list[File]:
    """Return the files that the arguments of the call name but the call did not produce, so that the model is informed
    about them."""
    names = [file.name for file in output.files if file.error == NOT_PRODUCED]
    return [File("", name, "", 0, 0.0, error=NOT_PRODUCED, message="not produced") for name in names]


def _media_to_json(output: ToolOutput) -> list[dict[str, object]]:
    """Describe the media of a call. Data that the client has already displayed is omitted; other readers find it in the
    store."""
    return [
        {"mime": media.mime, "hash": media.hash, "size": media.size}
        | ({} if output.shown else {"data": base64.b64encode(media.data).decode() if media.data else ""})
        for media in output.media
    ]
