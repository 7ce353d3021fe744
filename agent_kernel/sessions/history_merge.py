"""What a client carries and what is stored become one conversation. Pure.

``append``: all that comes is new. ``replay``: the client sends the conversation as it knows it, without the tools that
ran here; where it agrees with what is stored the stored copy stays, tool traffic included; from where it does not, the
client's word counts, and what was stored there stays on a branch of its own.

Stated differences from mistral.rs: a conversation is found again only by a beginning with an answer in it (there, by a
lone user message too); no session goes because others came or time passed, unless a policy says so; a fork of 0 turns
is empty; a turn that failed is kept and marked, and the model does not see it. Nor are its faults kept: who sends only
what is new loses nothing, new media stay, tool history that a client repeats is not doubled, its system messages are
not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import Any, Literal

from agent_kernel.core.messages import Message
from agent_kernel.core.request import History
from agent_kernel.core.session import Item
from agent_kernel.core.session_tree import SessionSnapshot
from agent_kernel.sessions import message_hash

MOST_BRANCHES = 32
"""Of the newest, that a request is compared with beside the current one."""


@dataclass(frozen=True, slots=True)
class Splice:
    """The first ``kept`` of the stored messages stay, ``new`` follow them, of which the last ``added`` are what the
    request adds. ``agreed`` visible messages are the same in both. The model's view is ``stored[:kept]`` and then
    ``new``."""

    kept: int
    new: tuple[Message, ...]
    added: int
    agreed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """A visible message at ``at`` and the rounds of tools behind it, each (start, end) of its messages. ``before``:
    texts with calls that came since the visible message before it."""

    at: int
    rounds: tuple[tuple[int, int], ...] = ()
    before: tuple[int, ...] = ()

    @property
    def end(self) -> int:
        return self.rounds[-1][1] if self.rounds else self.at + 1


def split(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """(the system messages at its beginning, the conversation without hidden and empty messages)"""
    start = message_hash.instructed(messages)
    said = [message for message in messages[start:] if not (message.hidden or message_hash.says_nothing(message))]
    return list(messages[:start]), said


def added_from(messages: Sequence[Message]) -> int:
    """Index from which on a request adds to a conversation: its last user message, or the calls and results that it
    ends with. Its length when it ends with an answer."""
    if not messages or messages[-1].role == "assistant":
        return len(messages)
    index = len(messages) - 1
    while index and messages[index].role == "tool" and messages[index - 1].role == "tool":
        index -= 1
    calls = messages[index].role == "tool" and index and messages[index - 1].calls
    return index - 1 if calls else index


def mode(messages: Sequence[Message], wanted: History = "auto") -> Literal["append", "replay"]:
    """``replay`` when an assistant message comes before what the request adds."""
    if wanted != "auto":
        return wanted
    return "replay" if any(said.role == "assistant" for said in messages[: added_from(messages)]) else "append"


def append(stored: Sequence[Message], incoming: Sequence[Message]) -> Splice:
    """All that comes is new. Results that come alone answer the newest stored calls of their ids: these are said again
    with them, in the place of what stands there."""
    alone = next((at for at, message in enumerate(incoming) if message.role != "tool"), len(incoming))
    added = max(added_from(incoming), alone)
    known = paired(incoming[alone:], added - alone)
    answered = {message.call_id: message for message in incoming[:alone]}
    for start, end in reversed([*_found_rounds(stored, 0, len(stored))] if alone else []):
        results = {message.call_id: message for message in stored[start + 1 : end]}
        if answered.keys() <= results.keys():
            again = (stored[start], *(results | answered).values(), *known)
            return Splice(start, again, len(again))
    return Splice(len(stored), (*incoming[:alone], *known), alone + len(incoming) - added)


@dataclass(frozen=True, slots=True)
class Placed:
    """``history``: the stored messages that stay. ``behind``: the seq of the last of them where it is not the end of
    the current branch (0: nothing stays). There follow ``carried``, which the client had elsewhere, and ``added``."""

    history: tuple[Message, ...]
    carried: tuple[Message, ...]
    added: tuple[Message, ...]
    behind: int | None = None


def appended(items: Sequence[Item], incoming: Sequence[Message]) -> Placed:
    """At the end of the current branch, which ends with ``items``."""
    return _placed(items, append([item.message for item in items], incoming), None)


def placed(whole: SessionSnapshot, incoming: Sequence[Message]) -> Placed:
    """Where in the tree of a session a request that carries its history belongs: on the branch with which it agrees
    longest; of several, where nothing has to be left behind, then on the current one, then on the newest."""
    failed = {turn.id for turn in whole.turns if turn.state == "failed"}
    heads = {branch.name: branch.head for branch in whole.branches}
    here = whole.session.branch
    best: tuple[tuple[int, bool], str, list[Item], Splice] | None = None
    for name in (here, *[other for other in reversed(heads) if other != here][:MOST_BRANCHES]):
        items = [item for item in whole.shown(name)[1] if item.turn not in failed]
        found = splice([item.message for item in items], incoming)
        rank = (found.agreed, found.kept == len(items))
        if best is None or rank > best[0]:
            best = (rank, name, items, found)
        if name == here and rank[1] and len(found.new) == found.added:
            break
    assert best is not None, "there is a current branch"
    _, name, items, found = best
    return _placed(items, found, None if name == here else heads[name])


def _placed(items: Sequence[Item], found: Splice, end: int | None) -> Placed:
    """``end``: of the branch with these items, None for the current one."""
    first = len(found.new) - found.added
    behind = items[found.kept - 1].seq if found.kept else 0
    history = tuple(item.message for item in items[: found.kept])
    return Placed(history, found.new[:first], found.new[first:], end if found.kept == len(items) else behind)


def splice(stored: Sequence[Message], incoming: Sequence[Message]) -> Splice:
    """Of a request that carries its history; both without what failed, ``incoming`` without its instructions. What it
    adds is always new: asked again, it is a retry, and what is stored from there on does not stay."""
    known = paired(incoming, added_from(incoming))
    added = len(known) - (len(incoming) - added_from(incoming))
    ours, theirs = steps(stored), steps(known[:added])
    begins_with_tools = bool(known) and message_hash.is_traffic(known[0])
    kept, used, agreed = message_hash.instructed(stored) if begins_with_tools else _lead(stored), 0, 0
    for mine, other in zip(ours, theirs, strict=False):
        if not _agree(stored, mine, known, other) or used != other.at:
            break
        agreed += 1
        last = other is theirs[-1]
        goes_on = last and added < len(known) and message_hash.is_traffic(known[added])
        adds = frozenset(call.id for call in known[added].calls) if goes_on else frozenset[str]()
        kept, used, all_of_it = _rounds(stored, mine, known, other, adds)
        if not all_of_it:
            break
    more = any(mine.at >= kept for mine in ours) or any(message_hash.is_traffic(said) for said in stored[kept:])
    return Splice(kept if more else len(stored), tuple(known[used:]), len(known) - added, agreed)


def steps(messages: Sequence[Message]) -> list[Step]:
    """The visible messages and what stands behind each."""
    places = message_hash.visible(messages)
    found: list[Step] = []
    texts: tuple[int, ...] = ()
    for at, following in zip(places, [*places[1:], len(messages)], strict=False):
        rounds = tuple(_found_rounds(messages, at + 1, following))
        found.append(Step(at, rounds, texts))
        texts = tuple(start for start, _ in rounds)
    return found


def paired(messages: Sequence[Message], until: int | None = None) -> list[Message]:
    """Without calls that have not all their results right behind them, and results without their call; from ``until``
    on all stay."""
    until = len(messages) if until is None else until
    kept: list[Message] = []
    index = 0
    while index < until:
        end = _round_end(messages, index)
        message = messages[index]
        if message.calls and end <= until and _answered(messages[index:end]):
            kept += messages[index:end]
        elif not message_hash.is_traffic(message):
            kept.append(message)
        elif message.calls and message.text.strip():
            kept.append(replace(message, calls=()))
        index = end
    return [*kept, *messages[until:]]


def exchanges(messages: Sequence[Message]) -> tuple[list[list[Message]], list[Message]]:
    """(one list for each user message that was answered and all that follows it, what was not answered)"""
    starts = [at for at, message in enumerate(messages) if not at or message.role == "user"]
    ends = [*starts[1:], len(messages)]
    found = [list(messages[start:end]) for start, end in zip(starts, ends, strict=False)]
    unanswered: list[Message] = []
    while found and all(message.role != "assistant" for message in found[-1]):
        unanswered = [*found.pop(), *unanswered]
    return found, unanswered


def newest(messages: Sequence[Message], limit: int) -> list[Message]:
    """At most the last ``limit``; fewer where they would begin with results whose calls are left out."""
    return list(dropwhile(lambda message: message.role == "tool", messages[max(0, len(messages) - limit) :]))


def _lead(stored: Sequence[Message]) -> int:
    """What stands before anything visible and does not belong to it."""
    start = message_hash.instructed(stored)
    rounds = [*_found_rounds(stored, start, (message_hash.visible(stored) or [len(stored)])[0])]
    return rounds[-1][1] if rounds else start


def _agree(stored: Sequence[Message], mine: Step, known: Sequence[Message], other: Step) -> bool:
    """Also when an answer came in pieces, between calls, and is one text at the client; or was stopped, and its reader
    left before its end."""
    one, two = stored[mine.at], known[other.at]
    if message_hash.same(one, two):
        return True
    if not one.role == two.role == "assistant" or one.media != two.media:
        return False
    said = message_hash.spoken([two])
    last, whole = message_hash.spoken([one]), message_hash.spoken([*(stored[index] for index in mine.before), one])
    stopped = one.status == "interrupted" and bool(said)
    return said == whole or (stopped and (last.startswith(said) or whole.startswith(said)))


def _rounds(
    stored: Sequence[Message], mine: Step, known: Sequence[Message], other: Step, adds: frozenset[str]
) -> tuple[int, int, bool]:
    """(end of what is kept, end of what is used, whether the two still agree). ``adds`` are the calls that the request
    adds to these rounds, so that what is stored behind those it knows does not stay. Calls that were returned to it are
    stored too: it brings their results, and rounds before them, which it does not know, stay."""
    here = [_round(stored[start:end]) for start, end in mine.rounds]
    there = [_round(known[start:end]) for start, end in other.rounds]
    common = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
    if adds:
        of_calls = [frozenset(call.id for call in stored[start].calls) for start, _ in mine.rounds]
        at = len(of_calls) - 1 - of_calls[::-1].index(adds) if adds in of_calls else -1
        if at >= 0 and _within(there, here[:at]):
            return mine.rounds[at][0], other.end, False
    if adds or (common < len(there) and not _within(there, here)):
        kept = mine.rounds[common - 1][1] if common else mine.at + 1
        used = other.rounds[common - 1][1] if common else other.at + 1
        return (kept, used, False) if common in (len(here), len(there)) else (mine.at + 1, other.at + 1, False)
    return mine.end, other.end, True


def _within(some: Sequence[Any], all_of: Sequence[Any]) -> bool:
    """In this order, with others between them."""
    rest = iter(all_of)
    return all(any(one == other for other in rest) for one in some)


def _round(messages: Sequence[Message]) -> list[Any]:
    """A call message and its results, these in the order of the calls."""
    results: Mapping[str | None, Message] = {message.call_id: message for message in messages[1:]}
    ordered = [results[call.id] for call in messages[0].calls if call.id in results]
    return [message_hash.form(message) for message in (messages[0], *ordered)]


def _found_rounds(messages: Sequence[Message], start: int, stop: int) -> Iterator[tuple[int, int]]:
    while start < stop:
        end = _round_end(messages, start)
        if message_hash.is_traffic(messages[start]):
            yield start, end
        start = end


def _round_end(messages: Sequence[Message], start: int) -> int:
    """Behind the results of the message at ``start``."""
    end = start + 1
    while messages[start].calls and end < len(messages) and messages[end].role == "tool":
        end += 1
    return end


def _answered(messages: Sequence[Message]) -> bool:
    ids = [call.id for call in messages[0].calls]
    return len(set(ids)) == len(ids) and sorted(ids) == sorted(message.call_id or "" for message in messages[1:])
