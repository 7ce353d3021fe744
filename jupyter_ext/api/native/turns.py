"""Turns: start, describe, follow, cancel; and the calls that clients run for them."""

from __future__ import annotations

import contextlib
import dataclasses

from agent_kernel.core.errors import Conflict, TurnNotFound
from agent_kernel.core.events import TurnVersion
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.sessions.store.private_store import is_private
from agent_kernel.tools.base.client_call_broker import LEASE_S, RENEW_S
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.http.sse import encode_events
from jupyter_ext.api.native.request_schemas import (
    CLAIM_ACTIONS,
    CancelBody,
    ClaimActionBody,
    ClaimBody,
    FinishBody,
    OutputBody,
    RenewBody,
    TurnBody,
)
from jupyter_ext.api.schemas import turns as shapes
from jupyter_ext.api.schemas.operation import IDEMPOTENCY_KEY, SESSION, TURN_EVENTS, Count, Parameter, limit, operation
from jupyter_ext.notebooks.bindings import KERNEL
from jupyter_ext.notebooks.kernels import Kernel
from jupyter_ext.turns.idempotency import HEADER, REPLAYED, IdempotentStart, read_key
from jupyter_ext.turns.regenerate import repeat_request
from jupyter_ext.turns.stored_events import replay
from jupyter_ext.turns.turn_admission import OpenedSession
from jupyter_ext.turns.turn_versions import fingerprint, fingerprints
from jupyter_ext.turns.turn_window import read_window
from jupyter_ext.turns.turns import TurnSpec

LISTED = 20
MAX_LISTED = 200
SPEAKS = "Something is said: a prompt, or messages that end with the user's or with results of tools."


class TurnsHandler(AgentHandler):
    """``turns``: turns of the session of the caller's notebook."""

    @guard("execute")
    @operation(
        "Start a turn.",
        shapes.Started,
        status=202,
        body=TurnBody,
        query=(IDEMPOTENCY_KEY,),
        also={200: shapes.Stored},
        errors=(404, 409, 507),
        conditions=SPEAKS,
    )
    async def post(self, session_id: str | None = None) -> None:
        body, request = self.parse(TurnBody), self.request
        if session_id is not None:
            body = body.of_session(session_id)
        key = read_key(self.caller, request.headers.get(HEADER), request.path, request.body)
        if key is None:
            begun = await self._begin(body, "")
        else:
            found = await self.services.idempotency.start_once(key, lambda turn: self._begin(body, turn))
            begun = found[1] if found else None
        if begun is None:
            return
        if begun.replayed:
            self.set_header(REPLAYED, "true")
        session = begun.turn.spec.key
        known = await self.services.runtime.store.info(session)
        reply = {"turn": begun.turn.id, "session": session.id, "title": known.title if known else "", **begun.facts}
        self.reply({**reply, "private": is_private(session.id), "stored": False}, 202)

    async def _begin(self, body: TurnBody, turn_id: str) -> IdempotentStart | None:
        """Start the turn; None if a stored answer was shown instead."""
        caller, admission = self.caller, self.services.turn_admission
        if body.rerun == "show":  # a stored answer may be used, which counts against no limit
            admission.check_model(caller, body.model)
        else:
            await admission.admit(caller, body.model)
        if caller.kernel and self.services.kernel_jobs.runs_in(caller.kernel.id):
            raise Conflict("The agent's code is running in this kernel; it cannot start a turn of its own.")
        kernel = self.services.access.kernel(caller, body.kernel)
        place = await self.services.notebooks.place(kernel.id) if kernel else None
        opened = await admission.open_session(caller, body.session, place, body.request("", "").last_user_text)
        async with admission.removed_if_refused(caller, opened):
            return await self._begin_in(opened, body, turn_id, kernel, place)

    async def _begin_in(
        self, opened: OpenedSession, body: TurnBody, turn_id: str, kernel: Kernel | None, place: str | None
    ) -> IdempotentStart | None:
        caller, key = self.caller, opened.key
        await self.services.turn_inputs.attach(caller, key, body.inputs)
        engine = await self.services.access.engine(self.caller, key, body.model)
        notebook = None if place is None or place.startswith(KERNEL) else place
        request = body.request(kernel.epoch if kernel else "", engine)
        if kernel:
            served = self.services.page_tools.tools(caller.namespace, kernel.id, by_kernel=caller.kernel is not None)
            request = dataclasses.replace(request, client_tools=request.client_tools | served)
        if body.replaces:
            request = await repeat_request(self.services.runtime.store, key, request, body.replaces)
        if (
            body.rerun == "show"
            and body.page in ("", "none")
            and await self._reply_stored_answer(key, request, body.alive, notebook)
        ):
            return None
        again = await self._why_again(key, request) if body.rerun == "show" and request.cell else None
        order = TurnSpec(
            key,
            request,
            kernel=kernel.id if kernel else "",
            started_by=caller.started_by,
            token=caller.token.id if caller.token else "",
            notebook_dir=self.services.notebooks.directory(notebook) if notebook else None,
            notebook=self.services.attached_notebooks.of_turn(kernel, place or "", by_user=caller.kernel is None),
            notice=self.services.sidecars.problem(caller.namespace, notebook),
            metadata={"client_tools": sorted(body.client_tools)},
            new_version=body.rerun != "append",
            replaces=body.replaces or "",
            id=turn_id,
        )
        turn = await self.services.turns.start(order, queue=body.queue)
        return IdempotentStart(turn, {"created": opened.created, "notebook": notebook, "asked_again": again})

    async def _why_again(self, key: SessionKey, request: TurnRequest) -> dict[str, str] | None:
        """Return why the cell is asked again; None if it has never been asked."""
        model = self.services.runtime.engines.get(request.model).info().model
        asked, parts = fingerprint(request, model), fingerprints(request, model)
        why = await self.services.turn_versions.explain_rerun(key, request.cell, asked, parts)
        return {"reason": why[0], "turn": why[1]} if why else None

    async def _reply_stored_answer(
        self, key: SessionKey, request: TurnRequest, alive: list[str], notebook: str | None
    ) -> bool:
        """Answer with the stored turn if it is still valid, without calling a model."""
        runtime, versions = self.services.runtime, self.services.turn_versions
        asked = fingerprint(request, runtime.engines.get(request.model).info().model)
        turn = await versions.find_valid_answer(key, request.cell, asked, alive)
        session = await runtime.store.info(key)
        if turn is None or session is None:
            return False
        reply = {"turn": turn.id, "session": key.id, "title": session.title, "created": False, "notebook": notebook}
        version = await versions.describe(turn) or TurnVersion(session.branch, 1, 1, replaces="", kept_on="")
        reply |= {"private": is_private(key.id), "stored": True}
        self.reply({**reply, "answered": turn.closed, "version": dataclasses.asdict(version)})
        return True


class SessionTurnsHandler(TurnsHandler):
    """``sessions/{id}/turns``."""

    @guard("read")
    @operation(
        "List the turns of a session, with their events.",
        shapes.Turns,
        query=(limit(LISTED, MAX_LISTED), Parameter("before", "The turn before which they lie.")),
        errors=(404,),
    )
    async def get(self, session_id: str) -> None:
        """The last ``limit`` turns, or the last ones before the turn ``before``."""
        session = await self.services.access.session(self.caller, session_id)
        limit = min(self.number("limit", LISTED) or LISTED, MAX_LISTED)
        line = self.services.turns.line(session.key)
        before = self.get_argument("before", "")
        self.reply(await read_window(self.services.runtime.store, session.key, limit, before, line=line))


class TurnHandler(AgentHandler):
    @guard("read")
    @operation("Get the state of a turn.", shapes.State, query=(SESSION,), errors=(404,))
    async def get(self, turn_id: str) -> None:
        try:
            turn = await self.services.access.turn(self.caller, turn_id)
        except TurnNotFound:
            await self._reply_stored_turn(turn_id)
            return
        end = turn.log.finished
        self.reply(
            {
                "turn": turn.id,
                "session": turn.spec.key.id,
                "state": turn.state,
                "reason": end.reason if end else "",
                "usage": dict(end.usage) if end else {},
                "events": turn.log.head,
                "running": turn.running,
            }
        )

    async def _reply_stored_turn(self, turn_id: str) -> None:
        turn = await self.services.access.stored_turn(self.caller, turn_id, self.get_argument("session", None))
        self.reply(
            {
                "turn": turn.id,
                "session": turn.key.id,
                "state": turn.state,
                "reason": turn.reason,
                "usage": dict(turn.usage),
                "events": 0,
                "running": turn.state == "open",
            }
        )


class TurnEventsHandler(AgentHandler):
    @guard("read")
    @operation(
        "Follow a turn.",
        streams=TURN_EVENTS,
        query=(
            Parameter("after", "Only events after this number; wins over Last-Event-ID.", Count),
            Parameter("stored", "1: what is kept of the turn, with its media, not the log."),
            SESSION,
            Parameter("Last-Event-ID", "Where an earlier reader stopped.", place="header"),
        ),
        errors=(404,),
    )
    async def get(self, turn_id: str) -> None:
        """``stored``: the stored turn with its media instead of the live log."""
        after, kept = self._after(), self.get_argument("stored", "") == "1"
        with contextlib.suppress(TurnNotFound):
            if not kept:
                live = await self.services.access.turn(self.caller, turn_id)
                await self.stream(encode_events(live.log.follow(after)))
                return
        stored = await self.services.access.stored_turn(self.caller, turn_id, self.get_argument("session", None))
        self.set_header("X-Agent-Stored", "1")  # the numbers of these events differ from those of the log
        await self.stream(encode_events(replay(self.services.runtime.store, stored, after, media=kept)))

    def _after(self) -> int:
        """The query takes precedence: a browser repeats the Last-Event-ID of an earlier connection by itself."""
        last = self.request.headers.get("Last-Event-ID", "")
        from_header = int(last) if last.isascii() and last.isdecimal() and len(last) < 16 else 0
        return self.number("after", from_header) or 0


class TurnCancelHandler(AgentHandler):
    @guard("execute")
    @operation("Stop a turn.", shapes.Ended, body=CancelBody, query=(SESSION,), errors=(404,))
    async def post(self, turn_id: str) -> None:
        body = self.parse(CancelBody)
        try:
            turn = await self.services.access.turn(self.caller, turn_id)
        except TurnNotFound:
            stored = await self.services.access.stored_turn(self.caller, turn_id, self.get_argument("session", None))
            self.reply({"state": stored.state})
            return
        self.reply({"state": await self.services.turns.cancel(turn, body.reason)})


class ClaimsHandler(AgentHandler):
    @guard("execute")
    @operation(
        "Claim a call that a client is to run, or decline it.",
        shapes.Claimed | shapes.Declined,
        body=ClaimBody,
        errors=(404, 409),
    )
    async def post(self, turn_id: str) -> None:
        body = self.parse(ClaimBody)
        turn = self.services.access.own_turn(self.caller, turn_id)
        offers = self.services.runtime.offers
        if body.declined:
            offers.decline(turn.id, body.call, body.client, body.declined)
            self.reply({"declined": True})
            return
        token, call = offers.claim(turn.id, body.call, body.client)
        claim = {"token": token, "lease_s": LEASE_S, "renew_s": RENEW_S}
        self.reply({**claim, "name": call.name, "arguments": dict(call.arguments)})


class ClaimHandler(AgentHandler):
    @guard("execute")
    @operation(
        "Renew a claim, send output, or hand the result over.",
        shapes.Nothing,
        body=RenewBody | OutputBody | FinishBody,
        errors=(404, 409),
    )
    async def post(self, turn_id: str, call: str) -> None:
        body = self.parse(CLAIM_ACTIONS[self.parse(ClaimActionBody).action])
        turn = self.services.access.own_turn(self.caller, turn_id)
        offers = self.services.runtime.offers
        if isinstance(body, FinishBody):
            offers.finish(turn.id, call, body.token, body.output())
        elif isinstance(body, OutputBody):
            offers.output(turn.id, call, body.token, body.stream, body.text)
        else:
            offers.renew(turn.id, call, body.token, body.where, body.state)
        self.reply({})
