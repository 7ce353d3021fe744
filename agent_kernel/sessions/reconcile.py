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
from typing import Any, Literal, TypeAlias

from agent_kernel.messages import Message
from agent_kernel.sessions import canonical

History: TypeAlias = Literal["auto", "append", "replay"]


@dataclass(frozen=True, slots=True)
class Splice:
    """The first ``kept`` of the stored messages stay, ``new`` follow them. ``agreed`` visible messages are the same in
    both. The model's view is ``stored[:kept]`` and then ``new``."""

    kept: int
    new: tuple[Message, ...]
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
    """(the system messages at its beginning, the conversation)"""
    start = canonical.instructed(messages)
    return list(messages[:start]), list(messages[start:])


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
    return Splice(len(stored), tuple(paired(incoming, added_from(incoming))))


def splice(stored: Sequence[Message], incoming: Sequence[Message]) -> Splice:
    """Of a request that carries its history; both without what failed, ``incoming`` without its instructions. What it
    adds is always new: asked again, it is a retry, and what is stored from there on does not stay."""
    known = paired(incoming, added_from(incoming))
    added = len(known) - (len(incoming) - added_from(incoming))
    ours, theirs = steps(stored), steps(known[:added])
    kept, used, agreed = _lead(stored), 0, 0
    for mine, other in zip(ours, theirs, strict=False):
        if not _agree(stored, mine, known, other) or used != other.at:
            break
        agreed += 1
        last = other is theirs[-1]
        goes_on = last and added < len(known) and canonical.is_traffic(known[added])
        kept, used, all_of_it = _rounds(stored, mine, known, other, goes_on)
        if not all_of_it:
            break
    more = any(mine.at >= kept for mine in ours) or any(canonical.is_traffic(said) for said in stored[kept:])
    return Splice(kept if more else len(stored), tuple(known[used:]), agreed)


def steps(messages: Sequence[Message]) -> list[Step]:
    """The visible messages and what stands behind each."""
    places = canonical.visible(messages)
    found: list[Step] = []
    texts: tuple[int, ...] = ()
    for at, following in zip(places, [*places[1:], len(messages)], strict=True):
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
        elif not canonical.is_traffic(message):
            kept.append(message)
        elif message.calls and message.text.strip():
            kept.append(replace(message, calls=()))
        index = end
    return [*kept, *messages[max(index, until) :]]


def turns(messages: Sequence[Message]) -> list[list[Message]]:
    """One list for each user message and all that follows; hidden context goes with the message behind it."""
    found: list[list[Message]] = []
    for index, message in enumerate(messages):
        opens = message.role == "user" and not (index and messages[index - 1].hidden)
        if opens and (not found or any(said.role == "user" and not said.hidden for said in found[-1])):
            found.append([])
        if not found:
            found.append([])
        found[-1].append(message)
    return found


def _lead(stored: Sequence[Message]) -> int:
    """What stands before anything visible and does not belong to it."""
    start = canonical.instructed(stored)
    rounds = [*_found_rounds(stored, start, (canonical.visible(stored) or [len(stored)])[0])]
    return rounds[-1][1] if rounds else start


def _agree(stored: Sequence[Message], mine: Step, known: Sequence[Message], other: Step) -> bool:
    one, two = stored[mine.at], known[other.at]
    if canonical.same(one, two):
        return True
    whole = [stored[index] for index in mine.before if stored[index].text]
    in_pieces = bool(whole) and one.role == two.role == "assistant" and one.media == two.media
    return in_pieces and canonical.spoken([*whole, one]) == canonical.spoken([two])


def _rounds(
    stored: Sequence[Message], mine: Step, known: Sequence[Message], other: Step, goes_on: bool
) -> tuple[int, int, bool]:
    """(end of what is kept, end of what is used, whether the two still agree). ``goes_on``: the request adds to these
    rounds, so that what is stored behind those it knows does not stay."""
    here = [_round(stored[start:end]) for start, end in mine.rounds]
    there = [_round(known[start:end]) for start, end in other.rounds]
    common = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
    if goes_on or (common < len(there) and not _within(there, here)):
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
    return [canonical.form(message) for message in (messages[0], *ordered)]


def _found_rounds(messages: Sequence[Message], start: int, stop: int) -> Iterator[tuple[int, int]]:
    while start < stop:
        end = _round_end(messages, start)
        if canonical.is_traffic(messages[start]):
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
