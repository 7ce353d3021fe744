"""Declares a setting: its default, its help text, its choices or bounds, and how the value of an environment variable
is parsed."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from agent_kernel.core.errors import InvalidRequest

ON = ("true", "1", "on", "yes")
OFF = ("false", "0", "off", "no")


@dataclass(frozen=True, slots=True)
class NumberBound:
    """The range of allowed numbers of a setting. ``text`` completes the sentence "NAME must be ..."."""

    text: str
    low: float
    high: float = math.inf
    includes_low: bool = True

    def __contains__(self, value: float) -> bool:
        return self.low < value <= self.high or (self.includes_low and value == self.low)


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting. Its name and its default are those of its dataclass field.

    ``kind`` (bool, int, float, str, Path or dict) and ``choices`` follow from the type of the field. ``parse`` converts
    the text of an environment variable, or a mapping, and raises InvalidRequest; if it is None, the value is converted
    to ``kind``.
    """

    help: str
    kind: type
    choices: tuple[str, ...]
    bound: NumberBound | None
    parse: Callable[[Any], Any] | None

    def check(self, name: str, value: Any) -> None:
        """Raise InvalidRequest if the value is not one of the choices, or out of bounds."""
        if self.choices and value not in self.choices:
            raise InvalidRequest(f"{name} must be one of {', '.join(filter(None, self.choices))}, not {value!r}.")
        if self.bound is not None and value not in self.bound:
            raise InvalidRequest(f"{name} must be {self.bound.text}.")

    def convert(self, name: str, value: Any) -> Any:
        """Convert the text of an environment variable, or the value of a trait, to a value of the setting. Raises
        InvalidRequest."""
        if self.parse is not None:
            return self.parse(value)
        if self.kind is bool:
            if str(value).lower() not in (*ON, *OFF):
                raise InvalidRequest(f"{variable(name)} must be {ON[0]} or {OFF[0]}, not {str(value)!r}.")
            return str(value).lower() in ON
        if self.kind is Path:
            return Path(value).expanduser()
        try:
            return self.kind(value)
        except ValueError as error:
            raise InvalidRequest(f"{variable(name)} must be a number, not {value!r}.") from error


def setting(
    default: Any, help: str, *, bound: NumberBound | None = None, parse: Callable[[Any], Any] | None = None
) -> Any:
    """Declare a field of a dataclass as a setting. If ``default`` is callable, it is called to create the default
    value."""
    metadata = {"help": help, "bound": bound, "parse": parse}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def declared_settings(cls: type[Any]) -> Mapping[str, Setting]:
    """Return the settings that the fields of a dataclass declare, by name."""
    hints = get_type_hints(cls)
    return MappingProxyType(
        {field.name: _describe(field.metadata, hints[field.name]) for field in dataclasses.fields(cls)}
    )


def _describe(metadata: Mapping[str, Any], hint: Any) -> Setting:
    origin = get_origin(hint)
    kind = {Literal: str, Mapping: dict}.get(origin, hint)
    return Setting(kind=kind, choices=get_args(hint) if origin is Literal else (), **metadata)


def split_list(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated list. Spaces around entries and empty entries are left out."""
    return tuple(entry.strip() for entry in text.split(",") if entry.strip())


def variable(name: str) -> str:
    """Return the name of a setting's environment variable."""
    return f"AGENT_KERNEL_{name.upper()}"


def parse_engines(value: Any) -> Mapping[str, Any]:
    """Parse the setting ``engines``. Error messages never repeat the value, because it may contain a key."""
    if isinstance(value, Mapping):
        return value
    try:
        text = str(value).strip()
        engines = (
            json.loads(text) if text.startswith("{") else tomllib.loads(Path(text).expanduser().read_text("utf-8"))
        )
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            "AGENT_KERNEL_ENGINES must be a JSON object or the path of a TOML file; it cannot be read "
            f"({type(error).__name__})."
        ) from None
    if not isinstance(engines, dict):
        raise InvalidRequest("AGENT_KERNEL_ENGINES must be a JSON object: {name: {url, model}}.")
    return engines


def mapping_parser(name: str, shape: str, allows: Callable[[Any], bool]) -> Callable[[Any], Mapping[str, str]]:
    """Return the parser of the setting ``name``, whose value is a mapping; in an environment variable it is a JSON
    object. ``allows`` checks each value of the mapping. Error messages contain ``shape``, an example of the form."""

    def parse(value: Any) -> Mapping[str, str]:
        try:
            mapping = value if isinstance(value, Mapping) else json.loads(value)
        except ValueError:
            mapping = None
        if not isinstance(mapping, Mapping) or not all(map(allows, mapping.values())):
            raise InvalidRequest(f"{variable(name)} must be a JSON object: {shape}.")
        return mapping

    return parse
