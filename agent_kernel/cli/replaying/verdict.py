"""Compares a recorded turn with its replay. The module does no I/O.

A difference in the wording is only reported. Different numbers, or code that now fails, count as a failure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from agent_kernel.cli.replaying.recorded_turn import RecordedTurn, same_call
from agent_kernel.core.messages import Message, ToolCall
from agent_kernel.turn.number_check.check import CheckedNumber, NumberSource, check, check_turn, claims

Result: TypeAlias = Literal[
    "not run again", "holds", "text drifted", "tool calls differ", "numbers changed", "could not run"
]
FAILURES = ("numbers changed", "could not run")
ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,16}")
NO_FILE = re.compile(r"No such file or directory: ['\"]([^'\"\n]{1,400})['\"]")
MAX_WHY = 300


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """The replay of a turn. ``messages`` are the messages of the replayed turn, ``earlier`` those of the turns before
    it. ``error`` is the reason if the replay failed, otherwise empty."""

    messages: tuple[Message, ...]
    earlier: tuple[Message, ...] = ()
    error: str = ""

    @property
    def answer(self) -> str:
        return next((message.text for message in reversed(self.messages) if message.role == "assistant"), "")

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(call for message in self.messages for call in message.calls)


@dataclass(frozen=True, slots=True)
class ReplayVerdict:
    """The result of comparing a recorded turn with its replay.

    ``numbers`` are the numbers of the recorded answer that are no longer right; ``instead`` are the numbers that only
    the new answer has. ``open`` are numbers of the recorded answer that no recorded output contained. ``outputs`` is
    the number of tool results that differ. ``files`` are the names of files that the replay needed and that are missing
    on this machine.
    """

    turn: str
    number: int
    prompt: str
    result: Result
    why: str = ""
    numbers: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    outputs: int = 0
    files: tuple[str, ...] = ()
    answer: str = field(default="", repr=False)

    @property
    def failed(self) -> bool:
        return self.result in FAILURES

    def to_json(self) -> dict[str, Any]:
        names = ("turn", "number", "prompt", "result", "why", "outputs", "answer")
        lists = ("numbers", "instead", "open", "files")
        plain = {name: getattr(self, name) for name in names}
        return plain | {name: list(getattr(self, name)) for name in lists} | {"failed": self.failed}


def verdict(before: RecordedTurn, now: ReplayedTurn, *, model: bool, tools: bool) -> ReplayVerdict:
    """Compare a recorded turn with its replay. ``model`` states whether the model was asked again, ``tools`` whether
    the tools ran again. A part that comes from the record is not compared. If both are false, only the numbers of the
    recorded answer are checked."""
    recorded = check_turn(before.answer, before.earlier, before.messages) or ()
    facts: dict[str, Any] = {
        "turn": before.turn.id,
        "number": before.number,
        "prompt": before.prompt,
        "open": tuple(number.text for number in recorded if number.status == "open"),
        "outputs": _count_changes(before, now) if tools else 0,
        "answer": now.answer if model else "",
    }
    if not (model or tools):
        return ReplayVerdict(**facts, result="not run again")
    if now.error:
        return ReplayVerdict(**facts, result="could not run", why=now.error[:MAX_WHY])
    if tools and not model and (failed := _find_failure(before, now)) is not None:
        files = tuple(dict.fromkeys(NO_FILE.findall(failed)))
        return ReplayVerdict(**facts, result="could not run", why=_last_line(failed), files=files)
    gone = _not_computed(recorded, before, now) if tools else []
    instead: list[str] = []
    if model:
        missing, instead = _other_numbers(before.answer, recorded, now)
        gone = list(dict.fromkeys([*gone, *missing]))
    if gone:
        return ReplayVerdict(**facts, result="numbers changed", numbers=tuple(gone), instead=tuple(instead))
    if model and not _same_calls(before.calls, now.calls):
        return ReplayVerdict(**facts, result="tool calls differ", why=_calls(now.calls))
    drifted = model and " ".join(now.answer.split()) != " ".join(before.answer.split())
    return ReplayVerdict(**facts, result="text drifted" if drifted else "holds")


def _not_computed(recorded: Sequence[CheckedNumber], before: RecordedTurn, now: ReplayedTurn) -> list[str]:
    """Return the numbers of the recorded answer that the recorded outputs contain and the new outputs do not.
    ``recorded`` are the checked numbers of the recorded answer."""
    again = check_turn(before.answer, now.earlier, now.messages) or ()
    computed_again = {(number.start, number.end) for number in again if number.status == "computed"}
    return [
        number.text
        for number in recorded
        if number.status == "computed" and (number.start, number.end) not in computed_again
    ]


def _other_numbers(answer: str, recorded: Sequence[CheckedNumber], now: ReplayedTurn) -> tuple[list[str], list[str]]:
    """Return (numbers of the recorded answer that the new answer lacks, numbers that only the new answer has).
    ``recorded`` are the checked numbers of the recorded ``answer``. A new answer that has some of these numbers and no
    other number counts as reworded; the first list is then empty."""
    before = claims(recorded)
    again = {
        (number.start, number.end)
        for number in check(answer, [NumberSource(now.answer)])
        if number.status == "computed"
    }
    missing = [number.text for number in before if (number.start, number.end) not in again]
    new = check(now.answer, [NumberSource(answer)])
    instead = [number.text for number in new if number.status == "open"]
    if missing and (instead or len(missing) == len(before)):
        return missing, instead
    return [], instead


def _same_calls(before: Sequence[ToolCall], now: Sequence[ToolCall]) -> bool:
    return len(before) == len(now) and all(same_call(one, other) for one, other in zip(before, now, strict=True))


def _calls(calls: Sequence[ToolCall]) -> str:
    return f"now {len(calls)} call(s): {', '.join(call.name for call in calls)}"[:MAX_WHY] if calls else "now none"


def _find_failure(before: RecordedTurn, now: ReplayedTurn) -> str | None:
    """Return the text of the first failed result of the replay that was not a failure in the record; None if there is
    none."""
    then = before.results
    for message in now.messages:
        if message.role == "tool" and message.status != "success":
            recorded_result = then.get(message.call_id or "")
            if recorded_result is None or recorded_result.status == "success":
                return message.text or f"a call ended with the status {message.status}"
    return None


def _count_changes(before: RecordedTurn, now: ReplayedTurn) -> int:
    then = before.results
    return sum(
        message.role == "tool"
        and (message.call_id or "") in then
        and _plain(message.text) != _plain(then[message.call_id or ""].text)
        for message in now.messages
    )


def _plain(text: str) -> str:
    return ADDRESS.sub("0x", "\n".join(line.rstrip() for line in text.strip().splitlines()))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return (lines[-1] if lines else "the turn failed without an error message")[:MAX_WHY]
