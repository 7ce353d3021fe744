"""Finds the functions of the user that the model may call in this kernel."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

MARK = "__agent_tool__"
"""The attribute in which ``@agent_kernel.tool`` stores the tool made from a function."""


class UserFunction(NamedTuple):
    """A function of the user that the model may call. ``parameters`` is the JSON schema of its arguments. With
    ``effects``, the user is asked before each call."""

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


@dataclass(frozen=True, slots=True)
class UserFunctions:
    """The functions in ``namespace`` that ``@agent_kernel.tool`` marks, by name. They are looked up again at each use,
    because cells may define new ones."""

    namespace: Mapping[str, Any]

    @property
    def registered(self) -> dict[str, UserFunction]:
        return {function.name: function for function in marked_functions(self.namespace)}

    def to_json(self) -> list[dict[str, Any]]:
        """Return the functions in the format of a turn's ``functions`` field."""
        return [function.to_json() for function in self.registered.values()]


def marked_functions(namespace: Mapping[str, Any]) -> list[UserFunction]:
    """Return the functions marked by ``@agent_kernel.tool``. Only plain functions are inspected: inspecting other
    values could run their code."""
    functions = []
    for value in list(namespace.values()):
        tool = vars(value).get(MARK) if type(value) is types.FunctionType else None
        if tool is not None:
            spec = tool.spec
            effects = spec.kind != "function"
            functions.append(UserFunction(spec.name, tool.invoke, spec.description, spec.parameters, effects))
    return functions
