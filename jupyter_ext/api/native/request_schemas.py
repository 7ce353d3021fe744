"""Defines the bodies of requests and their limits. A body that does not fit is answered with a readable validation
error."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import RequestedFile
from agent_kernel.core.messages import Media, Message, is_visible_media
from agent_kernel.core.protocols import OutputFormat, Sampling, ToolOutput, ToolSpec, Variable
from agent_kernel.core.session import MAX_ID, SessionUpdate, check_id
from agent_kernel.core.settings import Effort, Permission
from agent_kernel.core.wire.turn_end import STOPPED_BY_USER
from agent_kernel.turn.agent import Note, TurnRequest
from agent_kernel.turn.custom_instructions import MAX_CHARS
from jupyter_ext.api.dialects.openai_content import MAX_MESSAGES
from jupyter_ext.api.dialects.openai_functions import JsonSchema, WebSearchOptions
from jupyter_ext.api.dialects.request_extensions import Bias, Penalty, ReasoningEffort
from jupyter_ext.api.native.request_messages import Base64, MessageBody, read_messages
from jupyter_ext.api.schemas.operation import ID_PATTERN
from jupyter_ext.turns.turn_starter import TurnDescription

Letters = Field(min_length=1, max_length=MAX_ID, json_schema_extra={"pattern": ID_PATTERN})
Id = Annotated[str, Letters, AfterValidator(lambda given: check_id(given, "given id"))]
SessionId = Annotated[str, Letters, AfterValidator(check_id)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


MAX_DETAILS_BYTES = 8 << 20
"""Limit in bytes on the details of one call result, as JSON in ASCII."""
MAX_PICTURES = 16
MAX_NOTES = 1_000
MAX_CELL = 4_096
"""Maximum number of characters of the id of a cell. Some editors use an address with the path of the notebook."""
MAX_STOP = 1_000
"""Maximum number of characters of a stop sequence."""
MAX_PICTURES_BYTES = 20 << 20
"""Limit in bytes on all media of a turn; their base64 text then fits into the largest body."""


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class NoteBody(Body):
    title: str = ""
    text: str


class SamplingBody(Body):
    temperature: Annotated[float, Field(ge=0, le=10)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    seed: int | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Annotated[list[Annotated[str, Field(max_length=MAX_STOP)]], Field(max_length=16)] = []
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 0
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Bias = {}
    reasoning_effort: ReasoningEffort | None = None

    def sampling(self) -> Sampling:
        plain = self.model_dump(exclude={"stop", "logit_bias"})
        return Sampling(**plain, stop=tuple(self.stop), logit_bias=tuple(self.logit_bias.items()))


class FormatBody(Body):
    """The form of an answer. ``choice`` and ``regex`` describe the whole answer; ``grammar`` uses the notation of the
    engine that receives it."""

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar"]
    json_schema: JsonSchema = {}
    regex: Annotated[str, Field(max_length=10_000)] = ""
    choice: Annotated[list[str], Field(max_length=1_000)] = []
    grammar: Annotated[str, Field(max_length=100_000)] = ""
    name: Annotated[str, Field(max_length=200)] = ""

    def output(self) -> OutputFormat:
        return OutputFormat(self.kind, self.json_schema, self.regex, tuple(self.choice), self.name, self.grammar)


class MediumBody(Body):
    mime: Name
    data: Base64


class WantedBody(Body):
    """A file that the turn must produce, by its name in the work directory."""

    name: Name
    format: Annotated[str, Field(max_length=40)] = ""
    description: Annotated[str, Field(max_length=1_000)] = ""


class VariableBody(Body):
    """A copy of a variable that is set in the sandbox."""

    name: Annotated[str, Field(pattern=r"^[^\W\d]\w*$", max_length=200)]
    encoding: Literal["json", "npy", "arrow", "pickle"]
    data: Base64
    type: Annotated[str, Field(max_length=200)] = ""


class FunctionBody(Body):
    """A tool that the client declares. It is either one of the ``client_tools``, which the client runs itself, or a
    tool that another program runs.

    ``effects``: a call changes something, so the user is asked before the client runs it. ``parallel``: the tool shares
    no state with other tools, so its calls may run at the same time as other calls of the same round.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: Annotated[str, Field(max_length=10_000)] = ""
    parameters: JsonSchema = {"type": "object", "properties": {}}
    effects: bool = True
    parallel: bool = False

    def spec(self, *, by_client: bool = False) -> ToolSpec:
        if not by_client:
            return ToolSpec(self.name, self.description, self.parameters, kind="dispatch", source="external")
        return ToolSpec(
            self.name,
            self.description,
            self.parameters,
            kind="function.effects" if self.effects else "function",
            where="client",
            shared_state=not self.parallel,
            source="user",
        )


class ToolsBody(Body):
    """The part of a turn's body that decides which tools may be called in the turn."""

    kernel: Annotated[str, Field(max_length=MAX_ID)] = ""
    where: Literal["live", "draft", "sandbox"] | None = None
    permission: Permission = "auto"
    client_tools: Annotated[list[Name], Field(max_length=100)] = []
    tools: Annotated[list[Name], Field(max_length=200)] | None = None
    skills: Annotated[list[Name], Field(max_length=20)] = []
    web: WebSearchOptions | None = None
    functions: Annotated[list[FunctionBody], Field(max_length=100)] = []

    def request(self) -> TurnRequest:
        return TurnBody(prompt="?", **{name: getattr(self, name) for name in type(self).model_fields}).request()


class TurnBody(ToolsBody):
    """The body that starts a turn.

    ``rerun`` says what happens if the ``cell`` already has a turn on the current branch: append another turn, ask again
    on a branch that ends before the old one, or show the stored answer if it is still valid and ask again otherwise.
    ``alive`` are the turns that ran code in the kernel and whose variables still exist. ``replaces`` is the turn of the
    current branch that this turn replaces, on a branch that ends before it; without a prompt, the question of that turn
    is asked again.

    ``tools`` restricts what the server offers; ``client_tools`` are the tools that the client can run itself.
    ``inputs`` are ids of files, ``outputs`` the files that the turn must produce, ``given`` copies of variables for the
    sandbox.

    ``messages`` is the client's conversation, system messages first if there are any; the prompt follows it, or is its
    last message. ``history``, ``history_limit``, ``page``, ``ran``, ``effort`` and ``instructions`` have the same
    meaning as in TurnRequest.
    """

    prompt: str = ""
    messages: Annotated[list[MessageBody], Field(max_length=MAX_MESSAGES)] = []
    history: Literal["auto", "append", "replay"] = "auto"
    history_limit: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    media: Annotated[list[MediumBody], Field(max_length=MAX_PICTURES)] = []
    session: SessionId | None = None
    effort: Effort | Literal[""] = ""
    instructions: Annotated[str, Field(max_length=MAX_CHARS)] = ""
    context: Annotated[list[NoteBody], Field(max_length=MAX_NOTES)] = []
    cell: Annotated[str, Field(max_length=MAX_CELL)] = ""
    rerun: Literal["append", "ask", "show"] = "append"
    replaces: Id | None = None
    alive: Annotated[list[Id], Field(max_length=1_000)] = []
    answers: Annotated[list[Name], Field(max_length=1_000)] = []
    remembered: bool = True
    denied: Annotated[list[Name], Field(max_length=200)] = []
    page: Annotated[str, Field(max_length=500)] = ""
    ran: Annotated[list[Id], Field(max_length=1_000)] = []
    inputs: Annotated[list[Id], Field(max_length=100)] = []
    outputs: Annotated[list[WantedBody], Field(max_length=100)] = []
    given: Annotated[list[VariableBody], Field(max_length=100)] = []
    sampling: SamplingBody = SamplingBody()
    max_tool_rounds: Annotated[int, Field(ge=0)] | None = None
    tool_choice: Name = "auto"
    parallel_calls: bool = True
    output: FormatBody | None = None
    queue: bool = True
    model: Annotated[str, Field(max_length=2_000)] | None = None

    @field_validator("media")
    @classmethod
    def check_visible(cls, media: list[MediumBody]) -> list[MediumBody]:
        if unseen := [medium.mime for medium in media if not is_visible_media(medium.mime)]:
            raise ValueError(f"models do not accept {unseen[0]}; send images (PNG, JPEG, GIF, WebP) or videos")
        if sum(len(medium.data) for medium in media) > MAX_PICTURES_BYTES:
            raise ValueError(f"a turn can have at most {MAX_PICTURES_BYTES >> 20} MiB of media together")
        return media

    _carried: tuple[Message, ...] = PrivateAttr(())

    @model_validator(mode="after")
    def says_something(self) -> TurnBody:
        chars = len(self.prompt) + sum(len(note.title) + len(note.text) for note in self.context)
        media_left = MAX_PICTURES_BYTES - sum(len(medium.data) for medium in self.media)
        self._carried = read_messages(self.messages, media_left, chars)
        silent = not self._carried or self._carried[-1].role not in ("user", "tool")
        if not self.prompt and silent and not self.replaces:
            raise ValueError("send a prompt, or messages that end with a message of the user or with tool results")
        return self

    def with_session(self, session: str) -> TurnBody:
        """Return the body with the session that the path names. Raises InvalidRequest if the body names another one."""
        if self.session not in (None, session):
            raise InvalidRequest("The path and the body must not name different sessions.")
        return self.model_copy(update={"session": check_id(session)})

    def description(self) -> TurnDescription:
        return TurnDescription(
            self.request(),
            model=self.model,
            session=self.session,
            kernel=self.kernel,
            queue=self.queue,
            rerun=self.rerun,
            alive=tuple(self.alive),
            replaces=self.replaces or "",
            metadata={"client_tools": sorted(self.client_tools)},
        )

    def request(self) -> TurnRequest:
        """Return the request for the turn, without an engine and without the epoch of the kernel."""
        return TurnRequest(
            self.prompt,
            media=tuple(Media.of(medium.mime, medium.data) for medium in self.media),
            notes=tuple(Note(note.title, note.text) for note in self.context),
            where=self.where or ("live" if "python" in self.client_tools else "sandbox"),
            cell=self.cell,
            permission=self.permission,
            effort=self.effort,
            instructions=self.instructions,
            answers=frozenset(self.answers),
            remembered=self.remembered,
            denied=frozenset(self.denied),
            page=self.page,
            ran=tuple(self.ran),
            sampling=self.sampling.sampling(),
            max_tool_rounds=self.max_tool_rounds,
            tool_choice=self.tool_choice,
            parallel_calls=self.parallel_calls,
            output=self.output.output() if self.output else None,
            messages=self._carried,
            history=self.history,
            history_limit=self.history_limit,
            tools=None if self.tools is None else tuple(self.tools),
            client_tools=frozenset(self.client_tools),
            inputs=tuple(self.inputs),
            outputs=tuple(RequestedFile(output.name, output.format, output.description) for output in self.outputs),
            given=tuple(Variable(given.name, given.encoding, given.data, given.type) for given in self.given),
            skills=tuple(self.skills),
            web=self.web,
            functions=tuple(function.spec(by_client=function.name in self.client_tools) for function in self.functions),
        )


class CancelBody(Body):
    reason: Annotated[str, Field(max_length=500)] = STOPPED_BY_USER


class ClaimBody(Body):
    """Claims a call for this client. ``declined`` is the reason why this client cannot run the call, so that other
    clients are asked at once; empty: the client claims it."""

    call: Id
    client: Name
    declined: Annotated[str, Field(max_length=500)] = ""


class RenewBody(Body):
    """Renews a claim. ``where`` says where the call runs, if that has changed. ``state`` says whether the call waits
    for the user."""

    action: Literal["renew"]
    token: str
    where: Literal["", "live", "draft"] = ""
    state: Literal["running", "waiting"] = "running"


class OutputBody(Body):
    action: Literal["output"]
    token: str
    stream: Literal["stdout", "stderr"] = "stdout"
    text: str


class FinishBody(Body):
    action: Literal["finish"]
    token: str
    status: Literal["success", "error", "denied", "timeout", "interrupted"]
    text: str
    media: list[MediumBody] = []
    shown: bool = False
    details: dict[str, Any] = {}
    """Facts for the tool, such as cells of the open document."""

    @field_validator("details")
    @classmethod
    def small(cls, details: dict[str, Any]) -> dict[str, Any]:
        if len(json.dumps(details)) > MAX_DETAILS_BYTES:
            raise ValueError(f"the details of a call can have at most {MAX_DETAILS_BYTES >> 20} MiB")
        return details

    def output(self) -> ToolOutput:
        media = tuple(Media.of(medium.mime, medium.data) for medium in self.media)
        return ToolOutput(self.text, self.status, media, self.shown, details=self.details)


class ClaimActionBody(Body):
    action: Literal["renew", "output", "finish"]
    model_config = ConfigDict(extra="ignore", defer_build=True)


CLAIM_ACTIONS: dict[str, type[RenewBody | OutputBody | FinishBody]] = {
    "renew": RenewBody,
    "output": OutputBody,
    "finish": FinishBody,
}


class SessionBody(Body):
    id: SessionId | None = None
    title: Annotated[str, Field(max_length=500)] = ""
    bind: bool = True
    private: bool | None = None


class DescribeBody(Body):
    """The fields of a session to change; at least one is required."""

    title: Annotated[str, Field(max_length=500)] | None = None
    tags: Annotated[list[Name], Field(max_length=100)] | None = None
    metadata: dict[str, Any] | None = None
    context: Any = None

    @model_validator(mode="after")
    def some(self) -> DescribeBody:
        if not self.model_fields_set:
            raise ValueError("send at least one field to change: title, tags, metadata or context")
        return self

    def to_update(self) -> SessionUpdate:
        return SessionUpdate(self.title, None if self.tags is None else tuple(self.tags), self.metadata, self.context)


class BindingBody(Body):
    session: SessionId


class EngineBody(Body):
    """The engine to use. ``model`` is the name of an engine or a model, or a URL; empty: the default of the server."""

    model: Annotated[str, Field(max_length=2_000)]
    session: SessionId | None = None


class InfillBody(Body):
    """The code around the cursor; ``context`` is the code of earlier cells. The text nearest to the cursor is used."""

    prefix: Annotated[str, Field(max_length=20_000)]
    suffix: Annotated[str, Field(max_length=20_000)] = ""
    context: Annotated[str, Field(max_length=20_000)] = ""


class PullBody(Body):
    consent: Literal[True]


class EmptyBody(Body):
    """The body of requests that need no fields."""
