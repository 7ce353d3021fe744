"""The person's own functions that the agent may call in this kernel, as a turn declares them."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MARK = "__agent_tool__"
"""The attribute in which the decorator leaves what it made of a function."""


@dataclass(frozen=True, slots=True)
class UserFunction:
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
class UserFunctions:
    """By name; the same name again takes the place of the earlier one, as running its cell again means. Beside those
    that were added: the functions of ``namespace`` that ``@agent_kernel.tool`` marks, as they are there now."""

    namespace: Mapping[str, Any] = field(default_factory=dict)
    added: dict[str, UserFunction] = field(default_factory=dict)

    @property
    def registered(self) -> dict[str, UserFunction]:
        return {**{function.name: function for function in marked(self.namespace)}, **self.added}

    def add(self, function: UserFunction) -> None:
        self.added[function.name] = function

    def remove(self, name: str) -> bool:
        return self.added.pop(name, None) is not None

    def to_json(self) -> list[dict[str, Any]]:
        """As ``functions`` of a turn."""
        return [function.to_json() for function in self.registered.values()]


def marked(namespace: Mapping[str, Any]) -> list[UserFunction]:
    """What ``@agent_kernel.tool`` marks. Nothing but functions is looked at: a look at other values may run code."""
    found = []
    for value in list(namespace.values()):
        made = vars(value).get(MARK) if type(value) is types.FunctionType else None
        if made is not None:
            spec = made.spec
            effects = spec.kind != "function"
            found.append(UserFunction(spec.name, made.invoke, spec.description, spec.parameters, effects))
    return found
