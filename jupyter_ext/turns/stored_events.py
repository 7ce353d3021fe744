"""The events of a turn whose log is gone, made again from what the store keeps of it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from agent_kernel.turn.changed_cells import stored_change
from agent_kernel.turn.number_check.record import from_record
from agent_kernel.turn.turn_annotations import MAX_CALLS, StoredAnnotations
from jupyter_ext.turns.turn_versions import Versions

POLL_S = 1.0
GONE = "The live log of this turn is gone; its stored items can be read from the beginning."


async def find_turn(store: SessionStore, namespace: str, turn: str, session: str | None = None) -> Turn:
    """Of ``session``, if one is named: forks have turns of the same id. Raises TurnNotFound."""
    found = await store.turn(namespace, turn)
    if found is not None and session not in (None, found.key.id):
        turns, _ = await store.everything(SessionKey(namespace, session or ""))
        found = next((other for other in turns if other.id == turn), None)
    if found is None:
        raise TurnNotFound("There is no such turn.")
    return found


async def replay(
    store: SessionStore,
    turn: Turn,
    after: int,
    poll_s: float = POLL_S,
    *,
    media: bool = False,
    whole: bool = False,
) -> AsyncIterator[Event]:
    """Ends with TurnFinished; a turn that another server still runs is awaited. ``media``: with the data of what calls
    have shown; ``whole`` as of ``bodies``.

    These events have numbers of their own. A reader that comes with a number (``after``) has a part of the first log,
    which can not be matched: it gets a notice and the end, and the whole when it asks again from 0.
    """
    while turn.state == "open":
        await asyncio.sleep(poll_s)
        turn = await find_turn(store, turn.key.namespace, turn.id, turn.key.id)
    stamp = EventNumbering(turn.id, turn.key.id)
    if after:
        stamp.seq = after
        yield stamp(Notice("info", GONE))
        yield stamp(finished(turn, 0))
        return
    versions = Versions(store)
    told, messages = await versions.told(turn), await versions.said(turn)
    for body in with_files(bodies(turn, messages, whole=whole), turn, await files_of(store, turn.key)):
        yield stamp(await _filled(store, turn.key, body) if media and isinstance(body, CallFinished) else body)
        if told is not None and isinstance(body, TurnStarted):
            yield stamp(told)


async def files_of(store: SessionStore, key: SessionKey) -> dict[str, File]:
    """Of the session, without bodies."""
    if not hasattr(store, "files"):
        return {}
    return {file.id: file for file in await cast(FileStore, store).files(key)}


def with_files(told: Iterable[EventBody], turn: Turn, files: Mapping[str, File]) -> Iterator[EventBody]:
    """Files stand before the end of the call that made them; those of no call before the end of the turn."""
    left = {id: file for id, file in files.items() if file.purpose == "agent_output" and file.turn == turn.ordinal - 1}
    for body in told:
        if isinstance(body, CallFinished):
            for id in body.files:
                left.pop(id, None)
                if file := files.get(id):
                    yield FileProduced(body.call, file.to_json())
        elif isinstance(body, TurnFinished):
            yield from (FileProduced("", file.to_json()) for file in left.values())
        yield body


async def _filled(store: SessionStore, key: SessionKey, body: CallFinished) -> CallFinished:
    """With the data of its media."""
    data = [await store.blob(key, str(medium["hash"])) for medium in body.media]
    filled = [
        medium if known is None else {**medium, "data": base64.b64encode(known).decode()}
        for medium, known in zip(body.media, data, strict=True)
    ]
    return replace(body, media=tuple(filled))


def bodies(turn: Turn, messages: Sequence[Message], *, whole: bool = False) -> Iterator[EventBody]:
    """What a person would have seen, but for output while it came. ``whole``: with what was asked of a person and told
    beside the answer, for a reader that shows it; one that acts on events would ask again."""
    asides, blocks, rounds = StoredAnnotations(turn.record), 0, 0
    returned = frozenset(map(str, turn.record.get("returned", ())))

    def told(before: int | None) -> Iterator[EventBody]:
        return (_notice(*notice) for notice in asides.notices(before) if whole)

    yield TurnStarted(turn.model, bool(turn.record.get("local", True)), turn.where, str(turn.record.get("host", "")))
    if whole and asides.context:
        yield ContextBuilt(**asides.context)
    for message in messages:
        if message.role == "assistant":
            for delta in _deltas(message):
                yield from told(blocks)
                yield delta
                blocks += 1
            for call in sorted(message.calls, key=lambda call: asides.began(call.id).get("at", blocks + MAX_CALLS)):
                if call.id in returned:
                    yield CallReturned(call.id, call.name, call.arguments)
                    continue
                yield from told(blocks)
                known = asides.began(call.id)
                yield CallStarted(call.id, call.name, call.arguments, str(known.get("where", turn.where)))
                yield from _decision(call, known) if whole else ()
                blocks += 1
            rounds += any(call.id not in returned for call in message.calls)
        elif message.role == "tool" and message.call_id not in returned:
            yield _ended(turn, message, asides.ended(message.call_id or ""))
    yield from told(None)
    if checked := from_record(turn.record, messages):
        yield AnswerChecked(tuple(number.to_json() for number in checked))
    yield finished(turn, rounds)


def _deltas(message: Message) -> Iterator[EventBody]:
    if message.reasoning:
        yield ReasoningDelta(message.reasoning)
    if message.text:
        yield TextDelta(message.text)


def _ended(turn: Turn, message: Message, known: Mapping[str, Any]) -> CallFinished:
    call = message.call_id or ""
    return CallFinished(
        call,
        message.name or "",
        message.status or "success",
        message.text,
        float(known.get("seconds", 0.0)),
        tuple(_medium(medium) for medium in message.media),
        {**known.get("details", {}), **stored_change(turn.record, call)},
        tuple(known.get("files", ())),
    )


def _decision(call: ToolCall, known: Mapping[str, Any]) -> Iterator[EventBody]:
    """What a person was asked about a call, and said. Nothing waits for an answer any more."""
    asked = known.get("approval")
    if not isinstance(asked, Mapping) or "kind" not in asked:
        return
    id, code = str(asked.get("approval", "")), call.arguments.get("code")
    yield ApprovalRequired(
        id,
        call.id,
        str(asked.get("name", "")),
        str(asked.get("kind", "")),
        str(asked.get("target", "")),
        code if isinstance(code, str) else "",
        call.arguments,
        str(asked.get("source", "")),
        str(asked.get("label", "")),
        again=str(asked.get("again", "")),
    )
    if "decision" in asked:
        yield ApprovalResolved(id, call.id, str(asked["decision"]), str(asked.get("reason", "")))


def _notice(level: str, text: str) -> EventBody:
    return StateLost(text) if level == "lost" else Notice(level, text)


def finished(turn: Turn, rounds: int) -> TurnFinished:
    error = turn.record.get("error") or {"code": "engine_error", "message": turn.reason, "hint": "", "details": {}}
    fault = error if turn.state == "failed" else None
    finish = str(turn.record.get("finish", "")) if turn.state == "committed" else ""
    return TurnFinished(turn.state, turn.reason, rounds, turn.usage, fault, finish, str(turn.record.get("stopped", "")))


def _medium(medium: Media) -> dict[str, str | int]:
    return {"mime": medium.mime, "hash": medium.hash, "size": medium.size}
