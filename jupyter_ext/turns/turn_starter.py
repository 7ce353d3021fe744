"""Starts turns; every route uses this module. It checks that the turn may start, opens its session, chooses its engine,
stores its files, and starts it.

A route translates its wire request into a ``TurnDescription`` and the result into its wire response. A refused turn
leaves no new session behind.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent_kernel.core.errors import AgentKernelError, Conflict, TurnNotFound
from agent_kernel.core.events import TurnVersion
from agent_kernel.core.messages import Message
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Session, SessionKey, Turn, check_id, new_id
from agent_kernel.core.turn_request import Note, TurnRequest
from agent_kernel.permissions.gate import STRICTNESS, strictest
from agent_kernel.turn.custom_instructions import instructions_of_session, read_instructions
from agent_kernel.turn.lost_variables import LOST
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.auth.callers import Caller
from jupyter_ext.notebooks.attached_notebook import AttachedNotebook, AttachedNotebooks
from jupyter_ext.notebooks.bindings import KERNEL
from jupyter_ext.notebooks.kernels import Kernel
from jupyter_ext.notebooks.page_tools import PageTools
from jupyter_ext.notebooks.sidecar_writer import Sidecars
from jupyter_ext.turns.access import Access
from jupyter_ext.turns.dialect_request import SubmittedFile
from jupyter_ext.turns.ephemeral_sessions import EphemeralSessions, is_ephemeral
from jupyter_ext.turns.idempotency import StartedTurn
from jupyter_ext.turns.turn_input_files import TurnInputs
from jupyter_ext.turns.turn_versions import TurnVersions, fingerprint, fingerprints
from jupyter_ext.turns.turns import TurnSpec

LOG_S = 30.0
"""Seconds for which the event log is kept after the end of a turn in a session that is deleted when it is unused."""

TITLE_SOURCE = 100_000
"""Maximum number of characters of a prompt that are read to make a title. A secret in them is removed as a whole."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnDescription:
    """The turn that a route wants to start, before anything is looked up on this server.

    ``request`` has no engine and no epoch yet, and its ``inputs`` are ids of files that the caller may use; ``files``
    are new files, which are stored in the session and added to the inputs. ``model`` is the engine that the client
    names; if it is empty or None, the session's choice is used. The turn uses the session with the id ``session`` if
    that is not None, else the session of the notebook with the path ``notebook`` or of the kernel with the id
    ``kernel``, else a new session.

    ``queue``: the turn waits for the other turns of its session. A client that sends the history with every request
    gets SessionBusy instead, because the other turns would change that history. ``rerun``, ``alive`` and ``replaces``
    have the same meaning as in ``TurnBody``. ``metadata`` is stored with the turn, and ``route`` names the route in the
    metrics.
    """

    request: TurnRequest
    model: str | None = None
    session: str | None = None
    kernel: str = ""
    notebook: str = ""
    files: tuple[SubmittedFile, ...] = ()
    queue: bool = True
    rerun: Literal["append", "ask", "show"] = "append"
    alive: tuple[str, ...] = ()
    replaces: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    route: str = "turns"


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """The session in which a turn starts. ``created``: the session was created for this turn. ``of_place``: the session
    is bound to ``place`` (a notebook or a kernel), so that the next turn of that place uses the session even if this
    turn is refused. ``kernel`` is the turn's kernel."""

    key: SessionKey
    created: bool = False
    of_place: bool = False
    place: str | None = None
    kernel: Kernel | None = None

    @property
    def notebook(self) -> str | None:
        """The path of the notebook of the turn."""
        return None if self.place is None or self.place.startswith(KERNEL) else self.place


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A stored turn whose answer is returned in place of a new turn."""

    turn: Turn
    session: Session
    version: TurnVersion
    notebook: str | None = None


@dataclass(frozen=True, slots=True)
class TurnStarter:
    """Starts turns for the native routes, the dialects (the APIs in the formats of OpenAI and Anthropic) and MCP. The
    dialects find the session of a conversation themselves, so they call the steps of ``start`` separately."""

    runtime: Runtime
    access: Access
    inputs: TurnInputs
    versions: TurnVersions
    attached_notebooks: AttachedNotebooks
    page_tools: PageTools
    sidecars: Sidecars
    ephemeral_sessions: EphemeralSessions

    async def start(self, caller: Caller, plan: TurnDescription, turn_id: str = "") -> StartedTurn | StoredAnswer:
        """Start the turn. If ``rerun`` is ``show`` and the cell has a valid stored answer, return that answer instead.
        ``turn_id`` is an id that was reserved for the turn.

        Raises Conflict, Forbidden, NotFound, UnknownModel, SessionBusy, TooManyRequests, BudgetSpent, EngineBusy,
        FileNotFound, TurnNotFound, InvalidRequest.
        """
        await self.admit(caller, plan.model, may_start=plan.rerun != "show")
        kernel, place = await self._find_place(caller, plan)
        opened = await self.open_session(caller, plan.session, plan.request.last_user_text, place)
        return await self.start_in(dataclasses.replace(opened, kernel=kernel), caller, plan, turn_id)

    async def admit(self, caller: Caller, model: str | None, *, may_start: bool = True) -> None:
        """Check that a turn may start now, before a session is created for the turn. With ``may_start`` False only the
        model is checked: the request may be answered from the store, which counts against no limit, and ``Turns.start``
        checks the limits if a turn starts after all.

        Raises Forbidden, UnknownModel, TooManyRequests, BudgetSpent, and the error that was passed to
        ``Turns.stop_accepting``.
        """
        if may_start:
            self.access.turns.check_accepting()
        if model and self.access.may_choose(caller, model):  # otherwise ``Access.engine`` refuses it
            self.access.check_visible(caller, model)
            self.runtime.engines.get(model)
        if may_start:
            await self.access.turns.check_limits(caller.namespace, caller.token.id if caller.token else "")

    async def open_session(
        self, caller: Caller, session: str | None, prompt: str, place: str | None = None
    ) -> OpenedSession:
        """Return the session with the id ``session``; if that is None, the session of ``place``; without a place, a new
        session.

        A new session gets its title from ``place`` or ``prompt``. Raises Forbidden, InvalidRequest.
        """
        if session is None and place is not None:
            key, created = await self.access.notebooks.ensure_session(caller.namespace, place, self._title(prompt))
            if caller.kernel:
                caller.kernel.sessions.add(key.id)
            return OpenedSession(key, created, of_place=True, place=place)
        key = SessionKey(caller.namespace, check_id(session) if session else new_id("session"))
        created = await self.access.claim_id(caller, key.id)
        if created:
            await self.runtime.store.create(key, self.access.notebooks.new_title(place or KERNEL, self._title(prompt)))
        elif session:
            await self.runtime.store.forget(key)
        return OpenedSession(key, created, place=place)

    async def start_in(
        self, opened: OpenedSession, caller: Caller, plan: TurnDescription, turn_id: str = ""
    ) -> StartedTurn | StoredAnswer:
        """Start the turn in this session, as ``start`` does. A session that was created for the turn is removed if the
        turn is refused, unless another turn uses it."""
        try:
            return await self._start_in(opened, caller, plan, turn_id)
        except AgentKernelError:
            if opened.created and not opened.of_place:
                await self._remove(caller, opened.key)
            raise

    async def _start_in(
        self, opened: OpenedSession, caller: Caller, plan: TurnDescription, turn_id: str
    ) -> StartedTurn | StoredAnswer:
        request, why = await self._complete(opened, caller, plan), None
        if plan.rerun == "show":
            model = self.runtime.engines.get(request.model).info().model
            same = fingerprint(request, model)
            if request.page in ("", "none") and (stored := await self._find_answer(opened, request.cell, same, plan)):
                return stored
            if request.cell:
                parts = fingerprints(request, model)
                why = await self.versions.explain_rerun(opened.key, request.cell, same, parts)
        turn = await self.access.turns.start(self._spec(opened, caller, plan, request, turn_id), queue=plan.queue)
        again = {"reason": why[0], "turn": why[1]} if why else None
        return StartedTurn(turn, {"created": opened.created, "notebook": opened.notebook, "asked_again": again})

    async def _find_place(self, caller: Caller, plan: TurnDescription) -> tuple[Kernel | None, str | None]:
        """Return the kernel of the turn, and its place: a notebook's path or ``kernel:ID``. Either may be None."""
        if caller.kernel and self.attached_notebooks.jobs.runs_in(caller.kernel.id):
            # The new turn would wait for the end of the turn whose code starts it.
            raise Conflict("The agent's code is running in this kernel; it cannot start a turn of its own.")
        if plan.notebook:
            return await self.access.kernel_of(caller, plan.notebook), plan.notebook
        kernel = self.access.kernel(caller, plan.kernel)
        return kernel, await self.access.notebooks.place(kernel.id) if kernel else None

    async def _complete(self, opened: OpenedSession, caller: Caller, plan: TurnDescription) -> TurnRequest:
        """Return the request with all fields that a turn needs: engine, page tools, epoch, instructions and input
        files. The files are stored last, so that a request that is refused for another reason adds no files to a
        session."""
        key, kernel, request = opened.key, opened.kernel, plan.request
        request = dataclasses.replace(request, model=await self.access.engine(caller, key, plan.model))
        if kernel:
            served = self.page_tools.tools(caller.namespace, kernel.id, by_kernel=caller.kernel is not None)
            epoch = kernel.epoch if request.where in ("live", "draft") else ""
            request = dataclasses.replace(request, epoch=epoch, client_tools=request.client_tools | served)
        if plan.replaces:
            request = await repeat_request(self.runtime.store, key, request, plan.replaces)
        folder = self.access.notebooks.directory(opened.notebook) if opened.notebook else None
        session = await self.runtime.store.info(key)
        more = (request.instructions, instructions_of_session(session.metadata if session else {}))
        instructions = await asyncio.to_thread(
            read_instructions, self.runtime.settings.instructions, folder, self.runtime.trust, *more
        )
        request = dataclasses.replace(request, instructions=instructions)
        await self.inputs.attach(caller, key, plan.request.inputs)
        added = await self.inputs.add(caller, key, plan.files)
        return dataclasses.replace(request, inputs=(*request.inputs, *added))

    def _spec(
        self, opened: OpenedSession, caller: Caller, plan: TurnDescription, request: TurnRequest, turn_id: str
    ) -> TurnSpec:
        return TurnSpec(
            opened.key,
            request,
            kernel=opened.kernel.id if opened.kernel else "",
            started_by=caller.started_by,
            notebook_dir=self.access.notebooks.directory(opened.notebook) if opened.notebook else None,
            notebook=self._attach(opened, caller),
            notice=self.sidecars.problem(caller.namespace, opened.notebook),
            metadata=plan.metadata,
            new_version=plan.rerun != "append",
            replaces=plan.replaces,
            keep_s=LOG_S if is_ephemeral(opened.key.id) else None,
            token=caller.token.id if caller.token else "",
            route=plan.route,
            id=turn_id,
        )

    def _attach(self, opened: OpenedSession, caller: Caller) -> AttachedNotebook | None:
        """Return access to the turn's notebook: to its file only if the turn has no kernel, and None without a
        notebook."""
        if opened.kernel is None:
            return self.attached_notebooks.open_file(opened.notebook) if opened.notebook else None
        return self.attached_notebooks.of_turn(opened.kernel, opened.place or "", by_user=caller.kernel is None)

    async def _find_answer(
        self, opened: OpenedSession, cell: str, same: str, plan: TurnDescription
    ) -> StoredAnswer | None:
        """Return the stored answer of the cell if it is still valid, else None. ``same`` is the fingerprint of the
        request."""
        turn = await self.versions.find_valid_answer(opened.key, cell, same, plan.alive)
        session = await self.runtime.store.info(opened.key)
        if turn is None or session is None:
            return None
        version = await self.versions.describe(turn) or TurnVersion(session.branch, 1, 1, replaces="", kept_on="")
        return StoredAnswer(turn, session, version, opened.notebook)

    def _title(self, prompt: str) -> str:
        beginning = prompt.lstrip()[:TITLE_SOURCE]
        return self.runtime.post_turn_tasks.title(self.runtime.turn_writer.redactor.text(beginning))

    async def _remove(self, caller: Caller, key: SessionKey) -> None:
        if self.access.turns.find_unfinished(key) is not None:
            return
        if is_ephemeral(key.id):
            await self.ephemeral_sessions.forget(key)
            return
        try:
            session = await self.runtime.store.info(key)
            if session is None or session.turns:
                return
            await self.access.private.forget(key)
        except AgentKernelError as error:  # the client gets the reason for the refused turn, not this error
            log.warning("a session that was created for a refused turn could not be deleted: %s", error)
            return
        if caller.kernel is not None:
            caller.kernel.sessions.discard(key.id)


# Builds the request for a turn that replaces an earlier turn and has the same prompt.


async def repeat_request(store: SessionStore, key: SessionKey, request: TurnRequest, replaces: str) -> TurnRequest:
    """Return ``request`` with the prompt, media, files and hidden notes of the turn ``replaces``. A request that has a
    prompt or messages of its own is returned unchanged.

    The permission is the stricter one of the two turns. Raises TurnNotFound if the session has no such turn or its
    prompt is not stored.
    """
    turn = await store.turn(key.namespace, replaces)
    if turn is None or turn.key != key:
        raise TurnNotFound("This session has no turn with this id.")
    if request.prompt or request.messages:
        return request
    messages = [item.message for item in await store.of_turn(turn) if item.message.role == "user"]
    original = next((message for message in messages if not message.hidden), None)
    if original is None or not (original.text or original.media):
        raise TurnNotFound("The prompt of this turn is not stored.", hint="Send the prompt again.")
    media = [replace(medium, data=await store.blob(key, medium.hash)) for medium in original.media]
    notes = tuple(Note("", text) for message in messages if message.hidden and (text := _without_kernel_state(message)))
    permissions = (request.permission, turn.record.get("permission"))
    permission = strictest(*(permission for permission in permissions if permission in STRICTNESS))
    return replace(
        request,
        prompt=original.text,
        media=tuple(media),
        notes=(*notes, *request.notes),
        inputs=request.inputs or tuple(str(id) for id in turn.record.get("inputs", ())),
        permission=permission,
    )


def _without_kernel_state(message: Message) -> str:
    """Return the text of the message without the note about the kernel's state, which described only that moment."""
    return message.text.removeprefix(LOST).strip()
