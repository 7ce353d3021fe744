"""JSON schemas of the types that a document names, each under one name."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

REFS = "#/components/schemas/{model}"
Mode = Literal["validation", "serialization"]


@dataclass(slots=True)
class Schemas:
    """``want`` what there is to be, then ``close``; after that ``of`` gives each schema. What is ``sent`` to us may
    leave out what has a default; what we answer is whole."""

    definitions: dict[str, Any] = field(default_factory=dict)
    _wanted: dict[Hashable, tuple[Hashable, Mode, TypeAdapter[Any]]] = field(default_factory=dict)
    _made: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def want(self, kind: Any, *, sent: bool = False) -> None:
        key = _key(kind, sent)
        if key not in self._wanted:
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
            adapter.rebuild()
            self._wanted[key] = (key[0], key[1], adapter)

    def close(self) -> None:
        made, shared = TypeAdapter.json_schemas(list(self._wanted.values()), ref_template=REFS)
        self._made = dict(made)
        self.definitions.update(sorted(shared.get("$defs", {}).items()))

    def of(self, kind: Any, *, sent: bool = False) -> dict[str, Any]:
        return self._made[_key(kind, sent)]

    def accepts_nothing(self, kind: Any) -> bool:
        """Whether an empty body will do."""
        adapter = self._wanted[_key(kind, sent=True)][2]
        try:
            adapter.validate_python({})
        except ValidationError:
            return False
        return True


def _key(kind: Any, sent: bool) -> tuple[str, Mode]:
    """Unions of the same types are other objects each time they are written."""
    return repr(kind), "validation" if sent else "serialization"
