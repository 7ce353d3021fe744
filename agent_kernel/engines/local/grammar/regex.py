r"""Compiles regular expressions to EBNF: the part of Python's syntax that can be matched in predictable time.

Supported are characters, ``.``, classes, ``\s``, ``\d`` and ``\w`` and their opposites in ASCII, groups, ``|``, ``? * +
{m,n}``, ``^`` at the beginning and ``$`` at the end. Not supported are lookaround, back references, flags, word
boundaries, and unbounded repetition inside unbounded repetition, for which matching may take exponential time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.engines.local.grammar.ebnf import NOTHING, Rules, char_class, either, literal, sequence

MAX_CHARS = 2_000
MAX_DEPTH = 20
MAX_REPEATS = 4_096
"""Maximum number of repetitions of a part of the pattern, multiplied by the numbers of all repetitions that contain
it."""
MAX_NESTED = 256
"""Maximum number of repetitions of a part that itself contains a repetition, multiplied by the numbers of all
repetitions that contain it. It is lower than MAX_REPEATS, because a text then matches in many ways, and the library
keeps all of them: with ``([a-z]{1,9} ?){1,200}``, 20 tokens took more than a minute."""
Ranges: TypeAlias = tuple[tuple[int, int], ...]
DIGITS: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
SPACE: Ranges = (
    *((0x09, 0x0D), (0x1C, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680)),
    *((0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)
"""The characters that Python counts as white space, as ranges. The list must be complete: a character that is not white
space for the grammar must not be white space for Python either."""
SHORT = {"d": DIGITS, "w": WORD, "s": SPACE}
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
JSON_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
"""Maps characters that a JSON string cannot contain to their escapes. Other control characters are never written."""
JSON_RAW: Ranges = ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF))
ASCII: Ranges = ((0x01, 0x7F),)
ANY: Ranges = ((0x01, 0xD7FF), (0xE000, 0x10FFFF))
_COUNT = re.compile(r"\{(\d{1,5})?(,)?(\d{1,5})?\}")
_HEX = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})")


def pattern(text: str, rules: Rules, *, json: bool = False, endless: int | None = None) -> str:
    """Return an expression for the texts that the regular expression ``text`` matches from beginning to end. With
    ``json``, they are written as inside a JSON string. ``endless`` is the limit for unbounded repetitions, None for no
    limit. Raises InvalidRequest for unsupported syntax."""
    if len(text) > MAX_CHARS:
        raise InvalidRequest(f"A pattern can have at most {MAX_CHARS} characters.")
    return _PatternReader(text, rules, json, endless).whole()


def characters(ranges: Ranges, *, json: bool) -> str:
    """Return an expression for one character of ``ranges``; with ``json``, as it is written inside a JSON string."""
    raw = _intersection(ranges, JSON_RAW if json else ANY)
    if len(raw) == 1 and raw[0][0] == raw[0][1]:
        alternatives = [literal(chr(raw[0][0]))]
    else:
        alternatives = [char_class([(chr(first), chr(last)) for first, last in raw])] if raw else []
    if json:
        alternatives += [
            literal(to) for char, to in JSON_ESCAPES.items() if _intersection(ranges, ((ord(char), ord(char)),))
        ]
    if not alternatives:
        raise InvalidRequest("A character class of this pattern contains no character that a text can contain.")
    return either(*alternatives)


@dataclass(frozen=True, slots=True)
class _Expression:
    """An expression with the properties that limit its repetition: ``endless`` is whether it contains an unbounded
    repetition, ``repeats`` is the product of the numbers of repetitions inside it."""

    expression: str
    endless: bool = False
    repeats: int = 1


@dataclass(slots=True)
class _PatternReader:
    """Parses a pattern by recursive descent; ``at`` is the position of the next character."""

    text: str
    rules: Rules
    json: bool
    endless: int | None
    at: int = 0

    def whole(self) -> str:
        part = self._alternatives(0)
        if self.at < len(self.text):
            raise self._error("a ) without its (")
        return part.expression

    def _alternatives(self, depth: int) -> _Expression:
        if depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} nested groups")
        parts = [self._sequence(depth)]
        while self._accept("|"):
            parts.append(self._sequence(depth))
        return _combine(either(*(part.expression for part in parts)), parts)

    def _sequence(self, depth: int) -> _Expression:
        parts: list[_Expression] = []
        if depth == 0:
            self._accept("^")
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            if depth == 0 and self.text[self.at] == "$" and self.text[self.at + 1 : self.at + 2] in ("", "|"):
                self.at += 1
                break
            parts.append(self._with_repetition(self._atom(depth)))
        return _combine(sequence(*(part.expression for part in parts)), parts)

    def _atom(self, depth: int) -> _Expression:
        if self._accept("("):
            if self._accept("?") and not self._accept(":"):
                raise self._error("(?")
            inside = self._alternatives(depth + 1)
            if not self._accept(")"):
                raise self._error("a ( without its )")
            return inside
        return _Expression(characters(self._class() if self._accept("[") else self._character(), json=self.json))

    def _with_repetition(self, part: _Expression) -> _Expression:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._accept("?")  # lazy and greedy repetitions match the same texts
        least, most = bounds
        endless = part.endless or most is None
        if most is None and part.endless:
            raise self._error("an unlimited repetition inside another one, as in (a*)*")
        if most is None and self.endless is not None:
            most = max(least, self.endless)
        repeats = part.repeats * max(least, most or 1, 1)
        limit = MAX_NESTED if part.repeats > 1 else MAX_REPEATS
        if repeats > limit or (most is not None and most < least):
            raise self._error(f"a repetition with its bounds in the wrong order, or of more than {limit}")
        if part.expression == NOTHING:
            return part
        return _Expression(self.rules.repeat(self.rules.rule(part.expression), least, most), endless, repeats)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        counted = _COUNT.match(self.text, self.at)
        if counted is None or not (counted[1] or counted[3]):
            return None
        self.at = counted.end()
        least = int(counted[1] or 0)
        return least, int(counted[3]) if counted[3] else (None if counted[2] else least)

    def _character(self) -> Ranges:
        char = self._next()
        if char == "\\":
            return self._escape()
        if char == ".":
            return _difference(ANY, ((0x0A, 0x0A),))
        if char in "^$*+?{":
            raise self._error(char)
        return ((ord(char), ord(char)),)

    def _class(self) -> Ranges:
        negated, ascii_only = self._accept("^"), False
        pairs: list[tuple[int, int]] = []
        while not pairs or not self._accept("]"):
            char = self._next()
            ascii_only |= char == "\\" and self.text[self.at : self.at + 1] in ("d", "w", "D", "W")
            first = self._escape() if char == "\\" else ((ord(char), ord(char)),)
            if self.text[self.at : self.at + 1] == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                char = self._next()
                last = self._escape() if char == "\\" else ((ord(char), ord(char)),)
                if len(first) > 1 or len(last) > 1 or first[0][0] > last[-1][1]:
                    raise self._error("a range with its ends in the wrong order")
                first = ((first[0][0], last[-1][1]),)
            pairs += first
        ranges = tuple(pairs)
        if not negated:
            return ranges
        # With \d or \w in it, a class has ASCII ranges only. Its complement is limited to ASCII too, because Python's
        # \d and \w also match other characters.
        return _difference(ASCII if ascii_only else ANY, ranges)

    def _escape(self) -> Ranges:
        if coded := _HEX.match(self.text, self.at):
            self.at = coded.end()
            code = int(coded[1] or coded[2], 16)
            return ((code, code),)
        char = self._next()
        if char.lower() in SHORT:
            short = SHORT[char.lower()]
            return short if char in SHORT else _difference(ANY if char == "S" else ASCII, short)
        char = CONTROLS.get(char, char)
        if char.isalnum():
            raise self._error("\\" + char)
        return ((ord(char), ord(char)),)

    def _accept(self, char: str) -> bool:
        taken = self.text.startswith(char, self.at)
        self.at += taken
        return taken

    def _next(self) -> str:
        if self.at >= len(self.text):
            raise self._error("an unfinished escape or class at its end")
        self.at += 1
        return self.text[self.at - 1]

    def _error(self, problem: str) -> InvalidRequest:
        return InvalidRequest(f"The pattern {self.text[:200]!r} has {problem}, which is not supported.")


def _combine(expression: str, parts: list[_Expression]) -> _Expression:
    return _Expression(
        expression, any(part.endless for part in parts), max((part.repeats for part in parts), default=1)
    )


def _intersection(some: Ranges, others: Ranges) -> Ranges:
    pairs = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return tuple(sorted({(first, last) for first, last in pairs if first <= last}))


def _difference(some: Ranges, others: Ranges) -> Ranges:
    remaining = list(some)
    for first, last in others:
        remaining = [
            piece
            for a, b in remaining
            for piece in ((a, min(b, first - 1)), (max(a, last + 1), b))
            if piece[0] <= piece[1]
        ]
    return tuple(remaining)
