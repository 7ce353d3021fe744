"""Makes the JSON schemas of the types in the OpenAPI document, and gives each schema one name."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

REFS = "#/components/schemas/{model}"
VALUES = frozenset({"const", "default", "enum", "examples"})
"""JSON schema keywords whose values are data. Schemas are not searched in these values."""
TAKEN = frozenset({"client", "authenticatedclient", "response", "file", "unset", "errors", "types"})
"""Names, in lower case, that generated clients use for their own classes."""
PUBLISHED = {"BoundSession": "Bound", "ImportPreview": "Preview", "RebuildStep": "Piece", "UndoResult": "Undone"}
"""Maps class names to the schema names that clients use, so that renaming a class does not change the document."""
PUBLISHED_OF_MODULE = {
    "request_messages.FunctionBody": "CarriedFunctionBody",
    "request_messages.MessageBody": "CarriedMessageBody",
    "request_schemas.FormatBody": "BodiesFormatBody",
    "request_schemas.FunctionBody": "JupyterExtFunctionBody",
    "responses.request.SchemaFormat": "ResponsesRequestSchemaFormat",
    "responses.tools.FunctionTool": "ResponsesToolsFunctionTool",
    "responses.tools.OtherTool": "ResponsesToolsOtherTool",
}
"""Maps the end of a class's path (module and name) to the name of its schema. Needed for classes whose schema is named
after their module, which may move."""
Mode = Literal["validation", "serialization"]


class ResponseSchemaGenerator(GenerateJsonSchema):
    """Generates schemas in which every field of a dataclass of a response is required."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        """The server sends every field of a dataclass, also one with a default."""
        is_sent = self.mode == "serialization" and field["type"] == "dataclass-field"
        return is_sent or super().field_is_required(field, total)


@dataclass(slots=True)
class Schemas:
    """Collects types and returns their JSON schemas, each under one name.

    Call ``want`` for each type, then ``close``; after that, ``of`` returns the schemas. In types that clients send
    (``in_request``), fields with a default are optional; in responses, all fields are required.
    """

    definitions: dict[str, Any] = field(default_factory=dict)
    _wanted: dict[Hashable, tuple[Hashable, Mode, TypeAdapter[Any]]] = field(default_factory=dict)
    _made: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def want(self, kind: Any, *, in_request: bool = False) -> None:
        key = _key(kind, in_request)
        if key not in self._wanted:
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
            adapter.rebuild()
            self._wanted[key] = (key[0], key[1], adapter)

    def close(self) -> None:
        schemas, shared = TypeAdapter.json_schemas(
            list(self._wanted.values()), ref_template=REFS, schema_generator=ResponseSchemaGenerator
        )
        definitions = shared.get("$defs", {})
        names = _short_names(definitions)
        self._made = {key: _rename_references(schema, names) for key, schema in schemas.items()}
        for name, schema in sorted(definitions.items()):
            self.definitions[names[name]] = {**_rename_references(schema, names), "title": names[name]}

    def of(self, kind: Any, *, in_request: bool = False) -> dict[str, Any]:
        return self._made[_key(kind, in_request)]

    def accepts_nothing(self, kind: Any) -> bool:
        """Return whether an empty request body is valid for the type ``kind``."""
        adapter = self._wanted[_key(kind, in_request=True)][2]
        try:
            adapter.validate_python({})
        except ValidationError:
            return False
        return True


def _short_names(pydantic_names: Iterable[str]) -> dict[str, str]:
    """Return a one-word name for each of pydantic's names, because generators of clients turn the names into classes.
    Pydantic uses ``module__Name`` if two modules have a type of the same name, and ``Name-Input`` if the request and
    the response differ."""
    names: dict[str, str] = {}
    used_names = set(TAKEN)
    for name in sorted(pydantic_names, key=lambda name: ("__" in name, name)):
        *modules, last = name.replace("-", "").split("__")
        last = PUBLISHED.get(last, last)
        path = ".".join([*modules, last])
        if published := next((to for end, to in PUBLISHED_OF_MODULE.items() if f".{path}".endswith(f".{end}")), ""):
            names[name] = published
            used_names.add(published.lower())
            continue
        prefixes = (
            "".join(map(_word, modules[:n] if n == 1 else modules[-n + 1 :])) for n in range(1, len(modules) + 2)
        )
        choices = [f"{prefix}{last}" for prefix in prefixes] if modules else [last, f"{last}Object"]
        short = next(choice for choice in choices if choice.lower() not in used_names)
        used_names.add(short.lower())
        names[name] = short
    return names


def _word(module: str) -> str:
    return module.title().replace("_", "")


def _rename_references(schema: Any, names: Mapping[str, str]) -> Any:
    """Return the schema with references by the new names, and without the titles that pydantic derives from field
    names."""
    if isinstance(schema, list):
        return [_rename_references(item, names) for item in schema]
    if isinstance(schema, str):
        return _reference(schema, names)
    if not isinstance(schema, dict):
        return schema
    renamed: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            renamed[key] = {name: _rename_references(field, names) for name, field in value.items()}
        elif key in VALUES:
            renamed[key] = value
        elif key != "title":
            renamed[key] = _rename_references(value, names)
    return renamed


def _reference(text: str, names: Mapping[str, str]) -> str:
    start = REFS.format(model="")
    return start + names[text.removeprefix(start)] if text.startswith(start) else text


def _key(kind: Any, in_request: bool) -> tuple[str, Mode]:
    """Return a key by which the schema of a type is stored. A union of the same types is a different object each time
    it is written, so the type itself cannot be the key."""
    return repr(kind), "validation" if in_request else "serialization"
