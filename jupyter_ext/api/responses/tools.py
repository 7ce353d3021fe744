"""Parses the tools of a request for a response: functions, some of them in namespaces, and tools of the server. The
module has no side effects; an invalid tool raises ValueError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, Tag, model_validator

from agent_kernel.core.protocols import ToolSpec
from jupyter_ext.api.dialects.openai_functions import MAX_TOOLS, Function, Words, check_web_options, specs_of

Body: TypeAlias = dict[str, Any]
WEB = ("web_search", "web_search_2025_08_26")
PREVIEW = ("web_search_preview", "web_search_preview_2025_03_11")
ELSEWHERE = {
    "mcp": "MCP servers are configured where this server runs (mcp_config)",
    "file_search": "this server has no vector stores: add files to the request, and tools that read them",
    "computer": "this server has no tool that operates a screen",
    "computer_use_preview": "this server has no tool that operates a screen",
    "image_generation": "no model of this server generates images",
    "local_shell": "the client runs such calls itself: declare a function for them",
    "apply_patch": "the client runs such calls itself: declare a function for them",
    "tool_search": "the model always gets all tools",
    "programmatic_tool_calling": "declare the functions that the code would call",
}
"""Types of OpenAI's tools that this server does not have, each with a text that says what to use instead."""


class FunctionTool(Words):
    """A function, flat as in the Responses API or nested as in Chat Completions."""

    type: Literal["function"]
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    function: Function | None = None

    @model_validator(mode="after")
    def complete(self) -> FunctionTool:
        if self.function is None:
            function = {"name": self.name, "description": self.description, "parameters": self.parameters}
            self.function = Function.model_validate({**function, "strict": self.strict})
        return self

    @property
    def declared(self) -> Function:
        assert self.function is not None, "it is complete"
        return self.function

    @property
    def echo(self) -> Body:
        return {"type": "function", **self.declared.model_dump(include={"name", "description", "parameters", "strict"})}


class CustomTool(Words):
    """A tool that takes free text. It is accepted but not offered to the model, because no model of this server can
    call it."""

    type: Literal["custom"]
    name: Annotated[str, Field(max_length=200)]

    @property
    def echo(self) -> Body:
        return {"type": "custom", "name": self.name}


class NamespaceTool(Words):
    """A namespace of functions. The model sees them as ``NAME.FUNCTION``."""

    type: Literal["namespace"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: Annotated[str, Field(max_length=20_000)] | None = None
    tools: Annotated[
        list[Annotated[FunctionTool | CustomTool, Field(discriminator="type")]], Field(max_length=MAX_TOOLS)
    ]

    @property
    def functions(self) -> list[Function]:
        """Return the functions under the names that the model sees. Raises ValueError if such a name is too long."""
        declared = [tool.declared for tool in self.tools if isinstance(tool, FunctionTool)]
        names = [Function(name=f"{self.name}.{one.name}").name for one in declared]
        return [one.model_copy(update={"name": name}) for one, name in zip(declared, names, strict=True)]

    @property
    def echo(self) -> Body:
        tools = [tool.echo for tool in self.tools]
        return {"type": "namespace", "name": self.name, "description": self.description or "", "tools": tools}


class WebTool(Words):
    type: Literal["web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"]
    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: dict[str, Any] | None = None
    filters: dict[str, Any] | None = None
    return_token_budget: Literal["default", "unlimited"] | None = None
    search_content_types: Annotated[list[str], Field(max_length=10)] | None = None
    external_web_access: bool | None = None

    @model_validator(mode="after")
    def consistent(self) -> WebTool:
        """Check the fields of ``web_search_preview``, which has no filters and no budget."""
        if self.preview and (self.filters or self.return_token_budget):
            raise ValueError("web_search_preview has no filters and no return_token_budget: use web_search")
        check_web_options(self.options)
        return self

    @property
    def preview(self) -> bool:
        return self.type in PREVIEW

    @property
    def dropped(self) -> bool:
        return self.external_web_access is False and not self.preview

    @property
    def options(self) -> Body:
        options_given = self.model_dump(exclude={"type"}, exclude_none=True)
        return {
            key: value for key, value in options_given.items() if not (self.preview and key == "external_web_access")
        }

    @property
    def echo(self) -> Body:
        return self.model_dump(exclude_none=True)


class Container(Words):
    """The container of OpenAI's API, which here is the session's sandbox. A request that sets one of these fields is
    refused, because the server's own limits apply."""

    file_ids: Any = None
    memory_limit: Any = None
    network_policy: Any = None

    @model_validator(mode="after")
    def plain(self) -> Self:
        if self.file_ids or self.memory_limit or self.network_policy:
            raise ValueError("the container of the session is used, with the server's limits: send files as input_file")
        return self


class AutoContainer(Container):
    type: Literal["auto"]


class CodeTool(Words):
    type: Literal["code_interpreter"]
    container: AutoContainer = AutoContainer(type="auto")

    @property
    def echo(self) -> Body:
        return {"type": self.type, "container": {"type": "auto"}}


class SkillReference(Words):
    type: Literal["skill_reference"]
    skill_id: Annotated[str, Field(min_length=1, max_length=200)]
    version: str | int | None = None

    @property
    def id(self) -> str:
        return self.skill_id if self.version in (None, "latest") else f"{self.skill_id}@{self.version}"


class ShellEnvironment(Container):
    type: Literal["container_auto"]
    skills: Annotated[list[SkillReference], Field(max_length=20)] | None = None


class ShellTool(Words):
    """The shell tool. It needs an environment: without one, the client would run the commands itself, and must declare
    a function instead."""

    type: Literal["shell"]
    environment: ShellEnvironment

    @property
    def skills(self) -> tuple[str, ...]:
        return tuple(skill.id for skill in self.environment.skills or ())

    @property
    def echo(self) -> Body:
        skills = [skill.model_dump(exclude_none=True) for skill in self.environment.skills or ()]
        environment: Body = {"type": "container_auto"} | ({"skills": skills} if skills else {})
        return {"type": self.type, "environment": environment}


class OtherTool(Words):
    type: str

    @model_validator(mode="after")
    def refuse(self) -> OtherTool:
        why = ELSEWHERE.get(self.type, "the types are function, namespace, web_search, code_interpreter and shell")
        raise ValueError(f"this server has no tool of this type: {why}")

    @property
    def echo(self) -> Body:
        return {"type": self.type}


TYPES = {"function": "function", "custom": "custom", "namespace": "namespace", "code_interpreter": "code"}
TYPES |= {"shell": "shell", **dict.fromkeys((*WEB, *PREVIEW), "web")}


def _type(value: Any) -> str | None:
    type_name = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return TYPES.get(type_name, "other") if isinstance(type_name, str) else None


Tool = Annotated[
    Annotated[FunctionTool, Tag("function")]
    | Annotated[CustomTool, Tag("custom")]
    | Annotated[NamespaceTool, Tag("namespace")]
    | Annotated[WebTool, Tag("web")]
    | Annotated[CodeTool, Tag("code")]
    | Annotated[ShellTool, Tag("shell")]
    | Annotated[OtherTool, Tag("other")],
    Discriminator(_type, custom_error_type="tool", custom_error_message="a tool must be an object with a type"),
]


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools that a request offers to the model.

    ``groups`` maps the types of tools to the groups of server tools that they enable. ``namespaces`` maps the name of a
    function on this server to (namespace, name in that namespace).
    """

    functions: tuple[ToolSpec, ...] = ()
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    web: Mapping[str, Any] | None = None
    skills: tuple[str, ...] = ()


def offer_tools(tools: Sequence[Tool]) -> Offered:
    """Return the tools of a request. Raises ValueError for two functions with the same name, and for more than
    MAX_TOOLS."""
    functions: list[Function] = []
    namespaces: dict[str, tuple[str, str]] = {}
    groups: dict[str, str] = {}
    web: Mapping[str, Any] | None = None
    skills: tuple[str, ...] = ()
    for tool in tools:
        match tool:
            case FunctionTool():
                functions.append(tool.declared)
            case NamespaceTool():
                functions += (inner := tool.functions)
                namespaces |= {one.name: (tool.name, one.name[len(tool.name) + 1 :]) for one in inner}
            case WebTool() if not tool.dropped:
                groups[tool.type], web = "web", tool.options
            case CodeTool():
                groups[tool.type] = "python"
            case ShellTool():
                groups[tool.type] = "shell"
                skills += tool.skills
    if len(functions) > MAX_TOOLS:
        raise ValueError(f"a request can have at most {MAX_TOOLS} functions")
    return Offered(specs_of(functions), namespaces, groups, web, skills)
