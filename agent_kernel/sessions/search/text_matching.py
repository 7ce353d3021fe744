"""Implements the rules of search that are the same in every store: words, case folding, scores and snippets. The
functions have no side effects.

A session matches if one of the search words occurs in a message of a user or a model, also as part of a longer word.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message
from agent_kernel.core.session import SNIPPET_CHARS, SessionQuery

MAX_QUERY = 1_000
"""Maximum characters of a query."""
MAX_WORDS = 16
"""Maximum number of different words of a query that are searched. Each needs a scan of all texts that are searched."""
ROLES = ("user", "assistant")
BEFORE = SNIPPET_CHARS // 4
"""Characters of a snippet that precede the matching word."""
M = TypeVar("M", bound=Hashable)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Control characters, which a terminal would interpret."""


def search_words(query: SessionQuery) -> tuple[str, ...]:
    """Return the first MAX_WORDS different words of the query, normalized by ``fold_text``. There is no query syntax.
    Raises InvalidRequest for an invalid query."""
    if query.limit < 0:
        raise InvalidRequest("The limit must be 0 or more.")
    if len(query.text) > MAX_QUERY:
        raise InvalidRequest(f"A query can have at most {MAX_QUERY} characters, not {len(query.text)}.")
    if query.role not in ("", *ROLES):
        raise InvalidRequest(
            f"Messages with the role {query.role!r} are not searched.",
            hint=f"The roles that are searched are {', '.join(ROLES)}.",
        )
    if bool(query.root) != bool(query.path):
        raise InvalidRequest("A notebook needs both a contents root and a path.")
    if any(moment is not None and not math.isfinite(moment) for moment in (query.since, query.until, query.used)):
        raise InvalidRequest("A time must be a number of seconds since the epoch.")
    return tuple(dict.fromkeys(fold_text(query.text).split()))[:MAX_WORDS]


def message_text(message: Message) -> str:
    """Return the text of a message that is searched; empty for hidden messages and for messages that are not from a
    user or a model. Reasoning is not searched."""
    return message.text if message.role in ROLES and not message.hidden else ""


def fold_text(text: str) -> str:
    """Normalize (NFC) and case-fold. Each NUL, at which SQLite's tokenizers stop, and each character that UTF-8 cannot
    encode is replaced by one other character."""
    folded = unicodedata.normalize("NFC", text).casefold().replace("\0", " ")
    return folded.encode("utf-8", "replace").decode()


def weigh_messages(matches: Mapping[str, Collection[M]]) -> dict[M, float]:
    """Return the weight of each message. ``matches`` maps each search word to the messages in which it occurs.

    The weight is 1 + r/(1+r), so that the number of matching messages decides and the rarity r of the words breaks
    ties. r is a sum over the words in the message: ln(1 + number of messages found / number of those with the word).
    This is BM25's inverse document frequency among the messages found; a word counts once per message.
    """
    together: set[M] = set().union(*matches.values())
    rarity = {word: math.log1p(len(together) / len(messages)) for word, messages in matches.items() if messages}
    if len(rarity) == 1:
        (rare,) = rarity.values()
        return dict.fromkeys(together, 1 + rare / (1 + rare))
    sums = dict.fromkeys(together, 0.0)
    for word, rare in rarity.items():
        for message in matches[word]:
            sums[message] += rare
    return {message: 1 + rare / (1 + rare) for message, rare in sums.items()}


def cut_snippet(text: str, words: Collection[str]) -> str:
    """Return at most SNIPPET_CHARS characters of the text around the first matching word, in one line without control
    characters."""
    line = " ".join(_CONTROL.sub(" ", unicodedata.normalize("NFC", text)).split())
    if len(line) <= SNIPPET_CHARS:
        return line
    start = max(0, min(_first_match(line, words) - BEFORE, len(line) - SNIPPET_CHARS))
    end = start + SNIPPET_CHARS
    cut = line[start + (start > 0) : end - (end < len(line))]
    return f"{'…' * (start > 0)}{cut}{'…' * (end < len(line))}"


def _first_match(line: str, words: Collection[str]) -> int:
    """Return the position in ``line`` of the first matching word. Case folding can lengthen a text (ß becomes ss), so a
    position in the folded text is converted."""
    folded = fold_text(line)
    at = min((place for word in words if (place := folded.find(word)) >= 0), default=0)
    if len(folded) == len(line):
        return at
    passed = 0
    for index, char in enumerate(line):
        passed += len(char.casefold())
        if passed > at:
            return index
    return 0
