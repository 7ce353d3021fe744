"""Defines the body of a request for a response. The module has no side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, Discriminator, Field, PrivateAttr, Tag, WithJsonSchema, model_validator

from agent_kernel.core.messages import Message, system
from agent_kernel.core.protocols import OutputFormat, Sampling
from agent_kernel.core.turn_request import TurnRequest
from jupyter_ext.api.dialects.openai_content import MAX_MESSAGES, check_length
from jupyter_ext.api.dialects.openai_functions import (
    MAX_TOOLS,
    WORDS,
    Chosen,
    FewValues,
    JsonSchema,
    JsonSchemaFormat,
    ObjectFormat,
    TextFormat,
    Words,
    check_tool_choice,
    parse_tool_choice,
)
from jupyter_ext.api.dialects.request_extensions import (
    AgentFields,
    Decoding,
    ReasoningEffort,
    WantedFile,
    require_file_tools,
)
from jupyter_ext.api.responses.input_items import AnyItem, MessageItem
from jupyter_ext.api.responses.output_items import LOGPROBS
from jupyter_ext.api.responses.tools import Offered, Tool, offer_tools
from jupyter_ext.turns.dialect_request import AGENT, DialectRequest, SubmittedFile

Body: TypeAlias = dict[str, Any]
MAX_METADATA = 16
MAX_TOKENS = 2**31 - 1


class Reference(Words):
    id: Annotated[str, Field(min_length=1, max_length=512)]


class SchemaFormat(JsonSchemaFormat):
    """The format of an answer with a schema, which the Responses API requires."""

    type: Literal["json_schema"]
    schema_: Annotated[JsonSchema, Field(alias="schema")]


class TextConfig(Words):
    format: Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")] | None = None
    verbosity: Literal["low", "medium", "high"] | None = None

    @property
    def output(self) -> OutputFormat | None:
        return self.format.output if self.format else None

    @property
    def echo(self) -> Body:
        form: Body = self.format.model_dump(by_alias=True) if self.format else {"type": "text"}
        if isinstance(self.format, SchemaFormat):
            form["strict"] = bool(self.format.strict)
        return {"format": form} | ({"verbosity": self.verbosity} if self.verbosity else {})


class Reasoning(Words):
    """The options for the reasoning of the model.

    ``effort`` is passed to the engine. With ``summary``, whatever its value, the complete reasoning is the summary of
    its item; without it, the content.
    """

    effort: ReasoningEffort | None = None
    summary: Annotated[str, Field(max_length=20)] | None = None


def _choosable(choice: Any) -> Any:
    parse_tool_choice(_flat(choice) or "auto")
    return choice


ToolChoiceBody = Annotated[
    Any,
    AfterValidator(_choosable),
    WithJsonSchema(
        {
            "anyOf": [
                WORDS,
                {"type": "null"},
                {"type": "object", "properties": {"type": {"enum": ["function", "allowed_tools"]}}},
            ]
        }
    ),
]
Includable = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]
"""OpenAI's additional fields. Fields that this server does not have are accepted, because some clients always ask for
them."""
INCLUDABLE = frozenset(get_args(Includable))
Label = Annotated[str, Field(max_length=512)]
Metadata = Annotated[dict[Annotated[str, Field(max_length=64)], Label], Field(max_length=MAX_METADATA)]


def _check_text(text: str, field: str) -> str:
    check_length(len(text), field)
    return text


Input = Annotated[
    Annotated[str, Field(min_length=1), AfterValidator(partial(_check_text, field="input")), Tag("text")]
    | Annotated[list[AnyItem], Field(min_length=1, max_length=MAX_MESSAGES), Tag("items")],
    Discriminator(lambda value: "items" if isinstance(value, list) else "text"),
]


class ResponsesBody(Decoding, AgentFields):
    """The body of a request for a response.

    ``session_id``, ``max_tool_rounds``, ``files`` and ``agent_permission`` are additions to OpenAI's fields. Fields
    about prices, caches and priority (``service_tier``, ``prompt_cache_key``, ...) have no effect.
    """

    extensions = frozenset({"session_id", "files"})
    model: Annotated[str, Field(max_length=2_000)] = ""
    input: Input
    instructions: Annotated[str, AfterValidator(partial(_check_text, field="instructions"))] | None = None
    previous_response_id: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    conversation: Annotated[str, Field(min_length=1, max_length=512)] | Reference | None = None
    session_id: Annotated[str, Field(max_length=512)] | None = None
    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    metadata: Metadata | None = None
    include: Annotated[list[Includable], Field(max_length=100)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    max_tool_calls: int | None = None
    prompt: Any = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    parallel_tool_calls: bool | None = None
    tools: Annotated[Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None, FewValues] = None
    tool_choice: ToolChoiceBody = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["auto", "disabled"] | None = None
    files: Annotated[list[WantedFile], Field(max_length=100)] | None = None
    prompt_cache_key: Label | None = None
    safety_identifier: Label | None = None
    user: Label | None = None
    _offered: Offered = PrivateAttr()
    _chosen: Chosen = PrivateAttr()

    @model_validator(mode="after")
    def consistent(self) -> ResponsesBody:
        if self.max_tool_calls is not None:
            raise ValueError("max_tool_calls is not supported: use max_tool_rounds to limit the rounds of calls")
        if self.prompt is not None:
            raise ValueError("prompt is not supported: this server stores no prompt templates; send the text as input")
        if self.background and self.store is False:
            raise ValueError("background needs store: true, because the response is fetched later")
        named = {name for name in (self.conversation_id, self.session_id or "") if name}
        if len(named) > 1:
            raise ValueError("conversation and session_id must not name different sessions")
        if self.previous_response_id and self.conversation is not None:
            raise ValueError("previous_response_id and conversation cannot be used together")
        self._form()
        self._offered = offer_tools(self.tools or [])
        self._chosen = self._choice()
        return self

    @property
    def items(self) -> list[AnyItem]:
        if isinstance(self.input, str):
            return [MessageItem(role="user", content=self.input)]
        return list(self.input)

    @property
    def conversation_id(self) -> str:
        """The session that ``conversation`` names."""
        return self.conversation.id if isinstance(self.conversation, Reference) else self.conversation or ""

    @property
    def is_stored(self) -> bool:
        return self.store is not False

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the values of ``include`` together with those that other fields of the request imply."""
        return tuple(dict.fromkeys([*(self.include or ()), *([LOGPROBS] if self.top_logprobs else ())]))

    @property
    def namespaces(self) -> Mapping[str, tuple[str, str]]:
        return self._offered.namespaces

    @property
    def shell(self) -> bool:
        return "shell" in self._offered.groups

    def to_turn(
        self,
        messages: Sequence[Message],
        files: tuple[SubmittedFile, ...],
        *,
        session: str = "",
        after: str = "",
        spoken: Sequence[Message] = (),
    ) -> DialectRequest:
        """Return the request for a turn. ``session`` is the session to continue, after the turn ``after`` if there is
        one; ``spoken`` are the messages without the calls of server tools. If the request allows only some tools, no
        other server tools are available. Raises Unprocessable."""
        instructions = [system(self.instructions)] if self.instructions else []
        offered, choice = self._offered, self._chosen
        groups = [group for kind, group in offered.groups.items() if choice.hosted is None or kind in choice.hosted]
        groups += ["files"] if files else []
        request = TurnRequest(
            messages=(*instructions, *messages),
            after=after,
            permission=self.permission,
            sampling=self._sampling,
            max_tool_rounds=self.max_tool_rounds,
            tool_choice=choice.choice,
            parallel_calls=self.parallel_tool_calls is not False,
            output=self._form(),
            outputs=tuple(file.wanted for file in self.files or ()),
            functions=choice.of(offered.functions),
            skills=offered.skills,
            web=offered.web,
        )
        repeats = tuple(spoken) != tuple(messages)
        turn_request = DialectRequest(
            self.model,
            request,
            tuple(dict.fromkeys(groups)),
            session,
            files,
            streams=bool(self.stream),
            continuable=self.is_stored,
            route="responses",
            own_messages=(*instructions, *spoken) if repeats else (),
            only_groups=choice.allowed is not None,
        )
        return require_file_tools(turn_request)

    @property
    def _sampling(self) -> Sampling:
        greedy = self.top_p == 0
        return Sampling(
            self.temperature,
            None if greedy else self.top_p,
            top_k=1 if greedy else None,
            max_tokens=self.max_output_tokens,
            logprobs=LOGPROBS in self.wanted,
            top_logprobs=self.top_logprobs or 0,
            reasoning_effort=self.reasoning.effort if self.reasoning else None,
            **self.penalties,
        )

    def _form(self) -> OutputFormat | None:
        return self.form(self.text.output if self.text else None)

    @property
    def echo(self) -> Body:
        """Return the fields of the request that the resource repeats, with OpenAI's defaults for those that the request
        leaves out, whatever the engine does then: clients that check the form of a resource accept no null there."""
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": None,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "previous_response_id": self.previous_response_id,
            "conversation": {"id": self.conversation_id} if self.conversation_id else None,
            "prompt_cache_key": self.prompt_cache_key,
            "reasoning": self.reasoning.model_dump() if self.reasoning else {"effort": None, "summary": None},
            "safety_identifier": self.safety_identifier,
            "service_tier": "default",
            "store": self.is_stored,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "text": (self.text or TextConfig()).echo,
            "tool_choice": _flat(self.tool_choice) or "auto",
            "tools": [tool.echo for tool in self.tools or ()],
            "top_logprobs": self.top_logprobs or 0,
            "top_p": 1.0 if self.top_p is None else self.top_p,
            "presence_penalty": self.presence_penalty or 0.0,
            "frequency_penalty": self.frequency_penalty or 0.0,
            "truncation": self.truncation or "disabled",
            "user": self.user,
        }

    def _choice(self) -> Chosen:
        names = {spec.name for spec in self._offered.functions}
        more = self.model.startswith(AGENT) or bool(self.max_tool_rounds)
        return check_tool_choice(
            parse_tool_choice(_flat(self.tool_choice) or "auto"), names, self._offered.groups, more=more
        )


def _flat(choice: Any) -> Any:
    """Return a tool choice in the form of the Responses API, also if it was sent in the form of Chat Completions. A
    function of a namespace is named ``namespace.function``."""
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        inner = choice.get("allowed_tools")
        body = inner if isinstance(inner, dict) else choice
        tools = body.get("tools")
        if isinstance(tools, list):
            tools = [_flat(one) if isinstance(one, dict) and one.get("type") == "function" else one for one in tools]
        return {"type": "allowed_tools", "mode": body.get("mode", "auto"), "tools": tools}
    if choice.get("type") != "function":
        return choice
    inner = choice.get("function")
    named = inner if isinstance(inner, dict) else choice
    name, namespace = named.get("name"), choice.get("namespace")
    return {"type": "function", "name": f"{namespace}.{name}" if isinstance(namespace, str) and namespace else name}
