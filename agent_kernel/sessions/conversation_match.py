"""Finds the session that a request without a session id continues: the one that begins with the same messages.

Hashes of the first messages identify the sessions, so that no stored conversation needs to be read. Only sessions that
were created by requests without a session id are found, and only for the same user, model and instructions (``scope``).
The common beginning must contain an answer, and the request must continue after it with a user message or tool results.
The session with the longest match is chosen; of several sessions with equally long matches, the session that changed
last. A session that is bound to a notebook is never found. When a request names a session by its id, the hashes of that
session are removed (``SessionStore.forget``), so that it is not found afterwards either.
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
"""Smallest number of messages whose hashes are computed on a thread instead of the event loop. Hashing takes about 10
microseconds per message."""
_DATES = re.compile(
    r"\d+|\b(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b|\b[ap]m\b"
    r"|\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b",
    re.IGNORECASE,
)
"""Numbers and names of days and months, which instructions may contain because they state the time."""


def scope(subject: str, model: str, instructions: Sequence[Message]) -> str:
    """Return a hash of the user (``subject``, the owner of the credential), the model and the instructions. Numbers and
    names of days and months in the instructions are ignored, since instructions may state the time."""
    text = _DATES.sub("0", "\n\n".join(message.text.strip() for message in instructions))
    return hashlib.sha256(json.dumps([subject, model, text]).encode()).hexdigest()


async def find_session(
    store: OpeningIndex, namespace: str, scope: str, messages: Sequence[Message]
) -> SessionKey | None:
    """Return the session that a request with these messages continues. The messages must be in the form in which they
    are stored: with secrets removed."""
    _, visible = history_merge.split_instructions(messages)
    chain = await _run_off_loop(_opening_hashes, visible)
    match = await store.match(namespace, scope, chain) if chain else None
    return match.key if match else None


async def remember_openings(store: SessionStore, key: SessionKey, scope: str, after: int = 0) -> None:
    """Store the openings of a session after a turn. An opening is a hash of the messages from the first one up to an
    answer. Openings up to the item ``after`` are already stored. If an answer consists of several texts between tool
    calls, two hashes are stored for it: one with its last text, and one with all its texts joined, because clients
    repeat it in either form."""
    items = await store.latest(key, failed=False)
    for hashes in await _run_off_loop(_answer_hashes, [item.message for item in items]):
        await store.remember(key, scope, {items[at].seq: digest for at, digest in hashes if items[at].seq > after})


async def _run_off_loop(work: Callable[[Sequence[Message]], T], messages: Sequence[Message]) -> T:
    """Run ``work`` on a thread if there are many messages."""
    return work(messages) if len(messages) < AT_ONCE else await asyncio.to_thread(work, messages)


def _answer_hashes(messages: Sequence[Message]) -> list[list[tuple[int, str]]]:
    """Return a list of (index of a visible message, hash of the conversation up to it), from the first answer on. If an
    answer consists of several texts between calls, a second list follows, for which these texts are joined."""
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


def _opening_hashes(messages: Sequence[Message]) -> list[str]:
    """Return hashes of the request's messages from the first one up to each answer, shortest first. A session may be
    found by each of them."""
    known = history_merge.drop_unpaired(messages, history_merge.first_added(messages))
    places = message_comparison.visible_indices(known)
    end = len(known) - (len(messages) - history_merge.first_added(messages))
    answered, hashes = False, []
    for at, digest in zip(places, message_comparison.hash_chain(known[at] for at in places), strict=True):
        answered = answered or known[at].role == "assistant"
        has_successor = at + 1 < len(known) and (
            known[at + 1].role == "user" or message_comparison.is_tool_traffic(known[at + 1])
        )
        if answered and has_successor and at < end:
            hashes.append(digest)
    return hashes


def _join_pieces(pieces: Sequence[Message]) -> Message:
    """Join the texts of an answer that is divided by tool calls, as a client that does not see tool calls knows it."""
    last = pieces[-1]
    if last.role != "assistant" or not any(piece.text for piece in pieces[:-1]):
        return last
    return replace(last, parts=(Text("".join(piece.text for piece in pieces)), *last.media))
