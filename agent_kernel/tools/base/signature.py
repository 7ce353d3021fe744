"""Derives the JSON schema of a typed function from its signature, and converts the model's arguments to the function's
types."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import ToolContext

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_DESCRIPTION = 10_000
_NAMED = ("properties", "$defs")
_DATA = ("default", "const", "enum", "examples")


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's parameters; ``context`` is the parameter that receives the ToolContext, if there is one."""

    description: str
    parameters: Mapping[str, Any]
    context: str
    adapter: TypeAdapter[Any]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Signature:
        """Read the type hints and the docstring (Google, NumPy, reST or Epydoc style) of a function.

        Raises InvalidRequest for a function that cannot be called with named arguments, or whose types JSON cannot
        describe.
        """
        name = getattr(function, "__name__", type(function).__name__)
        description, descriptions = _parse_docstring(function)
        hints = _hints(function, name)
        fields, context = {}, ""
        for parameter in inspect.signature(function).parameters.values():
            if hints.get(parameter.name) is ToolContext:
                context = parameter.name
            elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                hint = hints.get(parameter.name, Any)
                fields[parameter.name] = _field(parameter, hint, descriptions.get(parameter.name, ""))
            else:
                raise InvalidRequest(
                    f"{name} cannot be a tool: the model passes arguments by name, which {parameter} does not allow."
                )
        adapter, schema = _adapter(name, fields)
        return cls(description[:MAX_DESCRIPTION], schema, context, adapter)

    def arguments(self, raw_arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the model's arguments to the types of the hints, which creates enums, dates, dataclasses and models.
        Arguments that the model left out stay out.

        Raises InvalidRequest; its message is written for the model and names each wrong argument.
        """
        import pydantic

        try:
            return dict(self.adapter.validate_python(dict(raw_arguments)))
        except pydantic.ValidationError as error:
            wrong = [
                f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}" for problem in error.errors()
            ]
            raise InvalidRequest("; ".join(wrong) + ".") from None


def _parse_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the docstring's description of the function, and of each parameter."""
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    description = "\n\n".join(filter(None, (parsed.short_description, parsed.long_description)))
    return description, {param.arg_name: " ".join((param.description or "").split()) for param in parsed.params}


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidRequest(f"The type hints of {name} cannot be read: {error}.") from error


def _field(parameter: inspect.Parameter, hint: Any, description: str) -> Any:
    """Return the type of one key of a TypedDict for a parameter. ``description`` is its description. A default value
    only appears in the schema; the function itself applies it."""
    import pydantic
    import typing_extensions

    optional = parameter.default is not parameter.empty
    extra = {"default": default} if optional and (default := _plain(parameter.default)) is not _NOT_JSON else {}
    hint = Annotated[hint, pydantic.Field(description=description or None, json_schema_extra=extra or None)]
    return typing_extensions.NotRequired[hint] if optional else hint


_NOT_JSON = object()


def _plain(value: Any) -> Any:
    import pydantic_core

    try:
        return pydantic_core.to_jsonable_python(value)
    except ValueError:
        return _NOT_JSON


def _adapter(name: str, fields: dict[str, Any]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    import pydantic
    import typing_extensions

    typed_dict: Any = vars(typing_extensions)["TypedDict"]  # mypy only accepts a TypedDict whose fields are written out
    kind = typed_dict("Arguments", fields)
    kind.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        adapter = pydantic.TypeAdapter(kind)
        schema = _without_titles(adapter.json_schema())
    except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticUndefinedAnnotation) as error:
        raise InvalidRequest(f"{name} cannot be a tool: {str(error).splitlines()[0]}") from error
    schema.setdefault("properties", {})
    return adapter, schema


def _without_titles(schema: Any, *, keys_are_parameters: bool = False) -> Any:
    """Return the schema without titles, which repeat the names and cost tokens. ``keys_are_parameters`` marks a
    mapping whose keys are parameter names."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    remaining = {key: value for key, value in schema.items() if keys_are_parameters or key != "title"}
    return {
        key: value
        if key in _DATA and not keys_are_parameters
        else _without_titles(value, keys_are_parameters=not keys_are_parameters and key in _NAMED)
        for key, value in remaining.items()
    }
