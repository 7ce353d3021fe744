"""Which session does a request continue that names none? The one that began as it does, found by hashes of beginnings.

Only a session that was begun so is found, for the same person, model and instructions (``scope``); only by a beginning
with an answer in it, behind which the request goes on with a user message or tool results; the longest wins, then the
one changed last. Nobody's words are read for it. A session that is bound to a notebook is never found, nor one that
was used by its id (``SessionStore.forget``).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from agent_kernel.core.messages import Message, Text
from agent_kernel.core.seams.session_store import OpeningIndex, SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions import history_merge, message_hash

T = TypeVar("T")
AT_ONCE = 200
"""Messages that are hashed on the event loop; it takes about 10 microseconds each."""
_DATED = re.compile(
    r"\d+|\b(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b|\b[ap]m\b"
    r"|\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b",
    re.IGNORECASE,
)


def scope(subject: str, model: str, instructions: Sequence[Message]) -> str:
    """Names who asks which model with which instructions, which may tell the time: their numbers and the names of days
    and months do not count. ``subject`` is whose credential it is."""
    said = _DATED.sub("0", "\n\n".join(message.text.strip() for message in instructions))
    return hashlib.sha256(json.dumps([subject, model, said]).encode()).hexdigest()


async def find(store: OpeningIndex, namespace: str, scope: str, messages: Sequence[Message]) -> SessionKey | None:
    """The session that a request with these messages continues. The messages are in the form in which they would be
    kept: keys and passwords taken out."""
    _, said = history_merge.split(messages)
    chain = await _beside(_beginnings, said)
    found = await store.match(namespace, scope, chain) if chain else None
    return found.key if found else None


async def remember(store: SessionStore, key: SessionKey, scope: str, after: int = 0) -> None:
    """After a turn of a session that is to be found by what is said in it; up to item ``after`` it is remembered
    already. An answer that came in pieces, between calls, is found by its last piece and as a whole."""
    items = await store.latest(key, failed=False)
    for hashes in await _beside(_hashes, [item.message for item in items]):
        await store.remember(key, scope, {items[at].seq: digest for at, digest in hashes if items[at].seq > after})


async def _beside(work: Callable[[Sequence[Message]], T], messages: Sequence[Message]) -> T:
    """Off the event loop when there is much of it."""
    return work(messages) if len(messages) < AT_ONCE else await asyncio.to_thread(work, messages)


def _hashes(messages: Sequence[Message]) -> list[list[tuple[int, str]]]:
    """(index of a visible message, hash of the conversation up to it), from the first answer on; once more for answers
    as wholes, where one came in pieces."""
    steps = history_merge.steps(messages)
    last_pieces = [messages[step.at] for step in steps]
    as_wholes = [_whole([messages[index] for index in (*step.before, step.at)]) for step in steps]
    answered = next((at for at, said in enumerate(last_pieces) if said.role == "assistant"), len(steps))
    return [
        [(step.at, digest) for step, digest in zip(steps, message_hash.chain(said), strict=True)][answered:]
        for said in ((last_pieces, as_wholes) if as_wholes != last_pieces else (last_pieces,))
    ]


def _beginnings(said: Sequence[Message]) -> list[str]:
    """Hashes of the beginnings by which a session may be found, from short to long."""
    known = history_merge.paired(said, history_merge.added_from(said))
    places = message_hash.visible(known)
    end = len(known) - (len(said) - history_merge.added_from(said))
    answered, found = False, []
    for at, digest in zip(places, message_hash.chain(known[at] for at in places), strict=True):
        answered = answered or known[at].role == "assistant"
        goes_on = at + 1 < len(known) and (known[at + 1].role == "user" or message_hash.is_traffic(known[at + 1]))
        if answered and goes_on and at < end:
            found.append(digest)
    return found


def _whole(pieces: Sequence[Message]) -> Message:
    """The answer as who only read along has it."""
    said = pieces[-1]
    if said.role != "assistant" or not any(piece.text for piece in pieces[:-1]):
        return said
    return replace(said, parts=(Text("".join(piece.text for piece in pieces)), *said.media))
