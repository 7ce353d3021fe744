"""Merges the messages that a client sends with the stored history. The functions have no side effects.

There are two modes. ``append``: all messages are new. ``replay``: the client sends the conversation as it knows it,
without the calls of tools that ran on the server. As far as it agrees with the stored history, the stored messages are
used, including calls and results. From the first difference on, the client's messages are used, and the stored ones
stay on a branch of their own.

The rules follow mistral.rs, with intended differences. A request finds a stored conversation only if the messages that
they have in common contain an answer; in mistral.rs a single user message is enough. Sessions are removed because of
their number or age only if a retention limit is set. A fork of 0 turns is empty. A failed turn is stored and marked,
and the model does not see it. A client that sends only new messages loses no history, new media are stored, calls and
results that a client repeats are not stored twice, and its system messages are not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import Any, Literal

from agent_kernel.core.messages import Message
from agent_kernel.core.session import Item
from agent_kernel.core.session_tree import SessionSnapshot
from agent_kernel.core.turn_request import History
from agent_kernel.sessions import message_comparison

MOST_BRANCHES = 32
"""Maximum number of branches, newest first, with which a request is compared besides the current branch."""


@dataclass(frozen=True, slots=True)
class Splice:
    """Describes how the messages of a request continue the stored ones. The first ``kept`` stored messages stay, and
    the messages ``new`` follow them: the model sees ``stored[:kept]`` and then ``new``. The last ``added`` messages of
    ``new`` are those that the request adds to the conversation. ``agreed`` is the number of visible messages at the
    beginning that the request and the store have in common."""

    kept: int
    new: tuple[Message, ...]
    added: int
    agreed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One visible message and the tool rounds around it, as indices into a list of messages. ``at`` is the index of the
    visible message. ``rounds`` are the tool rounds after it, each as (start, end). ``before`` are the indices of the
    messages with calls between the previous visible message and this one; their texts belong to the same answer."""

    at: int
    rounds: tuple[tuple[int, int], ...] = ()
    before: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        return self.rounds[-1][1] if self.rounds else self.at + 1


def split_instructions(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return (system messages at the beginning, all other messages that are neither hidden nor empty)."""
    start = message_comparison.count_instructions(messages)
    others = [message for message in messages[start:] if not (message.hidden or message_comparison.is_empty(message))]
    return list(messages[:start]), others


def first_added(messages: Sequence[Message]) -> int:
    """Return the index of the first message that a request adds to the conversation: its last user message, or the
    beginning of the calls and results at its end. If the messages end with an answer, nothing is added, and the number
    of messages is returned."""
    if not messages or messages[-1].role == "assistant":
        return len(messages)
    index = len(messages) - 1
    while index and messages[index].role == "tool" and messages[index - 1].role == "tool":
        index -= 1
    calls = messages[index].role == "tool" and index and messages[index - 1].calls
    return index - 1 if calls else index


def mode(messages: Sequence[Message], requested: History = "auto") -> Literal["append", "replay"]:
    """Return ``requested`` unless it is ``auto``. For ``auto``, return ``replay`` if an assistant message precedes the
    messages that the request adds, otherwise ``append``."""
    if requested != "auto":
        return requested
    return "replay" if any(message.role == "assistant" for message in messages[: first_added(messages)]) else "append"


def splice_append(stored: Sequence[Message], incoming: Sequence[Message]) -> Splice:
    """Append all incoming messages to the stored ones. Results that come without their calls belong to the newest
    stored calls with these ids. In that case the stored messages from these calls on do not stay; the calls are
    repeated in ``new``, followed by the results."""
    alone = next((at for at, message in enumerate(incoming) if message.role != "tool"), len(incoming))
    added = max(first_added(incoming), alone)
    known = drop_unpaired(incoming[alone:], added - alone)
    answered = {message.call_id: message for message in incoming[:alone]}
    for start, end in reversed([*_find_rounds(stored, 0, len(stored))] if alone else []):
        results = {message.call_id: message for message in stored[start + 1 : end]}
        if answered.keys() <= results.keys():
            again = (stored[start], *(results | answered).values(), *known)
            return Splice(start, again, len(again))
    return Splice(len(stored), (*incoming[:alone], *known), alone + len(incoming) - added)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """States where the messages of a request are stored. ``history`` are the stored messages that stay; after them
    follow ``carried``, earlier messages of the client that are not stored, and then ``added``, the messages that the
    request adds. ``behind`` is the sequence number of the item after which they are stored: None means the end of the
    current branch, 0 means that no stored message stays."""

    history: tuple[Message, ...]
    carried: tuple[Message, ...]
    added: tuple[Message, ...]
    behind: int | None = None


def plan_append(items: Sequence[Item], incoming: Sequence[Message]) -> MergePlan:
    """Plan an append at the end of the current branch, which ends with ``items``."""
    return _to_plan(items, splice_append([item.message for item in items], incoming), None)


def plan_replay(whole: SessionSnapshot, incoming: Sequence[Message]) -> MergePlan:
    """Plan a request that repeats its conversation. It continues the branch with which it has the most visible messages
    in common. If several branches have equally many, a branch of which all items stay is preferred, then the current
    branch, then the newest."""
    failed = {turn.id for turn in whole.turns if turn.state == "failed"}
    heads = {branch.name: branch.head for branch in whole.branches}
    current_branch = whole.session.branch
    best: tuple[tuple[int, bool], str, list[Item], Splice] | None = None
    for name in (current_branch, *[other for other in reversed(heads) if other != current_branch][:MOST_BRANCHES]):
        items = [item for item in whole.select_branch(name)[1] if item.turn not in failed]
        candidate = splice([item.message for item in items], incoming)
        rank = (candidate.agreed, candidate.kept == len(items))
        if best is None or rank > best[0]:
            best = (rank, name, items, candidate)
        if name == current_branch and rank[1] and len(candidate.new) == candidate.added:
            break
    assert best is not None, "there is a current branch"
    _, name, items, candidate = best
    return _to_plan(items, candidate, None if name == current_branch else heads[name])


def _to_plan(items: Sequence[Item], splice: Splice, end: int | None) -> MergePlan:
    """Convert a splice of these items into a plan. ``end`` is the sequence number of the branch's last item, or None
    for the current branch."""
    first = len(splice.new) - splice.added
    behind = items[splice.kept - 1].seq if splice.kept else 0
    history = tuple(item.message for item in items[: splice.kept])
    return MergePlan(history, splice.new[:first], splice.new[first:], end if splice.kept == len(items) else behind)


def splice(stored: Sequence[Message], incoming: Sequence[Message]) -> Splice:
    """Compare a request that carries its history with the stored messages.

    Neither list may contain failed turns, and ``incoming`` must not contain instructions. Messages that the request
    adds always count as new. If the added messages repeat a stored message, the request is a retry, and the repeated
    message and all stored messages after it do not stay.
    """
    known = drop_unpaired(incoming, first_added(incoming))
    added = len(known) - (len(incoming) - first_added(incoming))
    ours, theirs = visible_steps(stored), visible_steps(known[:added])
    begins_with_tools = bool(known) and message_comparison.is_tool_traffic(known[0])
    end, used, agreed = (
        message_comparison.count_instructions(stored) if begins_with_tools else _leading_end(stored),
        0,
        0,
    )
    for mine, other in zip(ours, theirs, strict=False):
        if not _is_same_message(stored, mine, known, other) or used != other.at:
            break
        agreed += 1
        last = other is theirs[-1]
        begins_with_calls = last and added < len(known) and message_comparison.is_tool_traffic(known[added])
        adds = frozenset(call.id for call in known[added].calls) if begins_with_calls else frozenset[str]()
        end, used, all_of_it = _merge_rounds(stored, mine, known, other, adds)
        if not all_of_it:
            break
    more = any(mine.at >= end for mine in ours) or any(
        message_comparison.is_tool_traffic(message) for message in stored[end:]
    )
    return Splice(end if more else len(stored), tuple(known[used:]), len(known) - added, agreed)


def visible_steps(messages: Sequence[Message]) -> list[Step]:
    """Return a Step (the index of the message, and the tool rounds around it) for each visible message, in order."""
    places = message_comparison.visible_indices(messages)
    steps: list[Step] = []
    texts: tuple[int, ...] = ()
    for at, following in zip(places, [*places[1:], len(messages)], strict=False):
        rounds = tuple(_find_rounds(messages, at + 1, following))
        steps.append(Step(at, rounds, texts))
        texts = tuple(start for start, _ in rounds)
    return steps


def drop_unpaired(messages: Sequence[Message], until: int | None = None) -> list[Message]:
    """Return the messages without calls that are not directly followed by all their results, and without results that
    do not follow their call. The text of a message with such calls stays. Messages from index ``until`` on stay
    unchanged; None means that all messages are checked."""
    until = len(messages) if until is None else until
    paired: list[Message] = []
    index = 0
    while index < until:
        end = _round_end(messages, index)
        message = messages[index]
        if message.calls and end <= until and _is_answered(messages[index:end]):
            paired += messages[index:end]
        elif not message_comparison.is_tool_traffic(message):
            paired.append(message)
        elif message.calls and message.text.strip():
            paired.append(replace(message, calls=()))
        index = end
    return [*paired, *messages[until:]]


def split_exchanges(messages: Sequence[Message]) -> tuple[list[list[Message]], list[Message]]:
    """Return (exchanges, unanswered messages at the end). An exchange is a user message with an answer and everything
    that follows it up to the next user message."""
    starts = [at for at, message in enumerate(messages) if not at or message.role == "user"]
    ends = [*starts[1:], len(messages)]
    exchanges = [list(messages[start:end]) for start, end in zip(starts, ends, strict=False)]
    unanswered: list[Message] = []
    while exchanges and all(message.role != "assistant" for message in exchanges[-1]):
        unanswered = [*exchanges.pop(), *unanswered]
    return exchanges, unanswered


def newest_messages(messages: Sequence[Message], limit: int) -> list[Message]:
    """Return at most the last ``limit`` messages; fewer if the first of them would be results without their calls."""
    return list(dropwhile(lambda message: message.role == "tool", messages[max(0, len(messages) - limit) :]))


def _leading_end(stored: Sequence[Message]) -> int:
    """Return the index after the instructions and the tool rounds at the beginning, which precede the first visible
    message."""
    start = message_comparison.count_instructions(stored)
    rounds = [*_find_rounds(stored, start, (message_comparison.visible_indices(stored) or [len(stored)])[0])]
    return rounds[-1][1] if rounds else start


def _is_same_message(stored: Sequence[Message], mine: Step, request_messages: Sequence[Message], other: Step) -> bool:
    """Return whether the stored message ``mine`` and the message ``other`` of the request match. If a stored answer
    consists of several texts between calls, their joined text matches too. If the stored answer was interrupted, its
    beginning matches too, since the client may not have received all of it."""
    one, two = stored[mine.at], request_messages[other.at]
    if message_comparison.is_same(one, two):
        return True
    if not one.role == two.role == "assistant" or one.media != two.media:
        return False
    text = message_comparison.spoken_text([two])
    last, whole = (
        message_comparison.spoken_text([one]),
        message_comparison.spoken_text([*(stored[index] for index in mine.before), one]),
    )
    stopped = one.status == "interrupted" and bool(text)
    return text == whole or (stopped and (last.startswith(text) or whole.startswith(text)))


def _merge_rounds(
    stored: Sequence[Message], mine: Step, request_messages: Sequence[Message], other: Step, adds: frozenset[str]
) -> tuple[int, int, bool]:
    """Compare the tool rounds after two matching messages. Returns (index after the last stored message that stays,
    index after the last message of the request that the stored ones replace, whether all tool rounds agree). ``mine``
    is the step of ``stored``, ``other`` that of ``request_messages``, the messages of the request.

    ``adds`` are the ids of calls whose results the request adds here. If there are any, stored rounds after those in
    the request do not stay. If the store has these calls, because a turn returned them to the client, the stored rounds
    before them stay, even if the request does not contain these rounds.
    """
    here = [_round_form(stored[start:end]) for start, end in mine.rounds]
    there = [_round_form(request_messages[start:end]) for start, end in other.rounds]
    common = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
    if adds:
        of_calls = [frozenset(call.id for call in stored[start].calls) for start, _ in mine.rounds]
        at = len(of_calls) - 1 - of_calls[::-1].index(adds) if adds in of_calls else -1
        if at >= 0 and _is_subsequence(there, here[:at]):
            return mine.rounds[at][0], other.end, False
    if adds or (common < len(there) and not _is_subsequence(there, here)):
        kept_end = mine.rounds[common - 1][1] if common else mine.at + 1
        used = other.rounds[common - 1][1] if common else other.at + 1
        return (kept_end, used, False) if common in (len(here), len(there)) else (mine.at + 1, other.at + 1, False)
    return mine.end, other.end, True


def _is_subsequence(subsequence: Sequence[Any], sequence: Sequence[Any]) -> bool:
    """Return whether the elements of ``subsequence`` occur in ``sequence`` in this order, possibly with others in
    between."""
    rest = iter(sequence)
    return all(any(element == other for other in rest) for element in subsequence)


def _round_form(messages: Sequence[Message]) -> list[Any]:
    """Return a round of tool calls in a form that can be compared: the message with the calls, and its results in the
    order of the calls."""
    results: Mapping[str | None, Message] = {message.call_id: message for message in messages[1:]}
    ordered = [results[call.id] for call in messages[0].calls if call.id in results]
    return [message_comparison.comparison_form(message) for message in (messages[0], *ordered)]


def _find_rounds(messages: Sequence[Message], start: int, stop: int) -> Iterator[tuple[int, int]]:
    while start < stop:
        end = _round_end(messages, start)
        if message_comparison.is_tool_traffic(messages[start]):
            yield start, end
        start = end


def _round_end(messages: Sequence[Message], start: int) -> int:
    """Return the index after the results that follow the message at ``start``."""
    end = start + 1
    while messages[start].calls and end < len(messages) and messages[end].role == "tool":
        end += 1
    return end


def _is_answered(messages: Sequence[Message]) -> bool:
    ids = [call.id for call in messages[0].calls]
    return len(set(ids)) == len(ids) and sorted(ids) == sorted(message.call_id or "" for message in messages[1:])
