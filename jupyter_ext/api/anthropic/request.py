"""Defines and checks the bodies of Anthropic's requests. Keys that have no effect on this server (cache_control,
metadata) are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from jupyter_ext.api.dialects.openai_content import check_depth
from jupyter_ext.api.dialects.openai_functions import FewValues, JsonSchema, WebSearchOptions, Words
from jupyter_ext.api.dialects.request_extensions import AgentFields, WantedFile, text_or_list

MAX_MESSAGES = 10_000
MAX_BLOCKS = 1_000
"""Maximum number of content blocks in one message."""
MAX_TOOLS = 200
MAX_SKILLS = 20
ID = 512
NAME = r"^[A-Za-z0-9_.-]{1,128}$"
MIN_THINKING = 1_024
"""The minimum of ``budget_tokens`` in tokens, as in Anthropic's API."""


Id = Annotated[str, Field(min_length=1, max_length=ID)]
Shallow = Annotated[Any, AfterValidator(check_depth)]
Input = Annotated[dict[str, Any], AfterValidator(check_depth)]

# ---------------------------------------------------------------------------------------------------- sources


class Base64Source(Words):
    type: Literal["base64"]
    media_type: Annotated[str, Field(min_length=1, max_length=200)]
    data: str


class UrlSource(Words):
    type: Literal["url"]
    url: Annotated[str, Field(min_length=1, max_length=8_192)]


class FileSource(Words):
    type: Literal["file"]
    file_id: Id


class TextSource(Words):
    type: Literal["text"]
    data: str


class TextBlock(Words):
    type: Literal["text"]
    text: str


class ImageBlock(Words):
    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource | FileSource, Field(discriminator="type")]


class ContentSource(Words):
    type: Literal["content"]
    content: str | Annotated[list[TextBlock], Field(max_length=MAX_BLOCKS)]


# ------------------------------------------------------------------------------------------------ content blocks


class DocumentBlock(Words):
    type: Literal["document"]
    source: Annotated[Base64Source | UrlSource | FileSource | TextSource | ContentSource, Field(discriminator="type")]
    title: Annotated[str, Field(max_length=500)] | None = None
    context: str | None = None


class SearchResultBlock(Words):
    type: Literal["search_result"]
    source: str
    title: str
    content: Annotated[list[TextBlock], Field(max_length=MAX_BLOCKS)]


class ThinkingBlock(Words):
    """A thinking block of any model; its signature is not checked."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Words):
    type: Literal["redacted_thinking"]


class ToolUseBlock(Words):
    type: Literal["tool_use"]
    id: Id
    name: Annotated[str, Field(min_length=1, max_length=200)]
    input: Input


class ToolReferenceBlock(Words):
    type: Literal["tool_reference"]
    tool_name: Annotated[str, Field(max_length=200)]


ResultPart: TypeAlias = Annotated[
    TextBlock | ImageBlock | SearchResultBlock | DocumentBlock | ToolReferenceBlock, Field(discriminator="type")
]


class ToolResultBlock(Words):
    type: Literal["tool_result"]
    tool_use_id: Id
    content: str | Annotated[list[ResultPart], Field(max_length=MAX_BLOCKS)] | None = None
    is_error: bool | None = None


class ServerToolUseBlock(Words):
    """A call of a tool that a server ran, either this server or another one."""

    type: Literal["server_tool_use", "mcp_tool_use"]
    id: Id
    name: Annotated[str, Field(min_length=1, max_length=200)]
    input: Input


class ServerResultBlock(Words):
    type: Literal[
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "mcp_tool_result",
    ]
    tool_use_id: Id
    content: Shallow = None
    is_error: bool | None = None


class ContainerUploadBlock(Words):
    type: Literal["container_upload"]
    file_id: Id


Block: TypeAlias = Annotated[
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ToolResultBlock
    | ServerToolUseBlock
    | ServerResultBlock
    | ContainerUploadBlock,
    Field(discriminator="type"),
]


class MessageBody(Words):
    role: Literal["user", "assistant", "system"]
    content: Annotated[
        Annotated[str, Tag("[text]")] | Annotated[list[Block], Field(max_length=MAX_BLOCKS), Tag("[list]")],
        Discriminator(text_or_list),
    ]

    @property
    def blocks(self) -> list[Any]:
        return [TextBlock(type="text", text=self.content)] if isinstance(self.content, str) else self.content


# ---------------------------------------------------------------------------------------------------- tools


class ToolBody(Words):
    """A tool of the client, with its ``input_schema``, or a tool that Anthropic defines, recognized by its ``type`` or
    its name."""

    type: Annotated[str, Field(max_length=100)] | None = None
    name: Annotated[str, Field(pattern=NAME)] = ""
    description: Annotated[str, Field(max_length=20_000)] | None = None
    input_schema: JsonSchema | None = None
    allowed_callers: list[str] | None = None
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None
    user_location: dict[str, Any] | None = None


class ToolChoice(Words):
    type: Literal["auto", "any", "none", "tool"]
    name: Annotated[str, Field(max_length=200)] | None = None
    disable_parallel_tool_use: bool | None = None

    @model_validator(mode="after")
    def check_name(self) -> ToolChoice:
        if self.type == "tool" and not self.name:
            raise ValueError("a tool_choice of the type tool must have the name of a tool")
        return self


class ThinkingBody(Words):
    type: Literal["enabled", "adaptive", "disabled", "between_tools"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class FormatBody(Words):
    type: Literal["json_schema"]
    schema_: Annotated[JsonSchema, Field(alias="schema")]


class OutputConfig(Words):
    """The options of the answer. ``effort`` is accepted and ignored, because the engines have no option for it."""

    effort: str | None = None
    format: FormatBody | None = None


class SkillBody(Words):
    type: Literal["anthropic", "custom"]
    skill_id: Annotated[str, Field(min_length=1, max_length=200)]
    version: Annotated[str, Field(max_length=100)] | int | None = None


class ContainerBody(Words):
    id: Id | None = None
    skills: Annotated[list[SkillBody], Field(max_length=MAX_SKILLS)] | None = None


# ---------------------------------------------------------------------------------------------------- requests


class ThreadBody(Words):
    """Starts a message thread, or continues one.

    ``create``: the server stores the conversation under the id of the answer. ``continue``: the request names the id of
    such an answer; its messages follow that answer, and the instructions and tools of the thread apply.
    """

    type: Literal["create", "continue"]
    previous_message_id: Id | None = None

    @model_validator(mode="after")
    def check_previous(self) -> ThreadBody:
        if self.type == "continue" and not self.previous_message_id:
            raise ValueError("previous_message_id is required to continue a thread")
        return self


class PromptBody(Words):
    """The fields that both routes share: a conversation, and the tools that the model may call."""

    model: Annotated[str, Field(min_length=1, max_length=2_000)]
    messages: Annotated[list[MessageBody], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: str | Annotated[list[TextBlock], Field(max_length=MAX_BLOCKS)] | None = None
    tools: Annotated[Annotated[list[ToolBody], Field(max_length=MAX_TOOLS)] | None, FewValues] = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingBody | None = None
    output_config: OutputConfig | None = None

    @property
    def instructions(self) -> str:
        system_prompt = self.system or ""
        return system_prompt if isinstance(system_prompt, str) else "\n".join(block.text for block in system_prompt)


def _ends(stops: list[str]) -> list[str]:
    if not all(stop.strip() for stop in stops):
        raise ValueError("a stop sequence must not consist of white space only")
    return stops


class MessagesBody(PromptBody, AgentFields):
    """Anthropic's fields and those that mistral.rs adds: ``session_id``, ``files`` that the turn must produce,
    ``max_tool_rounds``, ``web_search_options``, ``enable_code_execution`` and ``agent_permission``. Without messages, a
    thread continues from where it was stopped."""

    extensions = frozenset({"session_id", "files", "web_search_options", "enable_code_execution"})
    messages: Annotated[list[MessageBody], Field(max_length=MAX_MESSAGES)]
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)]
    stream: bool | None = None
    stop_sequences: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=1_000)]], Field(max_length=64), AfterValidator(_ends)
        ]
        | None
    ) = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    container: Id | ContainerBody | None = None
    mcp_servers: list[Any] | None = None
    thread: ThreadBody | None = None
    output_format: FormatBody | None = None
    """The former name of ``output_config.format``."""

    session_id: Id | None = None
    files: Annotated[list[WantedFile], Field(max_length=64)] | None = None
    web_search_options: WebSearchOptions | None = None
    enable_code_execution: bool | None = None

    @model_validator(mode="after")
    def agrees(self) -> MessagesBody:
        if not (self.messages or self.continues):
            raise ValueError("messages must have at least one message, except in a request that continues a thread")
        if self.mcp_servers:
            raise ValueError("mcp_servers: MCP servers can only be set in the configuration of this server")
        if {self.agent_permission, self.code_execution_permission} - {None, self.permission}:
            raise ValueError(
                "agent_permission and code_execution_permission are two names of one option: send only one of them"
            )
        if self.permission == "ask" and not self.stream:
            raise ValueError("agent_permission: ask needs stream: true, because without a stream nobody can be asked")
        if self.session_id and self.container_id not in ("", self.session_id):
            raise ValueError("session_id and container must not name different sessions")
        if self.output_format and self.output_config and self.output_config.format:
            raise ValueError("output_format is the old name of output_config.format: send one of them")
        self._thinks()
        return self

    def _thinks(self) -> None:
        thinking = self.thinking
        if thinking is None or thinking.type != "enabled":
            return
        budget = thinking.budget_tokens
        if budget is None or budget < MIN_THINKING:
            raise ValueError(f"thinking.budget_tokens must be at least {MIN_THINKING}")
        if budget >= self.max_tokens:
            raise ValueError("max_tokens must be greater than thinking.budget_tokens")
        if self.tool_choice is not None and self.tool_choice.type in ("any", "tool"):
            raise ValueError("thinking cannot be enabled where tool_choice makes the model call a tool")

    @property
    def continues(self) -> str:
        """Return the id of the answer that this request follows; empty if it follows none."""
        return (self.thread.previous_message_id or "") if self.thread and self.thread.type == "continue" else ""

    @property
    def container_id(self) -> str:
        return (self.container.id or "") if isinstance(self.container, ContainerBody) else self.container or ""

    @property
    def skills(self) -> list[SkillBody]:
        return (self.container.skills or []) if isinstance(self.container, ContainerBody) else []

    @property
    def format(self) -> FormatBody | None:
        return self.output_format or (self.output_config.format if self.output_config else None)


class CountBody(PromptBody):
    """The body of ``count_tokens``."""
