"""Fields of a JSON document that nobody vouches for. Pure; every surprise is an InvalidRequest that names the place.

By hand and not by pydantic, whose strings can not hold the lone surrogates that Python's (and a model's output) can.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from agent_kernel.errors import InvalidRequest
from agent_kernel.messages import too_deep

T = TypeVar("T")
_REQUIRED: Any = object()


def loads(document: bytes, max_bytes: int, max_depth: int) -> Fields:
    """The JSON object in UTF-8 bytes, within the limits."""
    if len(document) > max_bytes:
        raise InvalidRequest(f"The document has {len(document)} bytes, more than {max_bytes}.")
    try:
        body = json.loads(document.decode(), parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The document is not JSON: {error}.") from error
    if too_deep(body, max_depth):
        raise InvalidRequest(f"The document has more than {max_depth} levels.")
    return Fields(body, "document")


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
