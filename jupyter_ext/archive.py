"""The events of a turn whose log is gone, made again from what the store keeps of it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import cast

from agent_kernel.errors import TurnNotFound
from agent_kernel.events import (
    AnswerChecked,
    Body,
    CallFinished,
    CallStarted,
    Event,
    FileProduced,
    Notice,
    ReasoningDelta,
    Stamp,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.messages import Media, Message
from agent_kernel.numbers.kept import of_record
from agent_kernel.sessions.changed_cells import change_of
from agent_kernel.sessions.model import SessionKey, Turn
from agent_kernel.sessions.store import FileStore, SessionStore
from jupyter_ext.versions import Versions

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
    store: SessionStore, turn: Turn, after: int, poll_s: float = POLL_S, *, media: bool = False
) -> AsyncIterator[Event]:
    """Ends with TurnFinished; a turn that another server still runs is awaited. ``media``: with the data of what calls
    have shown.

    These events have numbers of their own. A reader that comes with a number (``after``) has a part of the first log,
    which can not be matched: it gets a notice and the end, and the whole when it asks again from 0.
    """
    while turn.state == "open":
        await asyncio.sleep(poll_s)
        turn = await find_turn(store, turn.key.namespace, turn.id, turn.key.id)
    stamp = Stamp(turn.id, turn.key.id)
    if after:
        stamp.seq = after
        yield stamp(Notice("info", GONE))
        yield stamp(finished(turn, 0))
        return
    versions = Versions(store)
    told, messages = await versions.told(turn), await versions.said(turn)
    for body in bodies(turn, messages):
        for file in await _files(store, turn) if isinstance(body, TurnFinished) else ():
            yield stamp(file)
        yield stamp(await _filled(store, turn.key, body) if media and isinstance(body, CallFinished) else body)
        if told is not None and isinstance(body, TurnStarted):
            yield stamp(told)


async def _files(store: SessionStore, turn: Turn) -> list[FileProduced]:
    """What tools made in the turn, without bodies."""
    if not hasattr(store, "files"):
        return []
    kept = await cast(FileStore, store).files(turn.key)
    made = [file for file in kept if file.purpose == "agent_output" and file.turn == turn.ordinal - 1]
    return [FileProduced("", file.to_json()) for file in made]


async def _filled(store: SessionStore, key: SessionKey, body: CallFinished) -> CallFinished:
    """With the data of its media."""
    data = [await store.blob(key, str(medium["hash"])) for medium in body.media]
    filled = [
        medium if known is None else {**medium, "data": base64.b64encode(known).decode()}
        for medium, known in zip(body.media, data, strict=True)
    ]
    return replace(body, media=tuple(filled))


def bodies(turn: Turn, messages: Sequence[Message]) -> Iterator[Body]:
    """What a person would have seen; times of calls are not stored."""
    yield TurnStarted(turn.model, bool(turn.record.get("local", True)), turn.where, str(turn.record.get("host", "")))
    rounds = 0
    for message in messages:
        if message.role == "assistant":
            if message.reasoning:
                yield ReasoningDelta(message.reasoning)
            if message.text:
                yield TextDelta(message.text)
            for call in message.calls:
                yield CallStarted(call.id, call.name, call.arguments, turn.where)
            rounds += bool(message.calls)
        elif message.role == "tool":
            media = tuple(_medium(medium) for medium in message.media)
            call, name, status = message.call_id or "", message.name or "", message.status or "success"
            yield CallFinished(call, name, status, message.text, 0.0, media, change_of(turn.record, call))
    if checked := of_record(turn.record, messages):
        yield AnswerChecked(tuple(number.to_json() for number in checked))
    yield finished(turn, rounds)


def finished(turn: Turn, rounds: int) -> TurnFinished:
    error = {"code": "engine_error", "message": turn.reason, "hint": "", "details": {}}
    return TurnFinished(turn.state, turn.reason, rounds, turn.usage, error if turn.state == "failed" else None)


def _medium(medium: Media) -> dict[str, str | int]:
    return {"mime": medium.mime, "hash": medium.hash, "size": medium.size}
