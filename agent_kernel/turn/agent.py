"""Runs a turn from beginning to end: request, session, context, engine, tool calls, tool results, storage, events.

``Agent`` works in any process. It loads and saves by itself and does not depend on Jupyter or HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Unpack

from agent_kernel.core.errors import AgentKernelError, Conflict, InvalidRequest, client_text
from agent_kernel.core.events import (
    AnswerChecked,
    CallReturned,
    ContextBuilt,
    Emit,
    Event,
    EventBody,
    EventNumbering,
    Notice,
    StateLost,
    TurnFinished,
    TurnStarted,
    TurnState,
)
from agent_kernel.core.messages import Media, Message, Part, tool_result
from agent_kernel.core.programs.answer_form import slots_of
from agent_kernel.core.protocols import Engine, EngineRequest, Tool, ToolSpec
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey, SessionUpdate, Turn, new_id
from agent_kernel.core.settings import Effort
from agent_kernel.core.shielded_await import await_uncancelled
from agent_kernel.core.turn_request import Note, TurnRequest
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions import serialization
from agent_kernel.tools.base import tool_source
from agent_kernel.tools.base.callbacks import CallbackTools
from agent_kernel.tools.base.caller_tools import AWAITED, CallerTools
from agent_kernel.tools.base.functions import as_tool
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.turn.agent_options import MAX_TOOL_ROUNDS, AgentOptions, TurnNotebook, TurnServices
from agent_kernel.turn.answer_check import check_answer
from agent_kernel.turn.changed_cells import ChangedCells
from agent_kernel.turn.context import INSTRUCTIONS, ContextBuilder, ModelView
from agent_kernel.turn.history import ConversationHistory
from agent_kernel.turn.model_call import model_call
from agent_kernel.turn.observers import Observers
from agent_kernel.turn.post_turn_tasks import AnsweredTurn, PostTurnTasks
from agent_kernel.turn.redacted_events import JoinedDeltas, RedactedEvents
from agent_kernel.turn.tool_executor import RoundPosition, Toolbox
from agent_kernel.turn.turn_annotations import TurnAnnotations
from agent_kernel.turn.turn_result import TurnResult
from agent_kernel.turn.turn_state import ActiveTurn
from agent_kernel.turn.turn_writer import OpenTurn, TurnWriter
from agent_kernel.turn.voting_engine import PYTHON, ROUNDS, VotingEngine

log = logging.getLogger(__name__)
MAX_NOTES = 100
"""Maximum number of notes (hidden context of one turn) whose titles are stored with the turn."""
NOTE_CHARS = 200
IMPORTED = "this conversation was imported"
__all__ = ["Agent", "Note", "TurnRequest", "TurnResult"]


class Agent:
    """The agent of one session. The session is created if it does not exist.

    ``tools`` may be typed functions. Without a ``gate`` the default policy applies and nobody can be asked.
    ``services`` and ``notebook`` are set by a server; ``options`` are described in ``AgentOptions``.
    """

    def __init__(
        self,
        store: SessionStore,
        engine: Engine,
        session: SessionKey | str,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        *,
        gate: Gate | None = None,
        services: TurnServices | None = None,
        notebook: TurnNotebook | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        if unknown := options.keys() - AgentOptions.__annotations__.keys():
            raise TypeError(f"Agent has no option {', '.join(sorted(unknown))}.")
        services = services or TurnServices()
        observers = options.get("observers", ())
        self.key = session if isinstance(session, SessionKey) else SessionKey("local", session)
        self._store = store
        self._engine = engine
        self._tools = tuple(map(as_tool, tools))
        self._metadata = dict(options.get("metadata") or {})
        self._gate = gate or Gate(Approvals())
        self._writer = services.writer or TurnWriter(store)
        self._observers = observers if isinstance(observers, Observers) else Observers(observers)
        self._post_turn_tasks = services.post_turn_tasks or PostTurnTasks.on_demand(store, self._writer)
        self._history = ConversationHistory(
            store,
            self.key,
            clean=self._writer.clean,
            hook=options.get("input_hook"),
            limit=options.get("history_limit"),
        )
        self._max_tool_rounds = options.get("max_tool_rounds", MAX_TOOL_ROUNDS)
        self._sources = (*services.sources, CallbackTools(options.get("tool_callbacks") or {}), CallerTools())
        self._files = services.files
        self._notebook = notebook or TurnNotebook()
        self._imported = ""
        self._effort: Effort = options.get("effort", "auto")
        self._check_numbers = options.get("check_numbers", True)

    async def run(self, request: TurnRequest | str) -> TurnResult:
        """Run one turn to its end. Raises SessionBusy.

        A turn that fails does not raise an error: its result contains the ``error``, which
        ``TurnResult.raise_for_state`` raises.
        """
        return await self.turn(_request(request), lambda body: None)

    async def stream(self, request: TurnRequest | str) -> AsyncGenerator[Event, None]:
        """Run one turn and yield its events. Closing the iterator stops the turn. Raises SessionBusy."""
        turn_id = new_id("turn")
        stamp = EventNumbering(turn_id, self.key.id)
        bodies: asyncio.Queue[EventBody | None] = asyncio.Queue()
        task = asyncio.create_task(self.turn(_request(request), bodies.put_nowait, turn_id))
        task.add_done_callback(lambda _: bodies.put_nowait(None))
        try:
            while (body := await bodies.get()) is not None:
                yield stamp(body)
            await task
        finally:
            task.cancel("stopped by the program that asked")
            await asyncio.wait([task])

    async def turn(
        self, request: TurnRequest, emit: Emit, turn_id: str | None = None, *, deltas_per_s: float = math.inf
    ) -> TurnResult:
        """Run one turn and pass its events to ``emit``, with deltas joined to at most ``deltas_per_s`` a second.

        Raises SessionBusy before the first event. In every other case, the turn is closed and TurnFinished is the last
        event. A cancellation (its message is the reason) is raised again after that event.
        """
        await self._post_turn_tasks.give_way(self.key)
        opened = await self._open(request, turn_id or new_id("turn"))
        redactor = self._writer.redactor
        with JoinedDeltas(RedactedEvents(redactor, emit), deltas_per_s) as joined_emit:
            changes, annotations = ChangedCells(redactor), TurnAnnotations(redactor)
            return await self._run(ActiveTurn(request, opened, joined_emit, changes=changes, annotations=annotations))

    async def _run(self, turn: ActiveTurn) -> TurnResult:
        request, opened = turn.request, turn.opened
        try:
            async with opened:
                await self._rounds(turn)
                await self._check(turn)
        except asyncio.CancelledError as stop:
            ended: TurnState = "interrupted" if self._gate.approvals.was_interrupted(opened.turn.id) else "cancelled"
            await await_uncancelled(self._finish(turn, ended, str(stop) or "stopped"))
            raise
        except Exception as error:  # noqa: BLE001  a turn that fails in any way ends with one event
            if isinstance(error, Conflict):
                await self._observers.notify_conflict(self.key.id, error)
            return await await_uncancelled(self._finish(turn, "failed", client_text(error), _to_agent_error(error)))
        result = await await_uncancelled(self._finish(turn, "committed", ""))
        answered = AnsweredTurn(self.key, opened.turn.ordinal == 1, request.last_user_text, turn.text, turn.share)
        self._post_turn_tasks.note_end(answered, self._engine)
        return result

    async def _open(self, request: TurnRequest, turn_id: str) -> OpenTurn:
        await self._ensure_session(request)
        info = self._engine.info()
        record = self._metadata | {"permission": request.permission, "local": info.local, "host": info.host}
        if request.notes:
            titles = [self._writer.redactor.text(note.title)[:NOTE_CHARS] for note in request.notes[:MAX_NOTES]]
            record |= {"notes": titles}
        if request.inputs:
            record |= {"inputs": list(request.inputs[:MAX_NOTES])}
        turn = Turn(turn_id, self.key, cell=request.cell, epoch=request.epoch, where=request.where, model=info.model)
        return await self._writer.begin(replace(turn, record=record))

    async def _ensure_session(self, request: TurnRequest) -> None:
        """Create the session if it does not exist, and give it a title if it has none. A title that a person wrote
        stays. Raises InvalidRequest for a prompt that is not valid Unicode."""
        prompt = serialization.text(request.last_user_text, "prompt")
        title = self._post_turn_tasks.title(self._writer.redactor.text(prompt))
        session = await await_uncancelled(self._store.create(self.key, title))
        if title and not session.title and not session.turns:
            session = await await_uncancelled(self._store.describe(self.key, SessionUpdate(title=title, instead_of="")))
        self._imported = "" if session.imported is None else IMPORTED
        self._post_turn_tasks.note_begin(session, title)

    async def _rounds(self, turn: ActiveTurn) -> None:
        """Alternate model calls and tool calls until the model calls no tool or has used all its rounds."""
        info = self._engine.info()
        turn.emit(TurnStarted(info.model, info.local, turn.request.where, info.host))
        offered = await self._gather_tools(turn)
        noted = replace(turn.request, notes=(*turn.request.notes, *offered.notes))
        prepared = await self._history.prepare(noted, turn.opened.head, offered.page)
        await self._observers.notify_load(turn.opened.turn.id, self.key.id, len(prepared.history))
        for news in self._post_turn_tasks.news(self.key):
            turn.emit(news)
        if prepared.lost:
            turn.emit(StateLost(prepared.lost))
        await turn.begin(prepared)
        # Until a model is loaded it may be unknown whether it has vision. Images are sent then; engines without vision
        # replace them with a text note.
        context = ContextBuilder(
            info.context_length,
            prepared.instructions or "\n\n".join(filter(None, (INSTRUCTIONS, turn.request.instructions))),
            sees=info.vision or (info.local and info.state != "ready"),
            summary=prepared.summary,
        )
        toolbox = Toolbox(offered.tools, self._gate, self._files, foreign=self._imported, wanted=turn.request.outputs)
        cap = self._cap(turn.request)
        while True:
            view = context.view(prepared.history, turn.messages)
            turn.share = max(turn.share, view.share)
            turn.emit(ContextBuilt(len(view.messages), view.dropped, view.shortened, bool(prepared.summary)))
            tools = toolbox.offer(last=turn.rounds >= cap)
            theirs = frozenset(spec.name for spec in toolbox.caller_specs)
            request = self._build_request(turn, await self._with_media(turn, view), tools)
            place = RoundPosition(self.key, turn.opened.turn.id, turn.rounds + 1, turn.opened.turn.ordinal - 1)
            engine = await self._engine_for(turn, toolbox, place)
            calls, handed = await model_call(engine, request, turn, theirs, self._writer.redactor)
            if turn.rounds == 0:
                self._tell_unseen(turn)
            if calls:
                turn.rounds += 1
                async with aclosing(toolbox.run(calls, place, turn.emit)) as results:
                    async for result in results:
                        await turn.save(result)
            if handed is not None:
                await _return_calls(turn, handed)
            if handed is not None or not calls:
                await toolbox.end(place, turn.emit)
                return

    async def _gather_tools(self, turn: ActiveTurn) -> OfferedTools:
        """Collect the tools of the turn: the agent's own tools and those that its sources offer.

        If no tool may run here, only the caller's functions are offered. Raises InvalidRequest if a function of the
        caller has the name of a tool of this server.
        """
        silent = self._cap(turn.request) == 0
        if silent and not (turn.request.page or turn.request.functions or turn.request.inputs):
            return OfferedTools()
        request = replace(turn.request, tools=()) if silent else turn.request
        notebook = self._notebook
        about = (notebook.directory, notebook.trusted, notebook.access, turn.opened.turn.id)
        offered = await tool_source.gather_tools(self._sources, ToolSourceContext(self.key, request, turn.emit, *about))
        if silent:
            theirs = tuple(tool for tool in offered.tools if tool.spec.where == "caller")
            return OfferedTools(theirs, offered.notes if turn.request.inputs else (), offered.page)
        own = {tool.spec.name for tool in self._tools}
        tools = (*self._tools, *(tool for tool in offered.tools if tool.spec.name not in own))
        # The tool of a declared function has the same schema object as the declaration. The comparison with "is not"
        # therefore finds server tools that only have the same name.
        functions = (spec for spec in turn.request.functions if spec.source == "external" or spec.where == "caller")
        declared = {spec.name: spec.parameters for spec in functions}
        same_named = (tool.spec for tool in tools if tool.spec.name in declared)
        if taken_names := [spec.name for spec in same_named if spec.parameters is not declared[spec.name]]:
            raise InvalidRequest(
                f"The server already has a tool named {', '.join(taken_names)}.", hint="Rename your function."
            )
        turn.tools = tuple(tool.spec.name for tool in tools)
        return OfferedTools(tools, offered.notes, offered.page)

    def _build_request(self, turn: ActiveTurn, view: ModelView, tools: tuple[ToolSpec, ...]) -> EngineRequest:
        request = turn.request
        owed = turn.owed_tools(tools)
        tools = owed or tools
        bound = tools and (turn.rounds == 0 or request.tool_choice == "none" or owed)
        return EngineRequest(
            view.messages,
            tools,
            request.sampling,
            f"{self.key.namespace}/{self.key.id}",
            tool_choice=request.tool_choice if bound else "auto",
            parallel_calls=request.parallel_calls,
            output=request.output,
        )

    async def _engine_for(self, turn: ActiveTurn, toolbox: Toolbox, place: RoundPosition) -> Engine:
        """Return the engine for the next model call. If the effort of the turn asks for several programs and programs
        can be tried here, this is an engine that samples several programs.

        With the effort ``auto``, several programs are sampled only if two conditions hold. The engine decodes them
        together in one batch. And either the last call has failed, or the reply is expected to be a program: this is so
        in the first round if the request demands a call of ``python`` or the prompt demands values in the form
        ``@name[value]``. If the reply is expected to be a program, the first samples are decoded at the same time as
        the reply.
        """
        effort, info = turn.request.effort or self._effort, self._engine.info()
        failed = bool(turn.messages) and turn.messages[-1].role == "tool" and turn.messages[-1].status == "error"
        demanded = turn.rounds == 0 and (turn.request.tool_choice == PYTHON or bool(slots_of(turn.request.prompt)))
        if effort == "thorough" or (effort == "auto" and (failed or demanded) and info.batches):
            try_programs = await toolbox.program_trials(place, turn.emit)
            if try_programs is not None:
                return VotingEngine(self._engine, try_programs, turn.note_vote, ROUNDS[effort], demanded)
        return self._engine

    async def _with_media(self, turn: ActiveTurn, view: ModelView) -> ModelView:
        """Load the bytes of media in earlier messages that the model is shown. The store keeps them separately from
        items."""

        async def load(part: Part) -> Part:
            if not isinstance(part, Media) or part.data is not None:
                return part
            if part.hash not in turn.media:
                turn.media[part.hash] = await self._store.blob(self.key, part.hash) or b""
            return replace(part, data=turn.media[part.hash] or None)

        messages = [
            replace(message, parts=tuple([await load(part) for part in message.parts])) if message.media else message
            for message in view.messages
        ]
        return replace(view, messages=tuple(messages))

    async def _check(self, turn: ActiveTurn) -> None:
        """Find the origin of each number of the answer, in conversations in which tools ran."""
        if not self._check_numbers:
            return
        numbers = await check_answer(self._store, self.key, turn, self._writer.redactor)
        if numbers:
            turn.numbers = numbers
            turn.emit(AnswerChecked(tuple(number.to_json() for number in turn.numbers)))

    def _tell_unseen(self, turn: ActiveTurn) -> None:
        info = self._engine.info()
        if turn.request.media and not info.vision:
            count = len(turn.request.media)
            turn.emit(Notice("warning", f"{info.model} reads text only; the {count} image(s) were not sent to it."))

    def _cap(self, request: TurnRequest) -> int:
        requested = self._max_tool_rounds if request.max_tool_rounds is None else request.max_tool_rounds
        return min(requested, self._max_tool_rounds)

    async def _finish(
        self, turn: ActiveTurn, state: TurnState, reason: str, error: AgentKernelError | None = None
    ) -> TurnResult:
        if state != "committed":
            await self._keep_unfinished(turn, reason)
        turn.usage = replace(turn.usage, turn_s=turn.time.seconds)
        fault = error.to_json() if error is not None else None
        failure = {"error": self._writer.redactor.value(fault)} if fault else {}
        unsaved = await turn.opened.close(state, reason, turn.usage, turn.record | failure)
        if unsaved is not None:
            turn.emit(Notice("error", f"The end of this turn is not stored yet; it is retried: {client_text(unsaved)}"))
        if self._writer.transcripts is not None and (problem := self._writer.transcripts.take_problem()):
            turn.emit(Notice("warning", problem))
        finish, stopped = (turn.finish, turn.stopped) if state == "committed" else ("", "")
        turn.emit(TurnFinished(state, reason, turn.rounds, turn.usage.to_json(), fault, finish, stopped))
        await self._observers.notify_save(turn.opened.turn.id, self.key.id, turn.saved)
        return TurnResult(turn.opened.turn.id, state, turn.text, turn.usage, turn.rounds, error, turn.saved)

    async def _keep_unfinished(self, turn: ActiveTurn, reason: str) -> None:
        """Store what a stopped turn has not stored yet: the output of its unfinished calls, or the prompt if the turn
        was stopped before its first request to the model. If the store fails here, the failure is reported when the
        turn is closed."""
        messages = turn.unfinished.results(reason) if turn.began else self._history.prompt_messages(turn.request)
        if messages:
            with contextlib.suppress(AgentKernelError):
                turn.saved += len(await turn.opened.append(messages))


async def _return_calls(turn: ActiveTurn, message: Message) -> None:
    """End the turn with the calls of ``message``, which the caller runs. Placeholder results are stored for them until
    the caller sends the real ones."""
    turn.finish = "calls"
    turn.returned += [call.id for call in message.calls]
    await turn.save(message, *(tool_result(call, AWAITED, "interrupted") for call in message.calls))
    for call in message.calls:
        turn.emit(CallReturned(call.id, call.name, dict(call.arguments)))


def _request(request: TurnRequest | str) -> TurnRequest:
    return TurnRequest(request) if isinstance(request, str) else request


def _to_agent_error(error: Exception) -> AgentKernelError:
    if isinstance(error, AgentKernelError):
        return error
    log.error("a turn failed", exc_info=error)
    return AgentKernelError(
        f"{type(error).__name__}: {error}", hint="This is a bug in agent-kernel. See its log for details."
    )
