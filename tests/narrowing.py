"""Asserts that a value has the expected type, and returns it with that type."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def not_none(value: T | None) -> T:
    assert value is not None
    return value


def instance_of(kind: type[T], value: object) -> T:
    assert isinstance(value, kind), value
    return value
