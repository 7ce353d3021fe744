"""Guesses whether a cell that Python could not parse is a sentence for the agent and not code with a typing error.

The guess only decides whether the user is told how to ask the agent; no text is sent because of it.
"""

from __future__ import annotations

import keyword
import re
from itertools import pairwise

WORD = re.compile(r"[(\"'“„«]?[^\W\d_]+(?:['’-][^\W\d_]+)*[)\"'”“»]?[,.;:!?…]*")
STATEMENTS = {"assert", "async", "class", "def", "del", "elif", "except", "from", "global", "import", "lambda"}
STATEMENTS |= {"nonlocal", "raise", "return", "yield"}
WORDS = 3
"""Minimum number of consecutive words in a line that counts as a sentence."""
WORDS_OF_STATEMENT = 6
"""Minimum number of consecutive words in a sentence whose first word also begins a statement of Python: the statement
"import x as y z" has five."""
LONG = 3
FULL_WIDTH = re.compile("[，。？！、；：]")
"""Punctuation of languages that do not separate words by spaces."""


def reads_like_prose(source: str) -> bool:
    """Return True if the first non-empty line consists of words rather than code. ``source`` is known not to be valid
    Python.
    """
    line = next((line.strip() for line in source.splitlines() if line.strip()), "")
    if line.startswith(("#", "%", "!", "?", "@")):
        return False
    if FULL_WIDTH.search(line):
        return True
    longest: list[str] = []
    run: list[str] = []
    for word in line.split():
        run = [*run, word.strip("()\"'“„«»”,.;:!?…")] if WORD.fullmatch(word) else []
        longest = max(longest, run, key=len)
    least = WORDS_OF_STATEMENT if line.split()[:1] and line.split()[0] in STATEMENTS else WORDS
    return len(longest) >= least and _is_sentence(longest)


def _is_sentence(words: list[str]) -> bool:
    """Return True if two words that are not keywords are adjacent, which Python's grammar does not allow, and at least
    two words are longer than most names in short code.
    """
    is_name = [not keyword.iskeyword(word) for word in words]
    long_words = [word for word, named in zip(words, is_name, strict=True) if named and len(word) >= LONG]
    return len(long_words) >= 2 and any(one and other for one, other in pairwise(is_name))
