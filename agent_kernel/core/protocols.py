"""Defines the interfaces that an engine and a tool must implement, and the values that engines, tools and sandboxes
exchange with their callers. Implementations do not inherit from these protocols.

A caller stops any operation by cancelling the task that awaits it. CancelledError is raised only after the operation
has ended. Errors are those of ``errors.py``. The interfaces of a sandbox and of the stores are in ``seams``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.events import Emit
from agent_kernel.core.files import ProducedFile
from agent_kernel.core.messages import Media, Message, Status, ToolCall, Usage
from agent_kernel.core.session import SessionKey

Where: TypeAlias = Literal["live", "draft", "sandbox", "server", "client", "caller"]
Encoding: TypeAlias = Literal["json", "npy", "arrow", "pickle"]
ToolOrigin: TypeAlias = Literal["built_in", "user", "mcp", "external"]
RESULT_CHARS = 6_000
"""Default maximum length of a tool result in the model's context, in characters."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """The description of a tool.

    ``kind`` (for example ``python.live``) is the value by which the permission gate decides. ``where`` names the place
    in which the calls run; people see it. Calls of a tool whose ``where`` is ``caller`` are not run here: they are
    returned and end the turn. ``source`` says who provides the tool: agent-kernel, the user's own function, an MCP
    server, or another program. ``label`` is the name that people see; empty means ``name``. ``editable`` names the
    argument that a person who is asked about a call may change before it runs; empty if there is none.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    kind: str
    where: Where = "server"
    shared_state: bool = True
    """Calls of one round that touch shared state run one after another; all others run in parallel."""
    source: ToolOrigin = "built_in"
    label: str = ""
    result_chars: int = RESULT_CHARS
    """Maximum characters of a result in the model's context. The middle of a longer result is replaced by a note."""
    fetches: bool = False
    """Whether results may contain text from unknown people although ``kind`` does not say so, as for code with network
    access."""
    editable: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """The value of ``parameters``, with plain dicts and lists at every level, because libraries and wire formats
        accept no other types."""
        return {name: _to_plain(value) for name, value in self.parameters.items()}

    def to_json(self) -> dict[str, Any]:
        """Return the description that the model reads, in the form of OpenAI's chat API."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_plain(inner) for key, inner in value.items()}
    return [_to_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters; None means the default of the model.

    ``temperature`` 0 is greedy. ``logprobs`` requests the log probability of each token, and ``top_logprobs`` is the
    number of likeliest tokens to report at each position, if the engine provides them. ``logit_bias`` are pairs (token
    id, number added to its logit). ``reasoning_effort`` ``none`` turns reasoning off; other levels are defined by the
    engine. An engine that does not support a field from ``logprobs`` on raises InvalidRequest and names the field.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    reasoning_effort: str | None = None


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The required form of a text answer.

    ``json_object`` needs no other field; every other kind uses the field of its name. ``grammar`` is written in the
    notation of the engine. ``name`` is the client's name for the schema.
    """

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar"]
    json_schema: Mapping[str, Any] = field(default_factory=dict)
    regex: str = ""
    choice: tuple[str, ...] = ()
    name: str = ""
    grammar: str = ""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One model call.

    ``session`` is only a hint for caches and fairness. Without ``tools`` the answer is text. ``tool_choice`` is auto,
    none, required, or the name of one of ``tools``. ``output`` constrains text answers, not calls. With ``continues``,
    the last message is the beginning of a text answer: the model continues it, and the chunks contain only the rest.
    ``Engine.stream`` raises InvalidRequest if the fields contradict each other.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    session: str = ""
    tool_choice: str = "auto"
    parallel_calls: bool = True
    output: OutputFormat | None = None
    continues: bool = False

    @property
    def beginning(self) -> str:
        """The text that the answer continues; empty if the request does not continue one."""
        return self.messages[-1].text if self.continues else ""

    def required_tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of which the model must call one; empty if it may answer in text. Raises InvalidRequest if
        ``tool_choice`` and ``tools`` contradict each other."""
        if self.tool_choice in ("auto", "none"):
            return ()
        if not self.tools:
            raise InvalidRequest(f"tool_choice is {self.tool_choice!r}, but the request has no tools.")
        if self.tool_choice == "required":
            return self.tools
        chosen = tuple(tool for tool in self.tools if tool.name == self.tool_choice)
        if not chosen:
            names = ", ".join(tool.name for tool in self.tools)
            raise InvalidRequest(f"tool_choice names the tool {self.tool_choice!r}, but the request has only {names}.")
        return chosen


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its natural log probability as the model predicted it, before any grammar was applied."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens at this position as (text, logprob), as many as were requested and the engine reports."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class CallChunk:
    """A complete tool call. Engines assemble it from the parts that they receive."""

    call: ToolCall


THINKING = "thinking"
"""The stage of a WaitChunk after a wait: the model works on the request. A turn shows the last stage until there is
output, and the first output of a small machine can take minutes."""


@dataclass(frozen=True, slots=True)
class WaitChunk:
    """Reports that there is no output yet: the model is loading (``fraction`` 0 to 1, or None), or the request waits at
    ``position`` >= 1."""

    stage: str
    fraction: float | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class EndChunk:
    """The last chunk of a stream.

    ``reason`` is stop, length, calls or cancelled. ``stopped`` is the entry of ``Sampling.stop`` that ended the text,
    where the engine reports it. If ``usage`` is the sum of several requests to the model, ``context`` is the number of
    tokens of the largest of them with its answer; otherwise it is 0.
    """

    reason: str
    usage: Usage
    stopped: str = ""
    context: int = 0

    @property
    def context_tokens(self) -> int:
        """The tokens of the model's context that the request and its answer filled."""
        return self.context or self.usage.prompt_tokens + self.usage.completion_tokens


Chunk: TypeAlias = TextChunk | ReasoningChunk | CallChunk | WaitChunk | EndChunk


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """State and properties of an engine.

    ``context_length`` is in tokens, 0 if unknown. ``state`` is unloaded, loading, ready or failed. ``host`` is the
    machine that receives the conversation if the engine is not ``local``. If ``batches`` is true, the engine decodes
    requests together that arrive together and begin with the same messages, which costs a fraction of decoding them one
    after another. ``continues`` says whether the engine accepts requests with ``EngineRequest.continues``.
    """

    model: str
    local: bool
    context_length: int
    vision: bool
    state: str
    details: Mapping[str, Any] = field(default_factory=dict)
    host: str = ""
    batches: bool = False
    continues: bool = False


class Engine(Protocol):
    """The interface of an engine: a model on this machine or behind an API."""

    def info(self) -> EngineInfo:
        """Describe the model: its name, context length, what it can read, and its state. Does not block."""

    def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        """Stream one model call. The stream contains exactly one EndChunk, as its last chunk. Closing the iterator
        cancels the decode. Raises EngineError."""

    async def aclose(self) -> None:
        """Release the model and everything that belongs to it."""


class PathPermissions(Protocol):
    """Paths outside the work directory that a person has allowed for the sandboxed code of a session."""

    async def find_allowed(self) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """Return (paths that may be read, paths that may be written) of the session. Only paths that exist are
        included."""

    async def ask(self, path: Path, *, write: bool = False) -> Path | None:
        """Ask a person whether code may open ``path``, to which the sandbox has denied access. ``write`` asks for
        access to write. Returns the path or folder that the next run may open, or None if the person refused."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The turn and the call for which a tool runs.

    ``emit`` announces progress (CallOutput). ``ordinal`` is the number of the turn in its session, from 0. ``foreign``
    names the source of text from unknown people, such as a web page, that entered this turn before the call; empty if
    there is none. ``edited`` is true if a person changed the call before they approved it."""

    key: SessionKey
    turn: str
    round: int
    call: ToolCall
    emit: Emit
    ordinal: int = 0
    foreign: str = ""
    paths: PathPermissions | None = None
    edited: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The result of a call.

    ``text`` is for the model. ``shown`` means that the client that ran the call has already displayed the media.
    ``files`` are stored with the session and listed to the model; ``keep_s`` bounds how many seconds copying them may
    take. ``details`` are data for programs as JSON, such as an exit code or sources. ``foreign`` is true if the text
    was written by unknown people, for tools whose ``kind`` does not show it.
    """

    text: str
    status: Status = "success"
    media: tuple[Media, ...] = ()
    shown: bool = False
    files: tuple[ProducedFile, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    keep_s: float = 60.0
    foreign: bool = False


class Tool(Protocol):
    """The interface of a tool, which the model can call."""

    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run the call. It may raise any exception; the toolbox converts the exception to a result that the model can
        read."""


@runtime_checkable
class CallPreparer(Protocol):
    """A tool that changes a call before it runs, for example by replacing a cell's id with the code of the cell."""

    async def prepare(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """Return the call as it will run. A person who must approve the call is shown this form. Raises
        AgentKernelError if the call cannot run."""


@runtime_checkable
class CallReviser(Protocol):
    """A tool that computes some arguments of a call from the argument that a person may change."""

    def revise(self, call: ToolCall) -> ToolCall:
        """Return the call with its other arguments computed again from the argument that the user changed before
        approving it. Raises AgentKernelError if the call cannot run."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A copy of a variable, sent between the user's kernel and the sandbox.

    Pickle is used only for variables that are sent to the sandbox, because reading a pickle can run code that its
    writer chose.
    """

    name: str
    encoding: Encoding
    data: bytes = field(repr=False)
    type: str = ""


@dataclass(frozen=True, slots=True)
class VariableInfo:
    """A variable that exists in the sandbox, without its value.

    ``shape`` is the shape of an array or a table, or the length of a text or a collection; empty for other values.
    """

    name: str
    type: str
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """One run in a sandbox.

    ``python`` runs in the session's persistent namespace; ``shell`` is one ``sh`` script whose only state is files.
    ``given`` are variables to set first, at most 64 MiB in total; if one cannot be read, the result is an error and the
    code does not run. After ``timeout_s`` seconds of wall clock time the code is interrupted, and killed 3 s later; its
    output is kept. ``cpu_s`` limits the processor time of this run (0 uses the limit of the policy, which is also the
    maximum).
    """

    code: str
    kind: Literal["python", "shell"] = "python"
    timeout_s: float = 60.0
    cpu_s: float = 0.0
    given: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of one sandbox run.

    ``value`` is the repr of the last expression. ``media`` are images, and tables and charts as JSON. ``status`` is
    success, error, timeout or interrupted. ``lost`` says why the variables of the session no longer exist; it is set
    only in the first result after a restart. ``exit_code`` is the exit code of a shell script. ``less`` names the
    sandbox layers that were requested but are not active, and ``interpreter`` the interpreter and its owner. ``denied``
    is a path outside the sandbox that the code could not open, and that a person may allow.
    """

    status: Status
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    error: str | None = None
    media: tuple[Media, ...] = ()
    seconds: float = 0.0
    lost: str = ""
    exit_code: int | None = None
    less: str = ""
    interpreter: str = ""
    denied: str = ""
