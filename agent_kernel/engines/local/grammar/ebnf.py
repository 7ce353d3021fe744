"""Builds EBNF in xgrammar's notation from expressions.

An expression is a string in that notation. An expression that is used more than once, or repeated, becomes a rule, and
equal texts become one rule: the library computes once for each position of each rule which tokens fit, and that is the
cost of a grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.engines.local.backend import OutputGrammar

CHUNK = 8
"""A longer repetition is written as chunks of chunks. As a single one, 200 characters cost 7 s of one core to compile
and 0.15 s per token (openvino-genai 2026.4, 49k tokens). In chunks of 8, 16 or 32, however many, they cost 0.2, 0.75 or
1.2 s to compile (152k tokens), once, while the batch stands still, and 0.06, 0.04 or 0.02 s per token."""
MAX_RULES = 2_000
MAX_CHARS = 200_000
NOTHING = '""'
_NAME = re.compile(r"\w+")


def literal(text: str) -> str:
    return f'"{"".join(_escape(char) for char in text)}"'


def char_class(ranges: Iterable[tuple[str, str]]) -> str:
    """Return a character class of ranges (first, last), both inclusive."""
    inside = (_escape(first) + (f"-{_escape(last)}" if last > first else "") for first, last in ranges)
    return f"[{''.join(inside)}]"


def sequence(*parts: str) -> str:
    return " ".join(part for part in parts if part != NOTHING) or NOTHING


def either(*alternatives: str) -> str:
    """Return an alternative of the expressions, without duplicates."""
    distinct = list(dict.fromkeys(alternatives))
    return distinct[0] if len(distinct) == 1 else f"({' | '.join(distinct)})"


def choice(texts: Iterable[str]) -> str:
    """Return an expression for one of the texts, written so that no two alternatives begin with the same character.

    As plain alternatives, "=", "<" and "<=" in quotes also let "=====" through: the xgrammar inside openvino-genai
    2026.4 joins states that it should keep apart. Written like this it does not (40 of 40 samples against 20 of 40).
    """
    by_first: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        by_first.setdefault(text[:1], []).append(text)
    return either(*(_factor_prefix(same) if first else NOTHING for first, same in by_first.items()))


def _factor_prefix(texts: list[str]) -> str:
    """Write ``texts``, which share their first character, as their common prefix followed by a choice of the rests."""
    shortest = min(texts, key=len)
    length = next((at for at, char in enumerate(shortest) if any(text[at] != char for text in texts)), len(shortest))
    rest = [text[length:] for text in texts]
    return literal(texts[0]) if rest == [""] else sequence(literal(shortest[:length]), choice(rest))


def optional(part: str) -> str:
    return either(NOTHING, part)


class Rules:
    """The rules of one grammar. Raises InvalidRequest for more than MAX_RULES rules or MAX_CHARS characters."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._chars = 0

    def rule(self, body: str) -> str:
        """Return the name of a rule with this body; equal bodies share a rule."""
        if _NAME.fullmatch(body):
            return body
        if body not in self._names:
            self._chars += len(body)
            if len(self._names) >= MAX_RULES or self._chars > MAX_CHARS:
                raise InvalidRequest("The grammar of this output format is too large.", hint="Make the schema smaller.")
            self._names[body] = f"r{len(self._names)}"
        return self._names[body]

    def repeat(self, part: str, least: int, most: int | None) -> str:
        """Repeat ``part`` from ``least`` to ``most`` times; None = without limit."""
        if most == 0:
            return NOTHING
        one = self.rule(part) if " " in part else part
        if most is None:
            # Unbounded: the required repetitions, followed by a star.
            return sequence(self.repeat(one, least, least), f"{one}*")
        if most <= CHUNK:
            return one if least == most == 1 else f"{one}{{{least},{most}}}"
        # The required repetitions as whole chunks and single ones, followed by the optional ones.
        fixed, free = divmod(least, CHUNK)
        chunk = self.rule(f"{one}{{{CHUNK}}}")
        head = sequence(self.repeat(chunk, fixed, fixed), self.repeat(one, free, free))
        return sequence(head, self._up_to(one, chunk, most - least))

    def _up_to(self, one: str, chunk: str, most: int) -> str:
        """Return 0 to ``most`` repetitions: whole chunks, followed by less than one more chunk. All strings share these
        rules."""
        chunks, rest = divmod(most, CHUNK)
        short = self.rule(f"{one}{{0,{CHUNK - 1}}}")
        if not chunks:
            return short if rest == CHUNK - 1 else self.repeat(one, 0, rest)
        if rest == CHUNK - 1:
            return sequence(self.repeat(chunk, 0, chunks), short)
        # Two alternatives, because the last chunk is limited: either one chunk less and any number of single ones, or
        # all chunks and at most ``rest`` single ones.
        fewer = sequence(self.repeat(chunk, 0, chunks - 1), short)
        all_of_them = sequence(self.repeat(chunk, chunks, chunks), self.repeat(one, 0, rest))
        return either(self.rule(fewer), self.rule(all_of_them))

    def grammar(self, root: str) -> OutputGrammar:
        lines = [f"root ::= {root}", *(f"{name} ::= {body}" for body, name in self._names.items())]
        return OutputGrammar("ebnf", "\n".join(lines) + "\n")


def _escape(char: str) -> str:
    """Escape everything but plain ASCII characters, so that no text can end a literal or a class."""
    code = ord(char)
    if char.isascii() and (char.isalnum() or char in " _,:;{}().@/"):
        return char
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
