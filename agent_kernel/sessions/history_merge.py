"""Merges the messages that a client sends with the stored history. The functions have no side effects.

``append``: all messages are new. ``replay``: the client sends the conversation as it knows it, without the tools that
ran here. Where it agrees with the stored history, the stored copy is used, including tool traffic. From the first
difference on, the client's version is used, and the stored one stays on a branch of its own.

Intended differences from mistral.rs: a conversation is found again only by a beginning that contains an answer (there,
also by a single user message); no session is removed because others were created or time passed, unless a policy says
so; a fork of 0 turns is empty; a failed turn is stored and marked, and the model does not see it. Some faults of
mistral.rs are not copied: a client that sends only new messages loses nothing, new media are stored, tool history that
a client repeats is not duplicated, and its system messages are not stored.
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
"""Number of other branches, newest first, with which a request is compared besides the current one."""


@dataclass(frozen=True, slots=True)
class Splice:
    """The first ``kept`` stored messages stay and the messages ``new`` follow them. The last ``added`` messages of
    ``new`` are those that the request adds to the conversation. ``agreed`` is the number of visible messages that are
    the same in both. The model sees ``stored[:kept]`` and then ``new``."""

    kept: int
    new: tuple[Message, ...]
    added: int
    agreed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A visible message at index ``at`` and the tool rounds behind it, each as (start, end) of its messages.
    ``before``: indices of texts with calls since the previous visible message."""

    at: int
    rounds: tuple[tuple[int, int], ...] = ()
    before: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        return self.rounds[-1][1] if self.rounds else self.at + 1


def split_instructions(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return (leading system messages, the rest without hidden and empty messages)."""
    start = message_comparison.count_instructions(messages)
    spoken = [message for message in messages[start:] if not (message.hidden or message_comparison.is_empty(message))]
    return list(messages[:start]), spoken


def first_added(messages: Sequence[Message]) -> int:
    """Return the index from which on a request adds to a conversation: its last user message, or the calls and results
    at its end. Returns the number of messages if they end with an answer."""
    if not messages or messages[-1].role == "assistant":
        return len(messages)
    index = len(messages) - 1
    while index and messages[index].role == "tool" and messages[index - 1].role == "tool":
        index -= 1
    calls = messages[index].role == "tool" and index and messages[index - 1].calls
    return index - 1 if calls else index


def mode(messages: Sequence[Message], wanted: History = "auto") -> Literal["append", "replay"]:
    """Return ``replay`` if an assistant message precedes what the request adds, otherwise ``append``."""
    if wanted != "auto":
        return wanted
    return "replay" if any(message.role == "assistant" for message in messages[: first_added(messages)]) else "append"


def splice_append(stored: Sequence[Message], incoming: Sequence[Message]) -> Splice:
    """Append everything. Results that come without their calls answer the newest stored calls with these ids: those
    calls are written again with the results, replacing what is stored there."""
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
    """Where the messages of a request go. ``history`` are the stored messages that stay. ``behind`` is the seq of the
    last of them if it is not the end of the current branch (0: nothing stays). After it follow ``carried`` (messages of
    the client that are not stored here) and ``added``."""

    history: tuple[Message, ...]
    carried: tuple[Message, ...]
    added: tuple[Message, ...]
    behind: int | None = None


def plan_append(items: Sequence[Item], incoming: Sequence[Message]) -> MergePlan:
    """Plan an append at the end of the current branch, which ends with ``items``."""
    return _to_plan(items, splice_append([item.message for item in items], incoming), None)


def plan_replay(whole: SessionSnapshot, incoming: Sequence[Message]) -> MergePlan:
    """Find the branch where a request that carries its history belongs: the one that agrees longest; then one of which
    nothing has to be left out; then the current one, then the newest."""
    failed = {turn.id for turn in whole.turns if turn.state == "failed"}
    heads = {branch.name: branch.head for branch in whole.branches}
    here = whole.session.branch
    best: tuple[tuple[int, bool], str, list[Item], Splice] | None = None
    for name in (here, *[other for other in reversed(heads) if other != here][:MOST_BRANCHES]):
        items = [item for item in whole.select_branch(name)[1] if item.turn not in failed]
        candidate = splice([item.message for item in items], incoming)
        rank = (candidate.agreed, candidate.kept == len(items))
        if best is None or rank > best[0]:
            best = (rank, name, items, candidate)
        if name == here and rank[1] and len(candidate.new) == candidate.added:
            break
    assert best is not None, "there is a current branch"
    _, name, items, candidate = best
    return _to_plan(items, candidate, None if name == here else heads[name])


def _to_plan(items: Sequence[Item], found: Splice, end: int | None) -> MergePlan:
    """Convert a splice into a plan. ``end`` is the head of the branch with these items, None for the current branch."""
    first = len(found.new) - found.added
    behind = items[found.kept - 1].seq if found.kept else 0
    history = tuple(item.message for item in items[: found.kept])
    return MergePlan(history, found.new[:first], found.new[first:], end if found.kept == len(items) else behind)


def splice(stored: Sequence[Message], incoming: Sequence[Message]) -> Splice:
    """Compare a request that carries its history with the stored messages.

    Neither contains failed turns, and ``incoming`` no instructions. What the request adds always counts as new: if it
    repeats a stored message, it is a retry, and the stored messages from there on do not stay."""
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
        goes_on = last and added < len(known) and message_comparison.is_tool_traffic(known[added])
        adds = frozenset(call.id for call in known[added].calls) if goes_on else frozenset[str]()
        end, used, all_of_it = _merge_rounds(stored, mine, known, other, adds)
        if not all_of_it:
            break
    more = any(mine.at >= end for mine in ours) or any(
        message_comparison.is_tool_traffic(message) for message in stored[end:]
    )
    return Splice(end if more else len(stored), tuple(known[used:]), len(known) - added, agreed)


def visible_steps(messages: Sequence[Message]) -> list[Step]:
    """Return the visible messages with what follows each."""
    places = message_comparison.visible_indices(messages)
    steps: list[Step] = []
    texts: tuple[int, ...] = ()
    for at, following in zip(places, [*places[1:], len(messages)], strict=False):
        rounds = tuple(_find_rounds(messages, at + 1, following))
        steps.append(Step(at, rounds, texts))
        texts = tuple(start for start, _ in rounds)
    return steps


def drop_unpaired(messages: Sequence[Message], until: int | None = None) -> list[Message]:
    """Return the messages without calls that lack results directly behind them, and without results that lack their
    call. From index ``until`` on, all messages stay."""
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
    """Return (one list per answered user message with all that follows it, the unanswered messages at the end)."""
    starts = [at for at, message in enumerate(messages) if not at or message.role == "user"]
    ends = [*starts[1:], len(messages)]
    exchanges = [list(messages[start:end]) for start, end in zip(starts, ends, strict=False)]
    unanswered: list[Message] = []
    while exchanges and all(message.role != "assistant" for message in exchanges[-1]):
        unanswered = [*exchanges.pop(), *unanswered]
    return exchanges, unanswered


def newest_messages(messages: Sequence[Message], limit: int) -> list[Message]:
    """Return at most the last ``limit`` messages; fewer if the first ones would be results without their calls."""
    return list(dropwhile(lambda message: message.role == "tool", messages[max(0, len(messages) - limit) :]))


def _leading_end(stored: Sequence[Message]) -> int:
    """Return the index behind the instructions and the tool rounds that precede the first visible message."""
    start = message_comparison.count_instructions(stored)
    rounds = [*_find_rounds(stored, start, (message_comparison.visible_indices(stored) or [len(stored)])[0])]
    return rounds[-1][1] if rounds else start


def _is_same_message(stored: Sequence[Message], mine: Step, known: Sequence[Message], other: Step) -> bool:
    """Whether two messages match. An answer that came in pieces between calls matches the joined text; an interrupted
    answer matches its beginning, since its reader may have left before the end."""
    one, two = stored[mine.at], known[other.at]
    if message_comparison.is_same(one, two):
        return True
    if not one.role == two.role == "assistant" or one.media != two.media:
        return False
    spoken = message_comparison.spoken_text([two])
    last, whole = (
        message_comparison.spoken_text([one]),
        message_comparison.spoken_text([*(stored[index] for index in mine.before), one]),
    )
    stopped = one.status == "interrupted" and bool(spoken)
    return spoken == whole or (stopped and (last.startswith(spoken) or whole.startswith(spoken)))


def _merge_rounds(
    stored: Sequence[Message], mine: Step, known: Sequence[Message], other: Step, adds: frozenset[str]
) -> tuple[int, int, bool]:
    """Return (index behind the stored messages that stay, index behind the messages of the request that they replace,
    whether the tool rounds of both agree).

    ``adds`` are the ids of the calls that the request adds to these rounds; if there are any, stored rounds that follow
    those in the request do not stay. Calls that were returned to the client are also stored: the request contains their
    results, and stored rounds before these calls stay even if the client does not know them."""
    here = [_round_form(stored[start:end]) for start, end in mine.rounds]
    there = [_round_form(known[start:end]) for start, end in other.rounds]
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


def _is_subsequence(some: Sequence[Any], all_of: Sequence[Any]) -> bool:
    """Return whether the elements of ``some`` occur in ``all_of`` in this order, possibly with others in between."""
    rest = iter(all_of)
    return all(any(one == other for other in rest) for one in some)


def _round_form(messages: Sequence[Message]) -> list[Any]:
    """Return a comparable form of a call message and its results, in the order of the calls."""
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
    """Return the index behind the results of the message at ``start``."""
    end = start + 1
    while messages[start].calls and end < len(messages) and messages[end].role == "tool":
        end += 1
    return end


def _is_answered(messages: Sequence[Message]) -> bool:
    ids = [call.id for call in messages[0].calls]
    return len(set(ids)) == len(ids) and sorted(ids) == sorted(message.call_id or "" for message in messages[1:])
