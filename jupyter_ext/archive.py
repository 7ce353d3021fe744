"""The events of a turn whose log is gone, made again from what the store keeps of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

from agent_kernel.errors import TurnNotFound
from agent_kernel.events import (
    Body,
    CallFinished,
    CallStarted,
    Event,
    Notice,
    ReasoningDelta,
    Stamp,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from agent_kernel.messages import Media, Message
from agent_kernel.sessions.model import SessionKey, Turn
from agent_kernel.sessions.store import SessionStore

SESSIONS_SEARCHED = 200
POLL_S = 1.0
GONE = "The live log of this turn is gone; its stored items can be read from the beginning."


async def find_turn(store: SessionStore, namespace: str, turn: str, session: str | None = None) -> Turn:
    """Looks into ``session``, or else into the sessions updated last. Raises TurnNotFound."""
    keys = [SessionKey(namespace, session)] if session else None
    for key in keys or [found.key for found in await store.list(namespace, SESSIONS_SEARCHED)]:
        for stored in await store.turns(key):
            if stored.id == turn:
                return stored
    raise TurnNotFound("There is no such turn.")


async def replay(store: SessionStore, turn: Turn, after: int, poll_s: float = POLL_S) -> AsyncIterator[Event]:
    """Ends with TurnFinished; a turn that another server still runs is awaited.

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
    messages = [item.message for item in await store.latest(turn.key) if item.turn == turn.id]
    for body in bodies(turn, messages):
        yield stamp(body)


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
            yield CallFinished(
                message.call_id or "", message.name or "", message.status or "success", message.text, 0.0, media
            )
    yield finished(turn, rounds)


def finished(turn: Turn, rounds: int) -> TurnFinished:
    error = {"code": "engine_error", "message": turn.reason, "hint": "", "details": {}}
    return TurnFinished(turn.state, turn.reason, rounds, turn.usage, error if turn.state == "failed" else None)


def _medium(medium: Media) -> dict[str, str | int]:
    return {"mime": medium.mime, "hash": medium.hash, "size": medium.size}
