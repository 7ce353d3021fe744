"""Makes Python functions of the user available as tools: functions that ``@agent_kernel.tool`` marks, in a module that
the server names or in a cell."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, overload

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.tools.base.time_limited_call import TIMEOUT_S, TimeLimitedFunction
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ATTRIBUTE = "__agent_tool__"
F = TypeVar("F", bound=Callable[..., Any])
MAX_DESCRIPTION = 10_000
_NAMED = ("properties", "$defs")
_DATA = ("default", "const", "enum", "examples")
_NOT_JSON = object()


@overload
def tool(function: F) -> F: ...


@overload
def tool(
    *, name: str = "", description: str = "", effects: bool = False, timeout_s: float = TIMEOUT_S
) -> Callable[[F], F]: ...


def tool(
    function: F | None = None,
    *,
    name: str = "",
    description: str = "",
    effects: bool = False,
    timeout_s: float = TIMEOUT_S,
) -> F | Callable[[F], F]:
    """Make a typed function, sync or async, available as a tool. The function itself is returned unchanged.

    The model reads its name, docstring and type hints. ``effects`` means that the function changes something outside of
    the program, so that the user is asked before each call. A call may take ``timeout_s`` seconds; after that, the
    thread of a sync function continues, because a thread cannot be stopped. Raises InvalidRequest for parameters
    without a name (``*args``) and for types that JSON cannot represent.
    """

    def mark(function: F) -> F:
        function_tool = PythonFunctionTool(
            function, name=name, description=description, effects=effects, timeout_s=timeout_s
        )
        setattr(function, ATTRIBUTE, function_tool)
        return function

    return mark if function is None else mark(function)


class PythonFunctionTool:
    """A tool that calls the Python function ``function`` of the user."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str = "",
        description: str = "",
        effects: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._function = function
        self._signature = Signature.of(function)
        name = name or getattr(function, "__name__", type(function).__name__)
        if not NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} is not a valid tool name: use letters, digits, _ and -, at most 64.")
        self._call = TimeLimitedFunction(function, name, timeout_s)
        self.spec = ToolSpec(
            name,
            description or self._signature.description,
            self._signature.parameters,
            kind="function.effects" if effects else "function",
            source="user",
        )

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        converted = self._signature.arguments(arguments)
        if self._signature.context:
            converted[self._signature.context] = context
        return await self._call(**converted)

    def invoke(self, **arguments: Any) -> Any:
        """Call the function directly, as a cell does, and return its value; awaitable if the function is async. Raises
        InvalidRequest, and what the function raises."""
        if self._signature.context:
            raise InvalidRequest(f"{self.spec.name} needs a ToolContext, which exists only in a server.")
        return self._function(**self._signature.arguments(arguments))


class FunctionTools:
    """Offers the functions that the server's configuration names."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tuple(tools)

    async def offer(self, occasion: ToolSourceContext) -> OfferedTools:
        return OfferedTools(tuple(tool for tool in self._tools if occasion.wants("functions", tool.spec.name)))


def as_tool(candidate: Tool | Callable[..., Any]) -> Tool:
    """Return ``candidate`` as a tool. A tool is returned unchanged; a function is converted, whether ``tool`` has
    marked it or not. Raises InvalidRequest for any other object."""
    if isinstance(getattr(candidate, "spec", None), ToolSpec):
        return candidate  # type: ignore[return-value]  # what has a spec is a tool
    marked = getattr(candidate, ATTRIBUTE, None)
    if isinstance(marked, PythonFunctionTool):
        return marked
    if not callable(candidate) or inspect.isclass(candidate):
        raise InvalidRequest(f"{candidate!r} is neither a function nor a tool.")
    return PythonFunctionTool(candidate)


# Derives the JSON schema of a typed function from its signature, and converts the model's arguments to the function's
# types.


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
