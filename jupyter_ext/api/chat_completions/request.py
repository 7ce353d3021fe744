"""Parses the body of ``chat/completions``, with the fields of OpenAI and mistral.rs, and converts it to the request of
a turn.

Unknown fields are ignored, because clients of other versions send them; so are ``metadata``, ``store`` and ``user``.
Options that an engine does not support are refused by the engine. Validation raises ValueError for contradictory
fields.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.protocols import OutputFormat, Sampling
from agent_kernel.core.turn_request import TurnRequest
from jupyter_ext.api.chat_completions.messages import ChatMessage, conversation
from jupyter_ext.api.dialects.openai_content import MAX_LINKS, MAX_MESSAGES, Links
from jupyter_ext.api.dialects.openai_functions import (
    MAX_TOOLS,
    Chosen,
    FewValues,
    Function,
    JsonSchemaFormat,
    ObjectFormat,
    TextFormat,
    ToolChoice,
    WebSearchOptions,
    Words,
    check_tool_choice,
    specs_of,
)
from jupyter_ext.api.dialects.request_extensions import (
    AgentFields,
    Decoding,
    ReasoningEffort,
    WantedFile,
    require_file_tools,
    text_or_list,
)
from jupyter_ext.turns.dialect_request import AGENT, DialectRequest

CONTINUE = "continue_final_message"
"""The field that demands that the last message is continued, and the name of this capability in the list of models. The
engine ``openai_api`` looks for it there."""
MAX_STOPS = 16
MAX_CHOICES = 8
MAX_SEED = 1 << 63
CODE_INTERPRETER = "code_interpreter"
GROUPS = {CODE_INTERPRETER: "python"}
"""Maps the type of a tool in a request to the group of server tools that it enables."""
NO_AUDIO = 'modalities must be ["text"]: this server has no audio output'


class FunctionTool(Words):
    type: Literal["function"]
    function: Function


class Container(Words):
    type: str
    file_ids: Any = None
    memory_limit: Any = None

    @model_validator(mode="after")
    def auto(self) -> Container:
        if self.type != "auto":
            raise ValueError('the container of code_interpreter must be {"type": "auto"}')
        if self.file_ids:
            raise ValueError("a container cannot have file_ids on this server: send files as parts of a user's message")
        if self.memory_limit is not None:
            raise ValueError(
                "a container cannot have a memory_limit: remove it; the server's setting sandbox_memory_mb applies"
            )
        return self


class CodeInterpreterTool(Words):
    type: Literal["code_interpreter"]
    container: Container


class OtherTool(Words):
    """A tool of OpenAI's API that this server offers in another way, or not at all. A request with such a tool is
    refused."""

    type: Literal[
        "web_search", "web_search_preview", "shell", "local_shell", "custom", "namespace", "mcp", "file_search"
    ]

    @model_validator(mode="after")
    def refuse(self) -> OtherTool:
        instead = {
            "web_search": "web_search_options",
            "web_search_preview": "web_search_options",
            "shell": "enable_shell",
            "local_shell": "enable_shell",
        }.get(self.type)
        raise ValueError(
            f"tools of type {self.type} are not available in chat/completions{f'; use {instead}' if instead else ''}"
        )


ChatTool = Annotated[FunctionTool | CodeInterpreterTool | OtherTool, Field(discriminator="type")]


class SchemaFormat(Words):
    type: Literal["json_schema"]
    json_schema: JsonSchemaFormat

    @property
    def output(self) -> OutputFormat | None:
        return self.json_schema.output


class StreamOptions(Words):
    include_usage: bool | None = None


Stop = Annotated[
    Annotated[str, Tag("[text]")] | Annotated[list[str], Field(max_length=MAX_STOPS), Tag("[list]")],
    Discriminator(text_or_list),
]


class SamplingFields(Decoding):
    """The fields that control how the model's answer is sampled.

    ``top_k``, ``min_p`` and ``repetition_penalty`` have the meaning that they have in vLLM and mistral.rs.
    """

    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=1 << 31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    seed: Annotated[int, Field(ge=-MAX_SEED, lt=MAX_SEED)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] | None = None
    stop: Stop | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    reasoning_effort: ReasoningEffort | None = None

    @property
    def sampling(self) -> Sampling:
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        greedy = self.top_p == 0
        return Sampling(
            temperature=self.temperature,
            top_p=None if greedy else self.top_p,
            top_k=1 if greedy else self.top_k if self.top_k and self.top_k > 0 else None,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            seed=self.seed,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            stop=tuple(stop for stop in stops if stop),
            logprobs=bool(self.logprobs),
            top_logprobs=self.top_logprobs or 0,
            reasoning_effort=self.reasoning_effort,
            **self.penalties,
        )


class ChatBody(SamplingFields, AgentFields):
    extensions = frozenset({"session_id", "enable_shell", "files"})

    model: Annotated[str, Field(max_length=2_000)] = "default"
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    tools: Annotated[Annotated[list[ChatTool], Field(max_length=MAX_TOOLS)] | None, FewValues] = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")] | None = None
    modalities: list[str] | None = None
    functions: Any = None
    web_search_options: WebSearchOptions | None = None
    session_id: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    enable_shell: bool | None = None
    files: Annotated[list[WantedFile], Field(max_length=100)] | None = None

    @model_validator(mode="after")
    def possible(self) -> ChatBody:
        """Check the fields against each other. Each error message begins with the name of its field."""
        if self.modalities and self.modalities != ["text"]:
            raise ValueError(NO_AUDIO)
        if self.functions:
            raise ValueError("functions were replaced by tools, and function_call by tool_choice")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        if sum(len(message.links) for message in self.messages) > MAX_LINKS:
            raise ValueError(f"messages can have at most {MAX_LINKS} media to fetch; send the others as data")
        self._form()
        self._choice()
        return self

    @property
    def streams(self) -> bool:
        return bool(self.stream)

    @property
    def is_extended(self) -> bool:
        return bool(self._hosted) or super().is_extended

    @property
    def include_usage(self) -> bool | None:
        return self.stream_options.include_usage if self.stream_options else None

    @property
    def links(self) -> list[str]:
        """Return the URLs of media that have to be fetched."""
        return list(dict.fromkeys(url for message in self.messages for url in message.links))

    def to_turn(self, links: Links, *, continues: bool = False) -> DialectRequest:
        """Return the request for a turn. ``links`` are the fetched media of ``self.links``. ``continues``: the last
        message may be the beginning of the answer, which a turn of this server does not continue. Raises Unprocessable,
        and ValueError for messages that contradict each other, such as a tool result without its call."""
        parsed = conversation(self.messages, links, alone=self.session_id is not None, continues=continues)
        choice = self._choice()
        request = DialectRequest(
            self.model,
            TurnRequest(
                messages=parsed.messages,
                permission=self.permission,
                sampling=self.sampling,
                max_tool_rounds=self.max_tool_rounds,
                tool_choice=choice.choice,
                parallel_calls=self.parallel_tool_calls is not False,
                output=self._form(),
                outputs=tuple(file.wanted for file in self.files or ()),
                web=self.web_search_options,
                functions=choice.of(specs_of(self._functions)),
            ),
            groups=self._groups(choice, files=bool(parsed.files)),
            session=self.session_id or "",
            files=parsed.files,
            streams=self.streams,
            only_groups=choice.allowed is not None,
        )
        return require_file_tools(request)

    def _form(self) -> OutputFormat | None:
        return self.form(self.response_format.output if self.response_format else None)

    @property
    def _functions(self) -> list[Function]:
        return [tool.function for tool in self.tools or () if isinstance(tool, FunctionTool)]

    @property
    def _hosted(self) -> set[str]:
        return {tool.type for tool in self.tools or () if tool.type in GROUPS}

    def _choice(self) -> Chosen:
        """Return the tool choice. Raises ValueError for a choice that is not among the tools."""
        specs = specs_of(self._functions)
        more = self.model.startswith(AGENT) or bool(self.max_tool_rounds) or self.enable_shell
        web = self.web_search_options is not None
        names = [spec.name for spec in specs]
        return check_tool_choice(self.tool_choice or Chosen(), names, self._hosted, more=bool(more or web))

    def _groups(self, choice: Chosen, *, files: bool) -> tuple[str, ...]:
        """Return the groups of server tools that the fields of the request enable. ``files``: the request has input
        files."""
        hosted = self._hosted if choice.hosted is None else choice.hosted
        groups = [GROUPS[kind] for kind in sorted(hosted)]
        if choice.allowed is None:
            groups += ["shell"] if self.enable_shell else []
            groups += ["web"] if self.web_search_options is not None else []
            groups += ["files"] if files else []
        return tuple(groups)


class ContinuableBody(ChatBody):
    """A request to a model alone. With ``continue_final_message``, a field of vLLM and SGLang, the last message is the
    beginning of the answer."""

    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None

    @property
    def continues(self) -> bool:
        return bool(self.continue_final_message)

    @model_validator(mode="after")
    def has_beginning(self) -> ContinuableBody:
        last = self.messages[-1]
        if self.continues and (last.role != "assistant" or last.tool_calls or not last.content):
            raise ValueError(f"{CONTINUE} needs a text of the assistant as the last message")
        if self.continues and self.add_generation_prompt:
            raise ValueError(f"add_generation_prompt cannot be true together with {CONTINUE}")
        return self


# Makes the requests of several choices from one request.


FURTHER_TEMPERATURE = 1.0
"""The temperature of the choices after the first one if the request has none: the default of OpenAI's API. Without it
a local model would always choose its likeliest token, and all choices would be the same."""


def choices_of(request: DialectRequest, n: int) -> list[DialectRequest]:
    """Return one request for each of ``n`` choices; the first one is ``request`` itself. Raises InvalidRequest if the
    turns of the choices would use the same session or tools of the server."""
    if n > 1 and (request.session or request.server_tools != ()):
        raise InvalidRequest(
            "n above 1 is not possible in a session, or with tools of the server: a conversation continues with one "
            "answer.",
            hint="Send n: 1, or a model name without agent/, no session_id, and no tools but functions of your own.",
            details={"param": "n"},
        )
    return [request, *(further_choice(request, index) for index in range(1, n))]


def further_choice(request: DialectRequest, index: int) -> DialectRequest:
    """Return the request for the choice ``index``, which is above 0. Its sample differs from those of the others, also
    with a seed."""
    sampling = request.request.sampling
    seed = None if sampling.seed is None else (sampling.seed + index + MAX_SEED) % (2 * MAX_SEED) - MAX_SEED
    temperature = FURTHER_TEMPERATURE if sampling.temperature is None else sampling.temperature
    sampling = replace(sampling, seed=seed, temperature=temperature)
    return replace(request, request=replace(request.request, sampling=sampling))
