"""A call and its result are one pair: what may be stored, what closes a turn, and where a view may begin. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message, ToolCall, tool_result
from agent_kernel.core.session import Item

NO_REASON = "The call was interrupted."
"""What the model reads as the answer of a call when whoever closed the turn gave no reason."""


def unanswered(pending: Mapping[str, str], messages: Iterable[Message]) -> dict[str, str]:
    """The calls (id -> name, in order) without a result after ``messages``, given those that had none before.

    Raises InvalidRequest for a result without its call, a second result, a call without an id of its own, and for
    anything but a result while a call is unanswered. Ids need to be unique within one message only: small models
    count from call_0 in every round, and a round is answered before the next begins.
    """
    waiting = dict(pending)
    for message in messages:
        if message.role == "tool":
            _answer(waiting, message)
        elif waiting:
            raise InvalidRequest(
                f"A {message.role} message can not be stored while calls have no result: {', '.join(waiting)}.",
                hint="Append one tool result for every call first.",
            )
        else:
            _ask(waiting, message)
    return waiting


def answers(pending: Mapping[str, str], reason: str) -> list[Message]:
    """The results that close a turn: one for every unanswered call, status interrupted."""
    text = reason or NO_REASON
    return [tool_result(ToolCall(id, name, {}), text, "interrupted") for id, name in pending.items()]


def whole(items: Sequence[Item]) -> list[Item]:
    """The items from the first that is not the rest of a cut pair: results stand right behind their call."""
    return list(dropwhile(lambda item: item.message.role == "tool", items))


def sound(items: Sequence[Item]) -> list[Item]:
    """Without the rounds of which something is missing; calls at the very end may still get their results."""
    kept: list[Item] = []
    asked: list[Item] = []
    waiting: set[str] = set()
    for item in items:
        if item.message.role != "tool":
            kept += [] if waiting else asked
            asked, waiting = [item], {call.id for call in item.message.calls}
        elif item.message.call_id in waiting:
            asked.append(item)
            waiting.discard(item.message.call_id or "")
    return kept + asked


def _ask(waiting: dict[str, str], message: Message) -> None:
    if message.calls and message.role != "assistant":
        raise InvalidRequest(f"A {message.role} message can not call tools.")
    for call in message.calls:
        if not call.id or call.id in waiting:
            raise InvalidRequest(f"Every call of a message needs an id of its own, not {call.id!r} again.")
        waiting[call.id] = call.name


def _answer(waiting: dict[str, str], message: Message) -> None:
    if message.calls:
        raise InvalidRequest("A tool result can not call tools.")
    if waiting.pop(message.call_id or "", None) is None:
        raise InvalidRequest(f"There is no unanswered call {message.call_id!r} for this result.")
