"""What searching means, whatever keeps the messages: words, the form in which texts are compared, scores, snippets.

Pure. A session is found when any of the words occurs in what its person or its model said, as a part of a word too.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message
from agent_kernel.core.session import SNIPPET_CHARS, SearchQuery

MAX_QUERY = 1_000
"""Characters of a query."""
MAX_WORDS = 16
"""Different words that count; each costs a look at everything that is searched."""
ROLES = ("user", "assistant")
BEFORE = SNIPPET_CHARS // 4
"""Characters of a snippet that stand before the word."""
M = TypeVar("M", bound=Hashable)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""A terminal would act on them."""


def words(query: SearchQuery) -> tuple[str, ...]:
    """The first MAX_WORDS different words, in the form in which they are compared; nothing in them means anything but
    itself. Raises InvalidRequest for a query that no store answers."""
    if query.limit < 0:
        raise InvalidRequest("A limit is a number from 0.")
    if len(query.text) > MAX_QUERY:
        raise InvalidRequest(f"A query has at most {MAX_QUERY} characters, not {len(query.text)}.")
    if query.role not in ("", *ROLES):
        raise InvalidRequest(f"What a {query.role!r} says is not searched.", hint=f"Roles: {', '.join(ROLES)}.")
    if bool(query.root) != bool(query.path):
        raise InvalidRequest("A notebook is a contents root and a path below it.")
    if any(moment is not None and not math.isfinite(moment) for moment in (query.since, query.until, query.used)):
        raise InvalidRequest("A time is seconds since the epoch.")
    return tuple(dict.fromkeys(comparable(query.text).split()))[:MAX_WORDS]


def said(message: Message) -> str:
    """What of a message is searched: the text of a person or a model, not hidden notes, reasoning or tools' results."""
    return message.text if message.role in ROLES and not message.hidden else ""


def comparable(text: str) -> str:
    """Composed and case folded. NUL, at which SQLite's tokenizers stop, and what UTF-8 can not hold are replaced, each
    by one character."""
    folded = unicodedata.normalize("NFC", text).casefold().replace("\0", " ")
    return folded.encode("utf-8", "replace").decode()


def weights(found: Mapping[str, Collection[M]]) -> dict[M, float]:
    """What each message counts, of word -> messages in which it occurs: 1, and less than 1 more for its rare words.

    1 + r/(1+r), so that the number of messages decides and rarity breaks ties; r is the sum of ln(1 + all / those with
    the word), the inverse document frequency of BM25 among the messages found, with every word counted once in each.
    """
    together: set[M] = set().union(*found.values())
    rarity = {word: math.log1p(len(together) / len(messages)) for word, messages in found.items() if messages}
    if len(rarity) == 1:
        (rare,) = rarity.values()
        return dict.fromkeys(together, 1 + rare / (1 + rare))
    sums = dict.fromkeys(together, 0.0)
    for word, rare in rarity.items():
        for message in found[word]:
            sums[message] += rare
    return {message: 1 + rare / (1 + rare) for message, rare in sums.items()}


def snippet(text: str, words: Collection[str]) -> str:
    """At most SNIPPET characters in one line without control characters, around the first of the words that occurs."""
    line = " ".join(_CONTROL.sub(" ", unicodedata.normalize("NFC", text)).split())
    if len(line) <= SNIPPET_CHARS:
        return line
    start = max(0, min(_first(line, words) - BEFORE, len(line) - SNIPPET_CHARS))
    end = start + SNIPPET_CHARS
    cut = line[start + (start > 0) : end - (end < len(line))]
    return f"{'…' * (start > 0)}{cut}{'…' * (end < len(line))}"


def _first(line: str, words: Collection[str]) -> int:
    """Where in ``line`` the first word begins; folding can make a text longer (ß is ss)."""
    folded = comparable(line)
    at = min((place for word in words if (place := folded.find(word)) >= 0), default=0)
    if len(folded) == len(line):
        return at
    passed = 0
    for index, char in enumerate(line):
        passed += len(char.casefold())
        if passed > at:
            return index
    return 0
