"""Reads the tools of an Anthropic request: those that the client runs, and those of the server that the request
enables. The functions have no side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import ToolSpec
from agent_kernel.tools.web.web_options import WebOptions
from jupyter_ext.api.anthropic.request import MessagesBody, PromptBody, SkillBody, ToolBody

SERVED: Mapping[str, str] = MappingProxyType({"web_search": "web", "web_fetch": "web", "code_execution": "python"})
"""Maps the types of the tools that Anthropic runs itself to the server's tool groups. In a request, an underscore and a
date follow the type, as in ``web_search_20250305``."""
RUNS_CODE_SINCE = "web_search_20260209"
"""The first type of search tools that filter their results with code. Later types do so too."""
TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
SPAN = {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 2}


def _schema(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


_TEXTS: Mapping[str, Any] = MappingProxyType(
    {
        "file_text": TEXT,
        "old_str": TEXT,
        "new_str": TEXT,
        "insert_line": NUMBER,
        "insert_text": TEXT,
        "view_range": SPAN,
    }
)
_EDIT = _schema(
    ["command", "path"],
    command={"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
    path=TEXT,
    **_TEXTS,
)
_MEMORY = _schema(
    ["command"],
    command={"type": "string", "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
    path=TEXT,
    old_path=TEXT,
    new_path=TEXT,
    **_TEXTS,
)
KNOWN: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "bash_": (
            "Run a command in a bash session of the client, which keeps its state; restart begins it anew.",
            _schema([], command=TEXT, restart={"type": "boolean"}),
        ),
        "text_editor_": ("View, create and edit text files of the client.", _EDIT),
        "memory_": (
            "Keep notes below /memories, in files of the client, to read them in later conversations.",
            _MEMORY,
        ),
    }
)
"""Tools that Anthropic's models know without a declared schema, by the prefix of their type. The client runs their
calls."""


@dataclass(frozen=True, slots=True)
class AnthropicTools:
    """The tools of a request, and the choice among them.

    ``choice`` is the ``tool_choice`` of TurnRequest. ``none``: no tool may be called, whatever tools the request
    has.
    """

    functions: tuple[ToolSpec, ...] = ()
    groups: tuple[str, ...] = ()
    web: Mapping[str, Any] | None = None
    skills: tuple[str, ...] = ()
    choice: str = "auto"
    parallel: bool = True

    @property
    def silent(self) -> bool:
        return self.choice == "none"


def tools_of(body: PromptBody, *, agent: bool) -> AnthropicTools:
    """Return the tools of a request. ``agent``: the name of the model enables the server's tools. Raises
    InvalidRequest."""
    wanted = body.tools or []
    functions = tuple(_function(tool) for tool in wanted if not _server_tool_name(tool))
    served = {tool.name or _server_tool_name(tool): tool for tool in wanted if _server_tool_name(tool)}
    _check_unique([tool.name or _server_tool_name(tool) for tool in wanted])
    groups = dict.fromkeys(SERVED[_server_tool_name(tool)] for tool in served.values())
    web = _web(list(served.values()))
    skills: tuple[str, ...] = ()
    if isinstance(body, MessagesBody):
        skills = tuple(_skill(skill) for skill in body.skills)
        searches = [tool for tool in wanted if _server_tool_name(tool) == "web_search"]
        if body.enable_code_execution or any((tool.type or "") >= RUNS_CODE_SINCE for tool in searches):
            groups["python"] = None
        if skills:
            groups |= {"skills": None, "shell": None}
        if body.web_search_options is not None:
            groups["web"] = None
            web = {**(web or {}), **body.web_search_options}
    choice = _choice(body, {one.name for one in functions}, served, has_tools=bool(wanted or groups or agent))
    parallel = not (body.tool_choice and body.tool_choice.disable_parallel_tool_use)
    if choice == "none":
        return AnthropicTools(choice="none")
    return AnthropicTools(functions, tuple(groups), web, skills, choice, parallel)


def _choice(body: PromptBody, functions: set[str], served: Mapping[str, ToolBody], *, has_tools: bool) -> str:
    """Return the tool choice in our own terms: ``auto``, ``none``, ``required``, or the name of the function that the
    model must call. The choice of a tool that the server runs becomes ``auto``, because such a tool cannot be forced.
    ``has_tools`` tells whether the request has tools. Raises InvalidRequest."""
    choice = body.tool_choice
    if choice is None or choice.type == "auto":
        return "auto"
    if choice.type == "none":
        return "none"
    if choice.type == "any":
        if not has_tools:
            raise InvalidRequest("tool_choice is any, but the request has no tools.")
        return "required"
    if choice.name in functions:
        return choice.name
    if choice.name not in served:
        raise InvalidRequest(f"tool_choice names {choice.name!r}, which is not one of the tools.")
    return "auto"


def _server_tool_name(tool: ToolBody) -> str:
    """Return the type, without its date, of a tool that Anthropic runs itself, whether declared by type or by name
    alone; empty for a tool of the client."""
    if tool.type is None:
        return tool.name if tool.name in SERVED and tool.input_schema is None else ""
    return next((name for name in SERVED if tool.type == name or tool.type.startswith(f"{name}_")), "")


def _function(tool: ToolBody) -> ToolSpec:
    kind = tool.type or "custom"
    known = next((KNOWN[start] for start in KNOWN if kind.startswith(start)), None)
    if kind != "custom" and known is None:
        raise InvalidRequest(
            f"This server does not know tools of the type {kind!r}.",
            hint="Declare it with an input_schema, or use web_search, web_fetch, code_execution, bash, text_editor or "
            "memory.",
        )
    if tool.allowed_callers is not None and "direct" not in tool.allowed_callers:
        raise InvalidRequest(f"Code cannot call {tool.name!r} on this server: add direct to its allowed_callers.")
    if not tool.name:
        raise InvalidRequest("A tool must have a name.")
    if known is None and tool.input_schema is None:
        raise InvalidRequest(f"The tool {tool.name!r} has no input_schema.")
    description, schema = known or (tool.description or "", tool.input_schema or {})
    if schema.get("type") != "object":
        raise InvalidRequest(f"The input_schema of {tool.name!r} must have the type object.")
    return ToolSpec(
        tool.name, tool.description or description, schema, kind="function", where="caller", source="external"
    )


def _check_unique(names: list[str]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise InvalidRequest(f"Two tools have the same name, {twice!r}.", hint="Give each tool a name of its own.")


def _web(served: list[ToolBody]) -> Mapping[str, Any] | None:
    """Return the web tools as ``web_search_options``; None if the request has no web tool."""
    web_tools = [tool for tool in served if SERVED[_server_tool_name(tool)] == "web"]
    if not web_tools:
        return None
    options: dict[str, Any] = {}
    for tool in web_tools:
        if tool.allowed_domains and tool.blocked_domains:
            raise InvalidRequest("A web tool can have allowed_domains or blocked_domains, not both.")
        filters = {"allowed_domains": tool.allowed_domains, "blocked_domains": tool.blocked_domains}
        options.setdefault("filters", {}).update({key: value for key, value in filters.items() if value})
        if tool.user_location:
            options["user_location"] = tool.user_location
    WebOptions.of(options)
    return options


def _skill(skill: SkillBody) -> str:
    if skill.type == "anthropic":
        raise InvalidRequest(
            f"The skill {skill.skill_id!r} is one of Anthropic's own skills, which this server does not have."
        )
    version = "" if skill.version in (None, "latest") else str(skill.version).rpartition("_v")[2]
    return f"{skill.skill_id}@{version}" if version else skill.skill_id
