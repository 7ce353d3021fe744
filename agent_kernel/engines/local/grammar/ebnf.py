"""Builds EBNF in xgrammar's notation from expressions.

An expression is a string in that notation. An expression that is used more than once, or repeated, becomes a rule, and
equal texts become one rule. The cost of a grammar depends on the number of its rules: for each position of each rule,
the library computes once which tokens fit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.engines.local.backend import OutputGrammar

CHUNK = 8
"""A repetition of more than this number is written as a repetition of chunks of this length. Written as a single
repetition, 200 characters take 7 s of one core to compile and 0.15 s per token (openvino-genai 2026.4, vocabulary of
49k tokens). In chunks of 8 they take 0.2 s to compile, once, while the batch stands still, and 0.06 s per token. Chunks
of 16 take 0.75 s and 0.04 s, chunks of 32 take 1.2 s and 0.02 s (with a vocabulary of 152k tokens). The number of
chunks does not matter."""
MAX_RULES = 2_000
MAX_CHARS = 200_000
NOTHING = '""'
_NAME = re.compile(r"\w+")


def literal(text: str) -> str:
    return f'"{"".join(_escape(char) for char in text)}"'


def char_class(ranges: Iterable[tuple[str, str]]) -> str:
    """Return a character class of ``ranges``, each of which is (first, last), both inclusive."""
    inside = (_escape(first) + (f"-{_escape(last)}" if last > first else "") for first, last in ranges)
    return f"[{''.join(inside)}]"


def sequence(*parts: str) -> str:
    return " ".join(part for part in parts if part != NOTHING) or NOTHING


def either(*alternatives: str) -> str:
    """Return an expression that matches any one of the alternatives, without duplicates."""
    distinct = list(dict.fromkeys(alternatives))
    return distinct[0] if len(distinct) == 1 else f"({' | '.join(distinct)})"


def choice(texts: Iterable[str]) -> str:
    """Return an expression for one of the texts, written so that no two alternatives begin with the same character.

    Plain alternatives do not work: with "=", "<" and "<=" in quotes, the xgrammar inside openvino-genai 2026.4 also
    accepts "=====", because it joins states that it should keep apart. With plain alternatives 20 of 40 samples were
    right; written as here, all 40 were.
    """
    by_first: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        by_first.setdefault(text[:1], []).append(text)
    return either(*(_factor_prefix(same) if first else NOTHING for first, same in by_first.items()))


def _factor_prefix(texts: list[str]) -> str:
    """Return an expression for one of the ``texts``, which share their first character: their common prefix, followed
    by a choice of the rests."""
    shortest = min(texts, key=len)
    length = next((at for at, char in enumerate(shortest) if any(text[at] != char for text in texts)), len(shortest))
    rest = [text[length:] for text in texts]
    return literal(texts[0]) if rest == [""] else sequence(literal(shortest[:length]), choice(rest))


def optional(part: str) -> str:
    return either(NOTHING, part)


class Rules:
    """The rules of one grammar. ``rule`` raises InvalidRequest for more than MAX_RULES rules or MAX_CHARS
    characters."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._chars = 0

    def rule(self, body: str) -> str:
        """Return the name of a rule with this body. Equal bodies share a rule. If ``body`` is the name of a rule, it is
        returned unchanged."""
        if _NAME.fullmatch(body):
            return body
        if body not in self._names:
            self._chars += len(body)
            if len(self._names) >= MAX_RULES or self._chars > MAX_CHARS:
                raise InvalidRequest("The grammar of this output format is too large.", hint="Make the schema smaller.")
            self._names[body] = f"r{len(self._names)}"
        return self._names[body]

    def repeat(self, part: str, min_count: int, max_count: int | None) -> str:
        """Return an expression for ``min_count`` to ``max_count`` repetitions of ``part``; ``max_count`` None means
        without limit."""
        if max_count == 0:
            return NOTHING
        single = self.rule(part) if " " in part else part
        if max_count is None:
            # Without a maximum, the required repetitions are followed by a star.
            return sequence(self.repeat(single, min_count, min_count), f"{single}*")
        if max_count <= CHUNK:
            return single if min_count == max_count == 1 else f"{single}{{{min_count},{max_count}}}"
        # The required repetitions are written as whole chunks and single ones; the optional ones follow.
        fixed, free = divmod(min_count, CHUNK)
        chunk = self.rule(f"{single}{{{CHUNK}}}")
        head = sequence(self.repeat(chunk, fixed, fixed), self.repeat(single, free, free))
        return sequence(head, self._up_to(single, chunk, max_count - min_count))

    def _up_to(self, part: str, chunk: str, max_count: int) -> str:
        """Return an expression for 0 to ``max_count`` repetitions of ``part``; ``chunk`` is the rule for CHUNK
        repetitions of it. The repetitions are whole chunks, followed by fewer than CHUNK single ones. Expressions for
        different values of ``max_count`` thus use the same two rules, which keeps the grammar small."""
        chunks, rest = divmod(max_count, CHUNK)
        short = self.rule(f"{part}{{0,{CHUNK - 1}}}")
        if not chunks:
            return short if rest == CHUNK - 1 else self.repeat(part, 0, rest)
        if rest == CHUNK - 1:
            return sequence(self.repeat(chunk, 0, chunks), short)
        # There are two alternatives, because the last chunk is limited: either fewer chunks followed by any number of
        # single repetitions, or all chunks followed by at most ``rest`` single repetitions.
        fewer = sequence(self.repeat(chunk, 0, chunks - 1), short)
        all_of_them = sequence(self.repeat(chunk, chunks, chunks), self.repeat(part, 0, rest))
        return either(self.rule(fewer), self.rule(all_of_them))

    def grammar(self, root: str) -> OutputGrammar:
        lines = [f"root ::= {root}", *(f"{name} ::= {body}" for body, name in self._names.items())]
        return OutputGrammar("ebnf", "\n".join(lines) + "\n")


def _escape(char: str) -> str:
    """Return the character, escaped unless it is a plain ASCII character, so that no text can end a literal or a class
    early."""
    code = ord(char)
    if char.isascii() and (char.isalnum() or char in " _,:;{}().@/"):
        return char
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
