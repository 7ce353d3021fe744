"""Rules for pairs of a tool call and its result: which messages may be stored, which results a turn gets when it is
closed early, and where a view of the history may begin. The functions have no side effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message, ToolCall, tool_result
from agent_kernel.core.session import Item

NO_REASON = "The call was interrupted."
"""Result text of an interrupted call if the turn was closed without a reason. The model reads it."""


def pending_calls(pending: Mapping[str, str], messages: Iterable[Message]) -> dict[str, str]:
    """Return the calls (id -> name, in order) that have no result after ``messages``. ``pending`` are the calls that
    had no result before them.

    Raises InvalidRequest for a result without its call, a second result, a call without an id of its own, and for
    anything but a result while a call is pending. Ids are unique only within a message: small models count from call_0
    in every round, and each round is answered before the next one begins.
    """
    waiting = dict(pending)
    for message in messages:
        if message.role == "tool":
            _add_result(waiting, message)
        elif waiting:
            raise InvalidRequest(
                f"A {message.role} message cannot be stored while calls have no result: {', '.join(waiting)}.",
                hint="Append one tool result for every call first.",
            )
        else:
            _add_calls(waiting, message)
    return waiting


def interrupted_results(pending: Mapping[str, str], reason: str) -> list[Message]:
    """Return one result with the status ``interrupted`` for every pending call, so that the turn can be closed.
    ``reason`` is the text of the results; NO_REASON is used if it is empty."""
    text = reason or NO_REASON
    return [tool_result(ToolCall(id, name, {}), text, "interrupted") for id, name in pending.items()]


def drop_leading_results(items: Sequence[Item]) -> list[Item]:
    """Return the items without the tool results at the beginning, because their calls came before these items."""
    return list(dropwhile(lambda item: item.message.role == "tool", items))


def drop_incomplete_rounds(items: Sequence[Item]) -> list[Item]:
    """Return the items without incomplete rounds. A round is a message with calls and the results of these calls. Calls
    at the very end stay, since they may still get their results."""
    complete: list[Item] = []
    open_round: list[Item] = []
    waiting: set[str] = set()
    for item in items:
        if item.message.role != "tool":
            complete += [] if waiting else open_round
            open_round, waiting = [item], {call.id for call in item.message.calls}
        elif item.message.call_id in waiting:
            open_round.append(item)
            waiting.discard(item.message.call_id or "")
    return complete + open_round


def _add_calls(waiting: dict[str, str], message: Message) -> None:
    if message.calls and message.role != "assistant":
        raise InvalidRequest(f"A {message.role} message cannot call tools.")
    for call in message.calls:
        if not call.id or call.id in waiting:
            raise InvalidRequest(f"Every call of a message must have a unique id; {call.id!r} is empty or used twice.")
        waiting[call.id] = call.name


def _add_result(waiting: dict[str, str], message: Message) -> None:
    if message.calls:
        raise InvalidRequest("A tool result cannot call tools.")
    if waiting.pop(message.call_id or "", None) is None:
        raise InvalidRequest(f"There is no pending call {message.call_id!r} for this result.")
