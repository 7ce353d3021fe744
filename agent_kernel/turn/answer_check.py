"""Checks the numbers of a turn's answer against the outputs of its conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agent_kernel.core.messages import Message
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.turn.number_check.check import CheckedNumber, check_turn
from agent_kernel.turn.turn_state import ActiveTurn

CHECKED_AT_ONCE = 20_000
"""Maximum number of characters that are searched on the event loop; more are searched in a thread."""
SEARCHED_ITEMS = 1_000
"""Number of newest items of the conversation in which numbers are searched that the model's messages do not have."""


async def check_answer(
    store: SessionStore, key: SessionKey, turn: ActiveTurn, redactor: Redactor
) -> tuple[CheckedNumber, ...]:
    """Return the numbers of the turn's answer with their origins; none if no tool of the conversation returned
    anything.

    The messages that the model has seen are searched first. A summary or a limit may have left out earlier outputs, so
    the stored items are searched for numbers that these messages do not have.
    """
    answer = redactor.text(turn.text)
    numbers = await _search(answer, [*turn.earlier, *turn.messages])
    if turn.opened.turn.ordinal > 1 and _is_incomplete(answer, numbers):
        items = await store.latest(key, SEARCHED_ITEMS, failed=False)
        numbers = await _search(answer, [*(item.message for item in items), *turn.earlier, *turn.messages])
    return tuple(replace(number, shown=redactor.text(number.shown)) for number in numbers or ())


def _is_incomplete(answer: str, numbers: Sequence[CheckedNumber] | None) -> bool:
    if numbers is None:
        return any(map(str.isdecimal, answer))
    return any(number.status != "computed" for number in numbers)


async def _search(answer: str, messages: Sequence[Message]) -> tuple[CheckedNumber, ...] | None:
    if sum(len(message.text) for message in messages) > CHECKED_AT_ONCE:
        return await asyncio.to_thread(check_turn, answer, (), messages)
    return check_turn(answer, (), messages)
