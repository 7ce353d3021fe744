"""Parses the functions that a client declares, the choice among them, and the output format, in OpenAI's format. The
functions have no side effects; an invalid request raises ValueError."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import OutputFormat, ToolSpec
from agent_kernel.tools.base.declared_schema import check_schema, has_too_many_values
from agent_kernel.tools.web.web_options import WebOptions

NAME = r"^[A-Za-z0-9_.-]{1,64}$"
MAX_TOOLS = 128
MAX_VALUES = 10_000
"""Maximum number of JSON values in all tools of a request together. It is checked before any schema is processed."""
Name = Annotated[str, Field(pattern=NAME)]


class Words(BaseModel):
    """Base class of request models that ignore unknown keys, because clients of other versions send such keys."""

    model_config = ConfigDict(extra="ignore", defer_build=True)


def _a_schema(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        check_schema(schema)
    except InvalidRequest as error:
        raise ValueError(str(error)) from None
    return schema


JsonSchema = Annotated[dict[str, Any], AfterValidator(_a_schema)]


def _few_values(tools: Any) -> Any:
    if has_too_many_values(tools, MAX_VALUES):
        raise ValueError(
            f"the tools of a request, with their schemas, can have at most {MAX_VALUES:,} JSON values in total"
        )
    return tools


FewValues = BeforeValidator(_few_values)
"""A validator for the field ``tools`` that refuses more than MAX_VALUES JSON values. It runs before any of the schemas
is processed."""


def _check_object_schema(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object":
        raise ValueError("the parameters of a function must be a JSON schema with the type object")
    return schema


Parameters = Annotated[JsonSchema, AfterValidator(_check_object_schema)]


class Function(Words):
    """A function of the client. ``strict`` has no effect: the client checks the arguments and reports invalid ones to
    the model."""

    name: Name
    description: Annotated[str, Field(max_length=20_000)] | None = None
    parameters: Parameters | None = None
    strict: bool | None = None

    @property
    def spec(self) -> ToolSpec:
        schema = self.parameters or {"type": "object", "properties": {}}
        return ToolSpec(self.name, self.description or "", schema, kind="function", where="caller", source="external")


def specs_of(functions: Sequence[Function]) -> tuple[ToolSpec, ...]:
    names = [function.name for function in functions]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"tools has two functions called {twice[0]}")
    return tuple(function.spec for function in functions)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The parsed ``tool_choice`` of a request.

    ``choice`` is auto, none, required or a name. ``allowed`` are the functions that may be called, ``hosted`` the
    types of server tools that may be called; None means all.
    """

    choice: str = "auto"
    allowed: frozenset[str] | None = None
    hosted: frozenset[str] | None = None

    def of(self, specs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        return tuple(spec for spec in specs if self.allowed is None or spec.name in self.allowed)


def parse_tool_choice(choice: object) -> Chosen:
    """Parse ``tool_choice`` of chat/completions or responses: a word, a function, or allowed tools."""
    if isinstance(choice, Chosen):
        return choice
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required"):
            raise ValueError("tool_choice must be auto, none, required or an object")
        return Chosen(choice)
    if not isinstance(choice, dict):
        raise ValueError("tool_choice must be a string or an object")
    match choice.get("type"):
        case "function":
            return Chosen(_name_of(choice))
        case "allowed_tools":
            inner = choice.get("allowed_tools")
            return _read_allowed_tools(inner if isinstance(inner, dict) else choice)
    raise ValueError(
        "tool_choice can name a function of the request, but not a tool of the server: to offer only "
        "that tool, send it in a tool_choice of the type allowed_tools"
    )


def _read_allowed_tools(choice: dict[str, Any]) -> Chosen:
    mode, tools = choice.get("mode", "auto"), choice.get("tools")
    if mode not in ("auto", "required"):
        raise ValueError("the mode of allowed_tools must be auto or required")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools) or len(tools) > MAX_TOOLS:
        raise ValueError(f"allowed_tools must have tools, a list of at most {MAX_TOOLS} objects")
    names = frozenset(_name_of(tool) for tool in tools if tool.get("type") == "function")
    return Chosen(mode, names, frozenset(str(tool.get("type")) for tool in tools) - {"function"})


def _name_of(tool: dict[str, Any]) -> str:
    inner = tool.get("function")
    name = inner.get("name") if isinstance(inner, dict) else tool.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("tool_choice must have the name of the function")
    return name


WORDS = {"type": "string", "enum": ["none", "auto", "required"]}
ToolChoice = Annotated[
    Chosen,
    PlainValidator(parse_tool_choice),
    WithJsonSchema(
        {"anyOf": [WORDS, {"type": "object", "properties": {"type": {"enum": ["function", "allowed_tools"]}}}]}
    ),
]


def check_tool_choice(
    choice: Chosen, functions: Collection[str], hosted: Collection[str], *, more: bool = False
) -> Chosen:
    """Check the choice against ``functions`` and ``hosted``, the types of server tools in the request, and return it.
    ``more``: the name of the model or the number of rounds enables further server tools. Raises ValueError."""
    unknown = [name for name in choice.allowed or () if name not in functions]
    unknown += [kind for kind in choice.hosted or () if kind not in hosted]
    if choice.choice not in ("auto", "none", "required") and choice.choice not in functions:
        unknown.append(choice.choice)
    if unknown:
        raise ValueError(f"tool_choice names {unknown[0][:64]!r}, which is not among the tools of this request")
    if choice.choice == "required" and not (functions or hosted or more):
        raise ValueError("tool_choice is required, but the request has no tools")
    return choice


# ------------------------------------------------------------------------------------------------ output formats


class TextFormat(Words):
    type: Literal["text"]

    @property
    def output(self) -> OutputFormat | None:
        return None


class ObjectFormat(Words):
    type: Literal["json_object"]

    @property
    def output(self) -> OutputFormat | None:
        return OutputFormat("json_object")


class JsonSchemaFormat(Words):
    name: Annotated[str, Field(max_length=200)] = "answer"
    description: Annotated[str, Field(max_length=20_000)] | None = None
    schema_: Annotated[JsonSchema | None, Field(alias="schema")] = None
    strict: bool | None = None

    @property
    def output(self) -> OutputFormat:
        if not self.schema_:
            return OutputFormat("json_object", name=self.name)
        return OutputFormat("json_schema", self.schema_, name=self.name)


# ------------------------------------------------------------------------------------------------ web options


def check_web_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the web search options unchanged. Raises ValueError if one of them is invalid."""
    try:
        WebOptions.of(given)
    except InvalidRequest as error:
        raise ValueError(str(error)) from None
    return given


WebSearchOptions = Annotated[dict[str, Any], AfterValidator(check_web_options)]
"""OpenAI's web_search_options; unknown keys are ignored."""
