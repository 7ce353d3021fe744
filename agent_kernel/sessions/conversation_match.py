"""Finds the session that a request without a session id continues: the one that begins with the same messages.

Sessions are found by hashes of their beginnings, so no conversation is read for it. Only sessions that were created by
requests without a session id are found, and only for the same user, model and instructions (``scope``). The common
beginning must contain an answer, and the request must continue after it with a user message or tool results. The
longest match wins, then the one changed last. A session bound to a notebook is never found, nor one that a request
has named by its id since: its hashes are removed then (``SessionStore.forget``).
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
from agent_kernel.sessions import history_merge, message_comparison

T = TypeVar("T")
AT_ONCE = 200
"""Messages that are hashed on the event loop, at about 10 microseconds each. More are hashed on a thread."""
_DATES = re.compile(
    r"\d+|\b(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b|\b[ap]m\b"
    r"|\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b",
    re.IGNORECASE,
)
"""Numbers and names of days and months, which instructions may contain because they state the time."""


def scope(subject: str, model: str, instructions: Sequence[Message]) -> str:
    """Return a hash of who (``subject``, the credential's owner) asks which model with which instructions. Numbers and
    names of days and months in the instructions are ignored, since instructions may state the time."""
    text = _DATES.sub("0", "\n\n".join(message.text.strip() for message in instructions))
    return hashlib.sha256(json.dumps([subject, model, text]).encode()).hexdigest()


async def find_session(
    store: OpeningIndex, namespace: str, scope: str, messages: Sequence[Message]
) -> SessionKey | None:
    """Return the session that a request with these messages continues. The messages must be in the form in which they
    are stored: with secrets removed."""
    _, spoken = history_merge.split_instructions(messages)
    chain = await _run_off_loop(_opening_hashes, spoken)
    match = await store.match(namespace, scope, chain) if chain else None
    return match.key if match else None


async def remember_openings(store: SessionStore, key: SessionKey, scope: str, after: int = 0) -> None:
    """Store the openings (hashes of beginnings) of a session after a turn; those up to item ``after`` are already
    stored. An answer that came in pieces between tool calls is stored both by its last piece and as a whole."""
    items = await store.latest(key, failed=False)
    for hashes in await _run_off_loop(_answer_hashes, [item.message for item in items]):
        await store.remember(key, scope, {items[at].seq: digest for at, digest in hashes if items[at].seq > after})


async def _run_off_loop(work: Callable[[Sequence[Message]], T], messages: Sequence[Message]) -> T:
    """Run ``work`` on a thread if there are many messages."""
    return work(messages) if len(messages) < AT_ONCE else await asyncio.to_thread(work, messages)


def _answer_hashes(messages: Sequence[Message]) -> list[list[tuple[int, str]]]:
    """Return lists of (index of a visible message, hash of the conversation up to it), from the first answer on. There
    is a second list with joined answers if an answer came in pieces."""
    steps = history_merge.visible_steps(messages)
    last_pieces = [messages[step.at] for step in steps]
    as_wholes = [_join_pieces([messages[index] for index in (*step.before, step.at)]) for step in steps]
    answered = next((at for at, pieces in enumerate(last_pieces) if pieces.role == "assistant"), len(steps))
    return [
        [(step.at, digest) for step, digest in zip(steps, message_comparison.hash_chain(pieces), strict=True)][
            answered:
        ]
        for pieces in ((last_pieces, as_wholes) if as_wholes != last_pieces else (last_pieces,))
    ]


def _opening_hashes(said: Sequence[Message]) -> list[str]:
    """Return the hashes of the beginnings by which a session may be found, from short to long."""
    known = history_merge.drop_unpaired(said, history_merge.first_added(said))
    places = message_comparison.visible_indices(known)
    end = len(known) - (len(said) - history_merge.first_added(said))
    answered, hashes = False, []
    for at, digest in zip(places, message_comparison.hash_chain(known[at] for at in places), strict=True):
        answered = answered or known[at].role == "assistant"
        goes_on = at + 1 < len(known) and (
            known[at + 1].role == "user" or message_comparison.is_tool_traffic(known[at + 1])
        )
        if answered and goes_on and at < end:
            hashes.append(digest)
    return hashes


def _join_pieces(pieces: Sequence[Message]) -> Message:
    """Return the answer with the text of all its pieces, as a client without tool traffic has it."""
    last = pieces[-1]
    if last.role != "assistant" or not any(piece.text for piece in pieces[:-1]):
        return last
    return replace(last, parts=(Text("".join(piece.text for piece in pieces)), *last.media))
