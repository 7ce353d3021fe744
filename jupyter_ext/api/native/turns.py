"""Routes that start, describe, follow and cancel turns, and take the results of calls that clients run for them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from agent_kernel.core.errors import Conflict, TurnNotFound
from agent_kernel.core.events import Event, TurnFinished, TurnState
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.store.private_store import is_private
from agent_kernel.tools.base.client_call_broker import LEASE_S, RENEW_S
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.http.sse import encode_batches, encode_events
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
from jupyter_ext.api.schemas.turns import Outputs
from jupyter_ext.turns.idempotency import HEADER, REPLAYED, StartedTurn, read_key
from jupyter_ext.turns.remote_turns import server_unreachable
from jupyter_ext.turns.stored_events import read_window, replay
from jupyter_ext.turns.turn_starter import StoredAnswer

LISTED = 20
MAX_LISTED = 200
SPEAKS = "A prompt must be sent, or messages that end with a message of the user or with tool results."


class TurnsHandler(AgentHandler):
    """The route ``turns``: start a turn in the session of the notebook, or in the session that the body names."""

    @guard("execute")
    @operation(
        shapes.Started,
        status=202,
        body=TurnBody,
        query=(IDEMPOTENCY_KEY,),
        also={200: shapes.Stored},
        errors=(404, 409, 507),
        conditions=SPEAKS,
    )
    async def post(self, session_id: str | None = None) -> None:
        """Start a turn."""
        body, request = self.parse(TurnBody), self.request
        if session_id is not None:
            body = body.with_session(session_id)
        key = read_key(self.caller, request.headers.get(HEADER), request.path, request.body)
        begun = await self.services.idempotency.start_once(key, lambda turn: self._begin(body, turn))
        if begun is None:
            return
        if begun.replayed:
            self.set_header(REPLAYED, "true")
        session = begun.turn.spec.key
        stored_session = await self.services.runtime.store.info(session)
        reply = {
            "turn": begun.turn.id,
            "session": session.id,
            "title": stored_session.title if stored_session else "",
            **begun.facts,
        }
        self.reply({**reply, "private": is_private(session.id), "stored": False}, 202)

    async def _begin(self, body: TurnBody, turn_id: str) -> StartedTurn | None:
        """Start the turn; None if a stored answer was shown instead."""
        begun = await self.services.turn_starter.start(self.caller, body.description(), turn_id)
        if isinstance(begun, StoredAnswer):
            self._reply_stored_answer(begun)
            return None
        return begun

    def _reply_stored_answer(self, stored: StoredAnswer) -> None:
        turn, session = stored.turn, stored.session
        reply = {"turn": turn.id, "session": session.key.id, "title": session.title, "created": False}
        reply |= {"notebook": stored.notebook, "private": is_private(session.key.id), "stored": True}
        self.reply({**reply, "answered": turn.closed, "version": dataclasses.asdict(stored.version)})


class SessionTurnsHandler(TurnsHandler):
    """The route ``sessions/{id}/turns``: start a turn in that session, or list its turns."""

    @guard("read")
    @operation(
        shapes.Turns,
        query=(limit(LISTED, MAX_LISTED), Parameter("before", "List only turns before this turn.")),
        errors=(404,),
    )
    async def get(self, session_id: str) -> None:
        """List the turns of a session, with their events.

        The newest ``limit`` turns are listed, or with ``before`` the newest ones before that turn.
        """
        session = await self.services.access.session(self.caller, session_id)
        limit = min(self.number("limit", LISTED) or LISTED, MAX_LISTED)
        line = self.services.turns.line(session.key)
        before = self.get_argument("before", "")
        self.reply(await read_window(self.services.runtime.store, session.key, limit, before, line=line))


class TurnHandler(AgentHandler):
    @guard("read")
    @operation(shapes.State, query=(SESSION,), errors=(404,))
    async def get(self, turn_id: str) -> None:
        """Get the state of a turn."""
        try:
            turn = await self.services.access.turn(self.caller, turn_id)
        except TurnNotFound:
            session = self.get_argument("session", None)
            stored = await self.services.access.stored_turn(self.caller, turn_id, session)
            self._reply_state(stored.key, stored.id, stored.state, stored, events=0)
            return
        self._reply_state(turn.spec.key, turn.id, turn.state, turn.log.finished, events=turn.log.head)

    def _reply_state(
        self, key: SessionKey, id: str, state: TurnState, end: TurnFinished | Turn | None, *, events: int
    ) -> None:
        reason, usage = (end.reason, dict(end.usage)) if end else ("", {})
        facts = {"turn": id, "session": key.id, "state": state, "reason": reason, "usage": usage}
        self.reply({**facts, "events": events, "running": state == "open"})


class TurnEventsHandler(AgentHandler):
    @guard("read")
    @operation(
        streams=TURN_EVENTS,
        query=(
            Parameter("after", "Only events after this number; wins over Last-Event-ID.", Count),
            Parameter("stored", "1: the stored turn with its media, instead of the live log."),
            SESSION,
            Parameter("Last-Event-ID", "The number of the last event that the client received.", place="header"),
        ),
        errors=(404,),
    )
    async def get(self, turn_id: str) -> None:
        """Follow the events of a turn.

        With ``stored``, the events are those of the stored turn, with its media.
        """
        after, kept = self._last_received(), self.get_argument("stored", "") == "1"
        with contextlib.suppress(TurnNotFound):
            if not kept:
                live = await self.services.access.turn(self.caller, turn_id)
                await self.stream(encode_batches(live.log.follow_batches(after)))
                return
        stored = await self.services.access.stored_turn(self.caller, turn_id, self.get_argument("session", None))
        self.set_header("X-Agent-Stored", "1")  # the numbers of these events differ from those of the log
        await self.stream(encode_events(replay(self.services.runtime.store, stored, after, media=kept)))

    def _last_received(self) -> int:
        """Return the number of the last event that the client has. The query has precedence over the header, because a
        browser repeats the Last-Event-ID of an earlier connection by itself."""
        last = self.request.headers.get("Last-Event-ID", "")
        from_header = int(last) if last.isascii() and last.isdecimal() and len(last) < 16 else 0
        return self.number("after", from_header) or 0


class TurnCancelHandler(AgentHandler):
    @guard("execute")
    @operation(shapes.Ended, body=CancelBody, query=(SESSION,), errors=(404,))
    async def post(self, turn_id: str) -> None:
        """Stop a turn."""
        body = self.parse(CancelBody)
        try:
            turn = await self.services.access.turn(self.caller, turn_id)
        except TurnNotFound:
            stored = await self.services.access.stored_turn(self.caller, turn_id, self.get_argument("session", None))
            if stored.state == "open" and self.services.state.link is not None:
                raise server_unreachable() from None
            self.reply({"state": stored.state})
            return
        self.reply({"state": await self.services.turns.cancel(turn, body.reason)})


class ClaimsHandler(AgentHandler):
    @guard("execute")
    @operation(shapes.Claimed | shapes.Declined, body=ClaimBody, errors=(404, 409))
    async def post(self, turn_id: str) -> None:
        """Claim a call that a client must run, or decline it."""
        body = self.parse(ClaimBody)
        turn = await self.services.access.find_own_turn(self.caller, turn_id)
        commands, client = self.services.turn_control, {"call": body.call, "client": body.client}
        if body.declined:
            await commands.run(turn, "decline", {**client, "reason": body.declined})
            self.reply({"declined": True})
            return
        claimed = await commands.run(turn, "claim", client)
        self.reply({"lease_s": LEASE_S, "renew_s": RENEW_S, **claimed})


class ClaimHandler(AgentHandler):
    @guard("execute")
    @operation(shapes.Nothing, body=RenewBody | OutputBody | FinishBody, errors=(404, 409))
    async def post(self, turn_id: str, call: str) -> None:
        """Take a message from the client that runs the call ``call``. The field ``action`` of the body says which: the
        client renews its claim on the call, sends output of the call, or delivers its result."""
        body = self.parse(CLAIM_ACTIONS[self.parse(ClaimActionBody).action])
        turn = await self.services.access.find_own_turn(self.caller, turn_id)
        commands, claim = self.services.turn_control, {"call": call, "token": body.token}
        if isinstance(body, FinishBody):
            await commands.finish(turn, call, body.token, body.output())
        elif isinstance(body, OutputBody):
            await commands.run(turn, "output", {**claim, "stream": body.stream, "text": body.text})
        else:
            await commands.run(turn, "renew", {**claim, "where": body.where, "state": body.state})
        self.reply({})


# The route that returns the cell outputs of a turn, for a page that opens a notebook after the turn ended without a
# reader.


class TurnOutputsHandler(AgentHandler):
    @guard("read")
    @operation(Outputs, query=(SESSION,), errors=(404, 409))
    async def get(self, turn_id: str) -> None:
        """Get the cell outputs of a turn.

        The outputs have the format of notebook files. The status is 409 while the turn runs on any server.
        """
        turn = await self.services.access.stored_turn(self.caller, turn_id, self.get_argument("session", None))
        if turn.state == "open":
            raise Conflict("This turn is still running.", hint="Follow its events, or ask again when it has ended.")
        store = self.services.runtime.store
        events = [event async for event in replay(store, turn, 0, media=True, whole=True)]
        outputs = await asyncio.to_thread(_outputs, turn, events, self.services.url())
        self.reply({"turn": turn.id, "session": turn.key.id, "outputs": outputs})


def _outputs(turn: Turn, events: Sequence[Event], url: str) -> list[dict[str, Any]]:
    # These modules are imported here, because they load IPython, which takes a tenth of a second and which few servers
    # need.
    from agent_kernel.notebook.display.render import TurnSummary
    from agent_kernel.notebook.turn.nbformat_outputs import render_outputs

    summary = TurnSummary(turn.id, turn.key.id, cell=turn.cell, private=is_private(turn.key.id))
    return render_outputs(events, summary, url)
