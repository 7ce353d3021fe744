"""Fields of a JSON document that nobody vouches for. Pure; every surprise is an InvalidRequest that names the place.

By hand and not by pydantic, whose strings can not hold the lone surrogates that Python's (and a model's output) can.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import is_too_deep

T = TypeVar("T")
MAX_VALUES = 2_000_000
"""Values in one document. Python needs up to 250 bytes for three of JSON, so bytes alone bound nothing."""
MAX_COUNT = 2**53
"""What other programs can still count exactly."""
LAST_TIME = 253402300799.0
"""The end of the year 9999: what is later can not be written as a date."""
_REQUIRED: Any = object()
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""Never goes back: a string that does not end is taken to the end of the document, so the time is linear."""


def loads(
    document: bytes, max_bytes: int, max_depth: int, max_values: int = MAX_VALUES, *, what: str = "document"
) -> Fields:
    """The JSON value in UTF-8 bytes, within the limits. A key that stands twice in an object is refused: two readers
    would read two documents."""
    check_size(document, max_bytes, max_values, what=what)
    try:
        body = json.loads(
            document.decode(), parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_without_twins
        )
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The {what} is not JSON: {error}.") from error
    if is_too_deep(body, max_depth):
        raise InvalidRequest(f"The {what} has more than {max_depth} levels.")
    return Fields(body, what)


def check_size(document: bytes, max_bytes: int, max_values: int, *, what: str = "document") -> None:
    """Raises InvalidRequest; nothing is decoded."""
    if len(document) > max_bytes:
        raise InvalidRequest(f"The {what} has {len(document)} bytes, more than {max_bytes}.")
    if too_many(document, max_values):
        raise InvalidRequest(f"The {what} has more than {max_values} values.")


def too_many(document: bytes, values: int) -> bool:
    """Counts brackets and commas, which is what makes values; in strings they do not count."""
    if document.count(b"{") + document.count(b"[") + document.count(b",") <= values:
        return False
    found = 0
    for token in _TOKEN.finditer(document):
        found += document[token.start()] != 0x22
        if found > values:
            return True
    return False


def _without_twins(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twin[:80]!r} stands twice in one object")
    return body


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    """1e999 is written as a number and read as infinity, which JSON can not hold."""
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _float(field: Fields) -> float:
    try:
        return float(field.value)
    except OverflowError:
        field.refuse("is too large a number")


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON value, and where it stands. Null counts as absent."""

    value: Any
    place: str

    def refuse(self, why: str) -> NoReturn:
        raise InvalidRequest(f"{self.place}: {why}.")

    def get(self, name: str, kind: type[T], default: T = _REQUIRED) -> T:
        """A field of this object; true is no number, 1 is a float."""
        found = self.child(name)
        if found.value is None:
            return found.refuse("is missing") if default is _REQUIRED else default
        value = _float(found) if kind is float and type(found.value) is int else found.value
        if type(value) is not kind:
            found.refuse(f"should be {kind.__name__}, not {type(found.value).__name__}")
        return value

    def count(self, name: str, default: int = _REQUIRED) -> int:
        """A whole number from 0 that a store and other programs can hold."""
        value = self.get(name, int, default)
        if not 0 <= value <= MAX_COUNT:
            self.child(name).refuse(f"should be from 0 to {MAX_COUNT}")
        return value

    def time(self, name: str) -> float:
        """Seconds since the epoch, which a date can hold."""
        value = self.get(name, float)
        if not 0 <= value <= LAST_TIME:
            self.child(name).refuse("is no time between 1970 and 9999")
        return value

    def utf8(self, name: str, default: str = _REQUIRED) -> str:
        """A text that every store can hold: without lone surrogates."""
        value = self.get(name, str, default)
        try:
            value.encode()
        except UnicodeEncodeError:
            self.child(name).refuse("is not valid Unicode")
        return value

    def child(self, name: str) -> Fields:
        if not isinstance(self.value, dict):
            self.refuse(f"should be an object, not {type(self.value).__name__}")
        return Fields(self.value.get(name), f"{self.place}.{name}")

    def each(self, name: str) -> Iterator[Fields]:
        """The elements of a list that may be absent."""
        for at, value in enumerate(self.get(name, list, [])):
            yield Fields(value, f"{self.place}.{name}[{at}]")

    def items(self, name: str) -> Iterator[tuple[str, Fields]]:
        """The entries of an object that may be absent."""
        for key, value in self.get(name, dict, {}).items():
            yield key, Fields(value, f"{self.place}.{name}.{key[:80]}")
