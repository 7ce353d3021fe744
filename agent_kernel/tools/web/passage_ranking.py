"""Ranks the passages of many pages by how well they match a query, and selects those that fit a budget. The functions
have no side effects.

The algorithm is Okapi BM25 (Robertson and Zaragoza 2009) with the usual k1 = 1.5 and b = 0.75. It takes thirty lines,
which is enough for the few hundred passages of ten pages; a library would add an index that is not needed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

K1 = 1.5
B = 0.75
PASSAGE_CHARS = 1_000
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
"""Matches one word. In scripts without spaces, each character counts as a word."""


def split_words(text: str) -> list[str]:
    return _WORDS.findall(text.casefold())


def scores(query: str, passages: Sequence[str]) -> list[float]:
    """Return one score for each passage, 0 if it contains no word of the query."""
    counted = [Counter(split_words(passage)) for passage in passages]
    lengths = [counts.total() for counts in counted]
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    query_words = set(split_words(query))
    rarity = {word: _rarity(sum(word in counts for counts in counted), len(counted)) for word in query_words}
    return [
        sum(rarity[word] * _weight(counts[word], length / average) for word in query_words if word in counts)
        for counts, length in zip(counted, lengths, strict=True)
    ]


def _rarity(having: int, all_of: int) -> float:
    return math.log(1 + (all_of - having + 0.5) / (having + 0.5))


def _weight(count: int, length: float) -> float:
    return count * (K1 + 1) / (count + K1 * (1 - B + B * length))


def passages(text: str) -> list[str]:
    """Split a text into passages of about PASSAGE_CHARS characters: short paragraphs are joined, long ones are cut."""
    pieces: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        for piece in _cut(paragraph.strip()):
            if pieces and len(pieces[-1]) + len(piece) < PASSAGE_CHARS:
                pieces[-1] = f"{pieces[-1]}\n\n{piece}"
            else:
                pieces.append(piece)
    return pieces


def _cut(paragraph: str) -> Iterable[str]:
    while len(paragraph) > 2 * PASSAGE_CHARS:
        space = paragraph.rfind(" ", PASSAGE_CHARS // 2, PASSAGE_CHARS)
        at = space if space > 0 else PASSAGE_CHARS
        yield paragraph[:at]
        paragraph = paragraph[at:].lstrip()
    if paragraph:
        yield paragraph


def fill_budget(ranked: Iterable[int], cost: Callable[[int], int], budget: int) -> list[int]:
    """Return the passages that fit into ``budget``, best first. ``ranked`` are passage indices, best first, and
    ``cost`` returns the cost of one. A passage that does not fit is skipped, and smaller ones after it may still be
    taken."""
    selected = []
    for index in ranked:
        if (price := cost(index)) <= budget:
            selected.append(index)
            budget -= price
    return selected
