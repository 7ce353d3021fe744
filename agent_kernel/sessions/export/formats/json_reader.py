"""Parses an untrusted JSON document within limits, and gives typed access to its fields. The functions have no side
effects. Every error is an InvalidRequest that names the position in the document.

This module does not use pydantic: the output of Python or of a model can contain lone surrogates, which pydantic's
strings cannot hold.
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
"""Maximum number of values in one document. A limit on bytes is not enough, since Python may need 250 bytes of memory
for a value of three bytes of JSON."""
MAX_COUNT = 2**53
"""The largest integer that other programs can represent exactly."""
LAST_TIME = 253402300799.0
"""The end of the year 9999, in seconds since the epoch. Later times cannot be written as dates."""
_REQUIRED: Any = object()
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
"""Matches a string, or a bracket or comma that begins a value. The quantifiers are possessive, so that the search never
backtracks: an unterminated string is read to the end of the document, and the time is linear."""


def loads(
    document: bytes, max_bytes: int, max_depth: int, max_values: int = MAX_VALUES, *, document_name: str = "document"
) -> Fields:
    """Parse UTF-8 JSON within the limits. A duplicate key in an object is refused, because parsers disagree about which
    of the two values counts. ``document_name`` is the name of the document in error messages. Raises InvalidRequest."""
    check_size(document, max_bytes, max_values, document_name=document_name)
    try:
        body = json.loads(
            document.decode(), parse_constant=_refuse_number, parse_float=_finite_float, object_pairs_hook=_unique_keys
        )
        too_deep = is_too_deep(body, max_depth)
    except RecursionError:
        too_deep = True
    except ValueError as error:
        # Python's own message about a long integer recommends a function of Python, which does not help the author of
        # the document.
        why = "a number has too many digits" if "integer string conversion" in str(error) else error
        raise InvalidRequest(f"The {document_name} is not JSON: {why}.") from error
    if too_deep:
        raise InvalidRequest(f"The {document_name} has more than {max_depth} levels.")
    return Fields(body, document_name)


def check_size(document: bytes, max_bytes: int, max_values: int, *, document_name: str = "document") -> None:
    """Check the limits without decoding. Raises InvalidRequest if the document exceeds one of them."""
    if len(document) > max_bytes:
        raise InvalidRequest(f"The {document_name} has {len(document)} bytes, more than the limit of {max_bytes}.")
    if has_too_many_values(document, max_values):
        raise InvalidRequest(f"The {document_name} has more than {max_values} values.")


def has_too_many_values(document: bytes, values: int) -> bool:
    """Return whether the document has more than ``values`` values, by counting brackets and commas outside of
    strings."""
    if document.count(b"{") + document.count(b"[") + document.count(b",") <= values:
        return False
    count = 0
    for token in _TOKEN.finditer(document):
        count += document[token.start()] != 0x22
        if count > values:
            return True
    return False


def _unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twin[:80]!r} occurs twice in one object")
    return body


def _refuse_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite_float(text: str) -> float:
    """Parse a float. Numbers such as 1e999 are refused: they are valid JSON, but Python reads them as infinity, which
    JSON cannot represent."""
    value = float(text)
    return value if math.isfinite(value) else _refuse_number(text)


def _float(field: Fields) -> float:
    try:
        return float(field.value)
    except OverflowError:
        field.refuse("is too large a number")


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON value of an untrusted document. ``place`` is its position in the document, for error messages. A null
    counts as an absent field."""

    value: Any
    place: str

    def refuse(self, why: str) -> NoReturn:
        raise InvalidRequest(f"{self.place}: {why}.")

    def get(self, name: str, kind: type[T], default: T = _REQUIRED) -> T:
        """Return the field ``name`` of this object. Raises InvalidRequest if it is not of the type ``kind``, or if it
        is absent and there is no ``default``. A boolean is not accepted as a number; an integer is accepted as a
        float."""
        field = self.child(name)
        if field.value is None:
            return field.refuse("is missing") if default is _REQUIRED else default
        value = _float(field) if kind is float and type(field.value) is int else field.value
        if type(value) is not kind:
            field.refuse(f"should be {kind.__name__}, not {type(field.value).__name__}")
        return value

    def count(self, name: str, default: int = _REQUIRED) -> int:
        """Return the field ``name`` as an integer from 0 to MAX_COUNT."""
        value = self.get(name, int, default)
        if not 0 <= value <= MAX_COUNT:
            self.child(name).refuse(f"should be from 0 to {MAX_COUNT}")
        return value

    def time(self, name: str) -> float:
        """Return the field ``name`` as seconds since the epoch, at most LAST_TIME, so that it can be written as a
        date."""
        value = self.get(name, float)
        if not 0 <= value <= LAST_TIME:
            self.child(name).refuse("is not a time between 1970 and 9999")
        return value

    def utf8(self, name: str, default: str = _REQUIRED) -> str:
        """Return the field ``name`` as a text. Raises InvalidRequest for lone surrogates, which not every store can
        hold."""
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
        """Yield the elements of the list ``name``, or nothing if the field is absent."""
        for at, value in enumerate(self.get(name, list, [])):
            yield Fields(value, f"{self.place}.{name}[{at}]")

    def items(self, name: str) -> Iterator[tuple[str, Fields]]:
        """Yield the entries of the object ``name``, or nothing if the field is absent."""
        for key, value in self.get(name, dict, {}).items():
            yield key, Fields(value, f"{self.place}.{name}.{key[:80]}")
