"""Stores the checked numbers of an answer in the record of its turn, and reads them from the record. Only the position
of each number in the answer and its origin (a call and a line number) are stored; the texts of the answer and of the
line are read from the stored items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agent_kernel.core.messages import Message
from agent_kernel.turn.number_check.check import MAX_NUMBERS, MAX_SHOWN, CheckedNumber, Status

NUMBERS = "numbers"
STATUSES = ("computed", "code", "given", "open")


def to_record(numbers: Sequence[CheckedNumber] | None) -> dict[str, Any]:
    """Return the checked numbers as JSON, under the key NUMBERS of the record that is stored with a turn; empty if
    nothing was checked."""
    if not numbers:
        return {}
    return {NUMBERS: [[number.start, number.end, number.status, number.call, number.line] for number in numbers]}


def from_record(record: Mapping[str, Any], messages: Sequence[Message]) -> tuple[CheckedNumber, ...]:
    """Rebuild the checked numbers from the record and the items of the turn.

    If a number comes from an output of an earlier turn, the number of the output's line is returned without the line's
    text. Entries that do not match the items (because the record was edited) are skipped.
    """
    entries = record.get(NUMBERS)
    answer = next((message.text for message in reversed(messages) if message.role == "assistant"), "")
    if not isinstance(entries, list):
        return ()
    outputs = {message.call_id: message.text.split("\n") for message in messages if message.role == "tool"}
    numbers = []
    for entry in entries[:MAX_NUMBERS]:
        match entry:
            case [int(start), int(end), str(status), str(call), int(line)] if status in STATUSES:
                if 0 <= start < end <= len(answer):
                    lines = outputs.get(call, []) if status == "computed" else []
                    line_text = lines[line - 1].strip()[:MAX_SHOWN] if 0 < line <= len(lines) else ""
                    text = answer[start:end]
                    numbers.append(
                        CheckedNumber(start, end, text, cast("Status", status), call, max(0, line), line_text)
                    )
    return tuple(numbers)
