"""The person's own functions that the agent may call in this kernel, as a turn declares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Registered:
    """``parameters`` is a JSON schema of its arguments. ``effects``: it changes something, so a person is asked before
    it runs."""

    name: str
    function: Callable[..., Any]
    description: str
    parameters: Mapping[str, Any]
    effects: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
            "effects": self.effects,
        }


@dataclass(slots=True)
class Functions:
    """By name; the same name again takes the place of the earlier one, as running its cell again means."""

    registered: dict[str, Registered] = field(default_factory=dict)

    def add(self, function: Registered) -> None:
        self.registered[function.name] = function

    def remove(self, name: str) -> bool:
        return self.registered.pop(name, None) is not None

    def to_json(self) -> list[dict[str, Any]]:
        """As ``functions`` of a turn."""
        return [function.to_json() for function in self.registered.values()]
