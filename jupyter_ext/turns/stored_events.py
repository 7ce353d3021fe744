"""Rebuilds the events of a turn from the items in the store, for a turn whose live event log no longer exists."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from agent_kernel.core.errors import TurnNotFound
from agent_kernel.core.events import (
    AnswerChecked,
    ApprovalRequired,
    ApprovalResolved,
    CallFinished,
    CallReturned,
    CallStarted,
    ContextBuilt,
    Event,
    EventBody,
    EventNumbering,
    FileProduced,
    Notice,
    ReasoningDelta,
    StateLost,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.core.files import File
from agent_kernel.core.messages import Media, Message, ToolCall
from agent_kernel.core.seams.session_store import FileStore, SessionStore
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.stored_annotations import EDITED, StoredAnnotations
from agent_kernel.turn.changed_cells import stored_change
from agent_kernel.turn.number_check.stored_numbers import from_record
from agent_kernel.turn.turn_annotations import MAX_CALLS
from jupyter_ext.turns.turn_versions import TurnVersions
from jupyter_ext.turns.turns import LiveTurn

POLL_S = 1.0
GONE = "The live events of this turn no longer exist. Read its stored events from the beginning (after=0)."
RECORDED = ("permission", "error")
"""Fields of a turn's record that its events do not contain."""


async def find_turn(store: SessionStore, namespace: str, turn: str, session: str | None = None) -> Turn:
    """Return the stored turn with this id. ``session`` selects the session, because a fork has turns with the same ids;
    None searches all sessions of the namespace. Raises TurnNotFound."""
    stored = await store.turn(namespace, turn)
    if stored is not None and session not in (None, stored.key.id):
        turns, _ = await store.everything(SessionKey(namespace, session or ""))
        stored = next((other for other in turns if other.id == turn), None)
    if stored is None:
        raise TurnNotFound("There is no such turn.")
    return stored


async def replay(
    store: SessionStore, turn: Turn, after: int, poll_s: float = POLL_S, *, media: bool = False, whole: bool = False
) -> AsyncGenerator[Event, None]:
    """Yield the events of a stored turn, ending with TurnFinished. Waits for a turn that another server still runs.

    ``media``: include the data of media that calls have shown. ``whole`` is passed to ``stored_bodies``.

    The rebuilt events are numbered independently of the live log. A reader that passes a number (``after``) already has
    a part of the live log, which cannot be matched with the rebuilt events. Such a reader gets a notice and
    TurnFinished; it can read everything again with ``after`` 0.
    """
    while turn.state == "open":
        await asyncio.sleep(poll_s)
        turn = await find_turn(store, turn.key.namespace, turn.id, turn.key.id)
    stamp = EventNumbering(turn.id, turn.key.id)
    if after:
        stamp.seq = after
        yield stamp(Notice("info", GONE))
        yield stamp(finished_event(turn, 0))
        return
    versions = TurnVersions(store)
    version, messages = await versions.describe(turn), await versions.messages(turn)
    for body in insert_files(stored_bodies(turn, messages, whole=whole), turn, await files_of(store, turn.key)):
        yield stamp(await _load_media(store, turn.key, body) if media and isinstance(body, CallFinished) else body)
        if version is not None and isinstance(body, TurnStarted):
            yield stamp(version)


async def files_of(store: SessionStore, key: SessionKey) -> dict[str, File]:
    """Return the files of the session by id, without their contents."""
    if not hasattr(store, "files"):
        return {}
    return {file.id: file for file in await cast(FileStore, store).files(key)}


def insert_files(events: Iterable[EventBody], turn: Turn, files: Mapping[str, File]) -> Iterator[EventBody]:
    """Yield ``events`` with the FileProduced events of the turn inserted. The event of a file precedes the end of the
    call that made the file; the events of files that no call made precede the end of the turn."""
    not_inserted = {
        id: file for id, file in files.items() if file.purpose == "agent_output" and file.turn == turn.ordinal - 1
    }
    for body in events:
        if isinstance(body, CallFinished):
            for id in body.files:
                not_inserted.pop(id, None)
                if file := files.get(id):
                    yield FileProduced(body.call, file.to_json())
        elif isinstance(body, TurnFinished):
            yield from (FileProduced("", file.to_json()) for file in not_inserted.values())
        yield body


async def _load_media(store: SessionStore, key: SessionKey, body: CallFinished) -> CallFinished:
    """Return the event with the data of its media."""
    data = [await store.blob(key, str(medium["hash"])) for medium in body.media]
    filled = [
        medium if known is None else {**medium, "data": base64.b64encode(known).decode()}
        for medium, known in zip(body.media, data, strict=True)
    ]
    return replace(body, media=tuple(filled))


def stored_bodies(turn: Turn, messages: Sequence[Message], *, whole: bool = False) -> Iterator[EventBody]:
    """Yield the events of a stored turn as a person would have seen them, but without the output that arrived while
    calls ran. ``whole``: include approvals and notices. Only readers that display the turn may set ``whole``: a reader
    that acts on events would ask the person again."""
    stored_annotations, blocks, rounds = StoredAnnotations(turn.record), 0, 0
    returned = frozenset(map(str, turn.record.get("returned", ())))

    def notices(before: int | None) -> Iterator[EventBody]:
        return (_notice(*notice) for notice in stored_annotations.notices(before) if whole)

    yield TurnStarted(turn.model, bool(turn.record.get("local", True)), turn.where, str(turn.record.get("host", "")))
    if whole and stored_annotations.context:
        yield ContextBuilt(**stored_annotations.context)
    for message in messages:
        if message.role == "assistant":
            for delta in _deltas(message):
                yield from notices(blocks)
                yield delta
                blocks += 1
            for call in sorted(
                message.calls, key=lambda call: stored_annotations.peek(call.id).get("at", blocks + MAX_CALLS)
            ):
                if call.id in returned:
                    yield CallReturned(call.id, call.name, call.arguments)
                    continue
                yield from notices(blocks)
                annotations = stored_annotations.peek(call.id)
                yield CallStarted(call.id, call.name, call.arguments, str(annotations.get("where", turn.where)))
                yield from _approval_events(call, annotations) if whole else ()
                blocks += 1
            rounds += any(call.id not in returned for call in message.calls)
        elif message.role == "tool" and message.call_id not in returned:
            yield _call_finished(turn, message, stored_annotations.take(message.call_id or ""))
    yield from notices(None)
    if checked := from_record(turn.record, messages):
        yield AnswerChecked(tuple(number.to_json() for number in checked))
    yield finished_event(turn, rounds)


def _deltas(message: Message) -> Iterator[EventBody]:
    if message.reasoning:
        yield ReasoningDelta(message.reasoning)
    if message.text:
        yield TextDelta(message.text)


def _call_finished(turn: Turn, message: Message, annotations: Mapping[str, Any]) -> CallFinished:
    call = message.call_id or ""
    return CallFinished(
        call,
        message.name or "",
        message.status or "success",
        message.text,
        float(annotations.get("seconds", 0.0)),
        tuple(medium_to_json(medium) for medium in message.media),
        {**annotations.get("details", {}), **stored_change(turn.record, call)},
        tuple(annotations.get("files", ())),
    )


def _approval_events(call: ToolCall, annotations: Mapping[str, Any]) -> Iterator[EventBody]:
    """Yield the approval question about a call and the decision on it, both of which are in the past."""
    approval = annotations.get("approval")
    if not isinstance(approval, Mapping) or "kind" not in approval:
        return
    id, code = str(approval.get("approval", "")), call.arguments.get("code")
    yield ApprovalRequired(
        id,
        call.id,
        str(approval.get("name", "")),
        str(approval.get("kind", "")),
        str(approval.get("target", "")),
        code if isinstance(code, str) else "",
        call.arguments,
        str(approval.get("source", "")),
        str(approval.get("label", "")),
        again=str(approval.get("again", "")),
    )
    if "decision" in approval:
        edited = approval.get(EDITED)
        edited = edited if isinstance(edited, str) else None
        yield ApprovalResolved(id, call.id, str(approval["decision"]), str(approval.get("reason", "")), edited)


def _notice(level: str, text: str, details: str) -> EventBody:
    return StateLost(text) if level == "lost" else Notice(level, text, details)


def finished_event(turn: Turn, rounds: int) -> TurnFinished:
    error = turn.record.get("error") or {"code": "engine_error", "message": turn.reason, "hint": "", "details": {}}
    fault = error if turn.state == "failed" else None
    finish = str(turn.record.get("finish", "")) if turn.state == "committed" else ""
    return TurnFinished(turn.state, turn.reason, rounds, turn.usage, fault, finish, str(turn.record.get("stopped", "")))


def medium_to_json(medium: Media) -> dict[str, Any]:
    return {"mime": medium.mime, "hash": medium.hash, "size": medium.size}


# Reads a range of a session's turns, oldest first, with the events that a person saw.
#
# The cost depends on the number of turns in the range, not on the number of turns before it. The files of the session
# are listed once for all turns.


async def read_window(
    store: SessionStore, key: SessionKey, limit: int, before: str = "", *, line: Sequence[LiveTurn] = ()
) -> dict[str, Any]:
    """Return the last ``limit`` turns of the current branch; with ``before``, the last ``limit`` turns before that
    turn.

    In the result, ``older`` says whether there are earlier turns, and ``waiting`` contains the turns of ``line`` that
    the store does not have yet. ``line`` are the unfinished turns of the session; read them before calling this
    function. Media of stored turns have no data (see ``sessions/{id}/blobs/{hash}``). Raises TurnNotFound if ``before``
    does not exist.
    """
    newest = await store.turns(key, limit + 1, before=before)
    window = newest[-limit:] if limit else []
    stored = {turn.id for turn in newest}
    waiting = [] if before else [live for live in line if live.id not in stored]
    history = _History(store, TurnVersions(store), await files_of(store, key) if window or waiting else {})
    requests = {live.id: live for live in line}
    return {
        "turns": [await history.describe(turn, requests.get(turn.id)) for turn in window],
        "older": len(newest) > len(window),
        "waiting": [history.describe_waiting(live) for live in waiting],
    }


@dataclass(frozen=True, slots=True)
class _History:
    store: SessionStore
    versions: TurnVersions
    files: Mapping[str, File]

    async def describe(self, turn: Turn, live: LiveTurn | None) -> dict[str, Any]:
        """Return a stored turn as JSON. ``live`` is the turn's state if this server runs the turn. A turn that still
        runs, on this or another server, is described without events, because a client can follow them. A turn without
        stored items is described by its request."""
        runs = live is not None or turn.state == "open"
        messages = await self.versions.messages(turn)
        request = next((message for message in messages if message.role == "user" and not message.hidden), None)
        if request is None and live is not None:
            return self.describe_waiting(live)
        return {
            "turn": turn.id,
            "session": turn.key.id,
            "state": turn.state,
            "running": runs,
            "prompt": request.text if request else "",
            "cell": turn.cell,
            "context": [str(title) for title in turn.record.get("notes", ())],
            "inputs": self._inputs(turn.record.get("inputs", ())),
            "media": [medium_to_json(medium) for medium in request.media] if request else [],
            "model": turn.model,
            "where": turn.where,
            "usage": dict(turn.usage),
            "record": {name: turn.record[name] for name in RECORDED if name in turn.record},
            "created": turn.opened,
            "closed": turn.closed,
            "events": [] if runs else [event.to_json() for event in await self._events(turn, messages)],
        }

    def describe_waiting(self, live: LiveTurn) -> dict[str, Any]:
        """Describe a turn that the store does not have yet. The description contains the bytes of its media, because
        nothing else has them."""
        request = live.spec.request
        return {
            "turn": live.id,
            "session": live.spec.key.id,
            "state": "open",
            "running": True,
            "prompt": request.last_user_text,
            "cell": request.cell,
            "context": [note.title for note in request.notes],
            "inputs": self._inputs(request.inputs),
            "media": [medium_to_json(medium) | _data(medium) for medium in request.media],
            "model": "",
            "where": request.where,
            "usage": {},
            "record": {},
            "created": live.created,
            "closed": None,
            "events": [],
        }

    def _inputs(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        files = [self.files[id] for id in ids if id in self.files]
        return [{"id": file.id, "name": file.name, "mime": file.mime, "size": file.size} for file in files]

    async def _events(self, turn: Turn, messages: list[Message]) -> list[Event]:
        """Return the events of a stored turn. Each has the time at which the turn began or ended, because the times in
        between are not stored."""
        version = await self.versions.describe(turn)
        bodies = [*insert_files(stored_bodies(turn, messages, whole=True), turn, self.files)]
        if version is not None:
            bodies.insert(1, version)
        closed = turn.closed or turn.opened
        times = iter([turn.opened] * (len(bodies) - 1) + [closed])
        stamp = EventNumbering(turn.id, turn.key.id, lambda: next(times))
        return [stamp(body) for body in bodies]


def _data(medium: Media) -> dict[str, Any]:
    return {} if medium.data is None else {"data": base64.b64encode(medium.data).decode()}
