"""Finds the origin of each number of an answer: the output line of a tool that it comes from, or none.

A number counts as computed if an output contains a number that rounds to it at the written precision: 41.3 for 41.2871,
7% for 0.0712, 1.2M for 1,204,000. Only a person can judge whether it stands for the right thing, so the line is shown.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from agent_kernel.core.messages import Message
from agent_kernel.turn.number_check.number_parser import NumberReading, ParsedNumber, parse_numbers

Status: TypeAlias = Literal["computed", "code", "given", "open"]
MAX_ANSWER = 200_000
"""Maximum number of characters of an answer that are checked."""
MAX_OUTPUTS = 1_000_000
"""Maximum number of characters of outputs that are searched, newest first."""
MAX_KNOWN = 100_000
"""Maximum number of numbers of outputs that are indexed."""
MAX_NUMBERS = 400
"""Maximum number of numbers of an answer that are checked."""
MAX_SHOWN = 160
"""Maximum number of characters of an output line that are shown."""
EXACT = 1e-9
COMMENT = re.compile(r"#[^\n]*")
CODE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{1,200})\1(?!`)")
VALUES = re.compile(r"[\s\d.,()\[\]{}%+*/:eE\N{MINUS SIGN}-]*")
"""Matches inline code that contains only values: ``41.3``, ``(100, 5)``."""
NOT_SAID = (
    re.compile(r"^[ \t>]*(?:[-*+][ \t]+)?\(?\d{1,3}[.)][ \t]", re.MULTILINE),
    re.compile(r"^ {0,3}#{1,6}[ \t]+\(?\d{1,3}(?:\.\d{1,3}){0,3}[.):]?[ \t]", re.MULTILINE),
    re.compile(r"\]\([^()\s]{0,2000}\)"),
    re.compile(r"\[\^?\d{1,3}\](?!\()"),
    re.compile(
        r"\b(?:fig(?:ure|\.)?|table|step|section|chapter|part|phase|cell|line|page|option|item|no\.|nr\.|abb(?:\.|ildung)"
        r"|tabelle|schritt|abschnitt|kapitel|teil|zelle|zeile|seite|punkt|figura|tabla|paso|étape|tableau|ligne|página)"
        r"[ \N{NO-BREAK SPACE}]\d{1,4}(?:\.\d{1,3})?\b(?![%.,]\d|%)",
        re.IGNORECASE,
    ),
    re.compile(r"第\d{1,4}"),
)
"""Match numbers that state no fact: numbers of list items, headings, links and footnotes, and references such as
"figure 3"."""
SPACED = re.compile(r"(?<![\w.,])\d{1,3}(?: \d{3})+(?![\w])")
"""Matches numbers with spaces between groups of digits: 12 345."""
YEARS = range(1800, 2200)
COUNTED = (0.0, 1.0, 2.0)


@dataclass(frozen=True, slots=True)
class CheckedNumber:
    """One number of an answer and its origin.

    ``start`` and ``end`` are character offsets in the answer. ``status`` is ``computed`` (the number is in line
    ``line``, counted from 1, of the output of ``call``), ``code`` (the number is in that line of the call's arguments,
    and in no output), ``given`` (a person wrote the number, or it was in the model's context), or ``open`` (none of
    these). ``shown`` is the text of the line.
    """

    start: int
    end: int
    text: str
    status: Status
    call: str = ""
    line: int = 0
    shown: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the number as JSON; empty fields are left out."""
        body = {"start": self.start, "end": self.end, "text": self.text, "status": self.status}
        where = {"call": self.call, "line": self.line, "shown": self.shown}
        return body | {name: value for name, value in where.items() if value}


@dataclass(frozen=True, slots=True)
class NumberSource:
    """A text in which the origin of a number is searched; ``call`` is empty if the text does not belong to a call."""

    text: str
    call: str = ""


def check(
    answer: str, outputs: Sequence[NumberSource], given: Sequence[NumberSource] = (), code: Sequence[NumberSource] = ()
) -> tuple[CheckedNumber, ...]:
    """Return the numbers of ``answer`` in order, each with its origin.

    ``outputs``, ``given`` and ``code`` are the texts in which origins are searched, ordered from oldest to newest.
    Counts of 0, 1 and 2 are ignored, and so are years without an origin.
    """
    parsed = list(_select_numbers(answer[:MAX_ANSWER]))
    if not parsed:
        return ()
    indexes: dict[Status, NumberIndex] = {
        "computed": NumberIndex(outputs),
        "given": NumberIndex(given),
        "code": NumberIndex(code),
    }
    found = []
    for number in parsed:
        checked = replace(_find_origin(number, indexes), text=answer[number.start : number.end])
        if checked.status != "open" or not may_be_year(number):
            found.append(checked)
    return tuple(found)


def check_turn(answer: str, earlier: Iterable[Message], current: Sequence[Message]) -> tuple[CheckedNumber, ...] | None:
    """Check the answer of a turn against its messages (``current``) and the earlier ones, as the model saw them.

    Returns None if no tool returned anything, in this turn or before: then nothing can be computed.
    """
    messages = [*earlier, *current]
    outputs = [NumberSource(message.text, message.call_id or "") for message in messages if message.role == "tool"]
    if not outputs:
        return None
    given = [NumberSource(message.text) for message in messages if message.role in ("user", "system")]
    code = [NumberSource(_code(call.arguments), call.id) for message in messages for call in message.calls]
    return check(answer, outputs, given, code)


def claims(numbers: Iterable[CheckedNumber]) -> list[CheckedNumber]:
    """Return the numbers that the answer introduces: all numbers of ``numbers`` except those that a person gave."""
    return [number for number in numbers if number.status != "given"]


def _select_numbers(answer: str) -> Iterator[ParsedNumber]:
    count = 0
    for number in parse_numbers(blank_non_prose(answer)):
        if is_small_count(number):
            continue
        yield number
        count += 1
        if count == MAX_NUMBERS:
            return


def _find_origin(number: ParsedNumber, indexes: Mapping[Status, NumberIndex]) -> CheckedNumber:
    for status, texts in indexes.items():
        place = texts.find(number)
        if place is not None:
            line, line_text = texts.line(place)
            call = texts.texts[place.text].call
            return CheckedNumber(
                number.start, number.end, number.text, status, call, line if call else 0, line_text if call else ""
            )
    return CheckedNumber(number.start, number.end, number.text, "open")


@dataclass(frozen=True, slots=True, order=True)
class NumberPosition:
    """A value and where it is written: ``text`` is the index of the text, ``at`` the offset in it, and ``age`` counts
    texts from the newest (0). Sorting puts equal values in the newest text first, and within a text in reading
    order."""

    value: float
    age: int
    at: int
    text: int


class NumberIndex:
    """An index of the numbers in several texts, which finds a number by its value."""

    def __init__(self, texts: Sequence[NumberSource]) -> None:
        self.texts = texts
        positive: list[NumberPosition] = []
        negative: list[NumberPosition] = []
        left, count = MAX_OUTPUTS, 0
        for age, index in enumerate(range(len(texts) - 1, -1, -1)):
            text = texts[index].text[:left]
            left -= len(text)
            for number in parse_numbers(text, lists=True):
                side = negative if number.sign < 0 else positive
                side += [NumberPosition(reading.value, age, number.start, index) for reading in number.readings]
                count += 1
                if count == MAX_KNOWN:
                    break
            if not left or count == MAX_KNOWN:
                break
        self._sides = {1: sorted(positive), -1: sorted(negative)}
        self._values = {sign: [place.value for place in side] for sign, side in self._sides.items()}

    def find(self, number: ParsedNumber) -> NumberPosition | None:
        """Return the position of the nearest value that rounds to ``number``; None if there is none. A number without a
        sign matches values of both signs, because "a fall of 3.2" is written without one."""
        signs = (number.sign,) if number.sign else (1, -1)
        best: tuple[float, NumberPosition] | None = None
        for reading in number.readings:
            for sign in signs:
                near = self._nearest(sign, reading)
                if near is not None and (best is None or near[0] < best[0]):
                    best = near
            if best is not None:
                return best[1]
        return None

    def _nearest(self, sign: int, reading: NumberReading) -> tuple[float, NumberPosition] | None:
        side, values = self._sides[sign], self._values[sign]
        at = bisect_left(values, reading.value)
        found = [side[at]] if at < len(side) else []
        if at:
            found.append(side[bisect_left(values, values[at - 1])])
        most = reading.half + EXACT * max(abs(reading.value), reading.half)
        near = [(abs(place.value - reading.value) / (reading.half or 1.0), place) for place in found]
        return min((pair for pair in near if abs(pair[1].value - reading.value) <= most), default=None)

    def line(self, place: NumberPosition) -> tuple[int, str]:
        """Return (line number from 1, text of that line) for a position."""
        text = self.texts[place.text].text
        begins = text.rfind("\n", 0, place.at) + 1
        ends = text.find("\n", place.at)
        line = text[begins : len(text) if ends < 0 else ends].strip()
        if len(line) > MAX_SHOWN:
            first = max(0, place.at - begins - MAX_SHOWN // 2)
            line = text[begins + first : begins + first + MAX_SHOWN].strip()
        return text.count("\n", 0, place.at) + 1, line


def _code(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call without comments, because a number in a comment was not computed."""
    values = [value if isinstance(value, str) else json.dumps(value, default=str) for value in arguments.values()]
    return COMMENT.sub("", "\n".join(values))


# Selects the numbers of a Markdown answer that are worth checking.


def blank_non_prose(answer: str) -> str:
    """Return the answer with spaces in place of code and of numbers that state no fact, such as the numbers of list
    items. Its length stays the same."""
    answer = CODE.sub(_blank, answer)
    answer = INLINE.sub(lambda match: match[0] if VALUES.fullmatch(match[2]) else _blank(match), answer)
    for pattern in NOT_SAID:
        answer = pattern.sub(_blank, answer)
    return SPACED.sub(lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), answer)


def is_small_count(number: ParsedNumber) -> bool:
    """Return whether the number is a plain 0, 1 or 2, which is too common to be checked."""
    return number.plain and number.readings[0].value in COUNTED and number.text.isdecimal()


def may_be_year(number: ParsedNumber) -> bool:
    return number.plain and number.text.isdecimal() and len(number.text) == 4 and int(number.text) in YEARS


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
