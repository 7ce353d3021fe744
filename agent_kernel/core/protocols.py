"""The seams: what an engine, a tool and a sandbox must do (a session store: ``sessions/store.py``). Nothing inherits.

Cancelling the awaiting task is how anything here is stopped; every method leaves a known outcome behind when that
happens. Errors are those of ``errors.py``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.events import Emit
from agent_kernel.core.files import ProducedFile, StoredFile
from agent_kernel.core.messages import Media, Message, Status, ToolCall, Usage
from agent_kernel.core.session import SessionKey

Where: TypeAlias = Literal["live", "draft", "sandbox", "server", "client", "caller"]
ToolOrigin: TypeAlias = Literal["built_in", "user", "mcp", "external"]
RESULT_CHARS = 6_000
"""Of a tool that does not say otherwise."""

# ---------------------------------------------------------------------------------------------------- engine


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """``kind`` is what the permission gate decides by (for example ``python.live``); ``where`` is shown to people. What
    runs at the ``caller`` is not run here: such calls are returned, and end the turn.
    ``source`` says whose it is: ours, the person's own function, an MCP server's, or another program's. ``label`` is
    what people call it (the name where it is empty)."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    kind: str
    where: Where = "server"
    shared_state: bool = True
    """Calls of a round that touch shared state run one after the other; the others in parallel."""
    source: ToolOrigin = "built_in"
    label: str = ""
    result_chars: int = RESULT_CHARS
    """What a result may put into the model's context; the middle of a longer one is left out and said to be."""
    fetches: bool = False
    """Its results may hold text of strangers although its kind does not say so: code with a network, and its files."""

    @property
    def schema(self) -> dict[str, Any]:
        """``parameters`` as plain objects and lists all the way down: wires and libraries take nothing else."""
        plain: dict[str, Any] = _to_plain(self.parameters)
        return plain


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_plain(inner) for key, inner in value.items()}
    return [_to_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Sampling:
    """None means the model's own default. ``temperature`` 0 is greedy. With ``logprobs`` text comes with the log
    probability of each token where the engine has them, and with the ``top_logprobs`` likeliest tokens in its place.
    ``logit_bias`` are (token id of the model, number added to its logit). ``reasoning_effort`` ``none``: the model does
    not think first; the other levels are words of the engine. An engine that can not do what one of the last six fields
    asks for raises InvalidRequest that names the field."""

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
    """What a text answer must look like. ``json_object`` needs nothing else; the other kinds use the field of their
    name. ``grammar`` is in the notation of the engine that takes it. ``name`` is what a client calls the schema."""

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar"]
    json_schema: Mapping[str, Any] = field(default_factory=dict)
    regex: str = ""
    choice: tuple[str, ...] = ()
    name: str = ""
    grammar: str = ""


def refuse_fields(names: Sequence[str], who: str, hint: str = "") -> None:
    """Raises InvalidRequest when there are ``names``: fields of a request that ``who`` can not do anything with."""
    if names:
        raise InvalidRequest(
            f"{', '.join(names)}: {who} can not do that.", hint=hint, details={"param": names[0], "refused": [*names]}
        )


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One model call. ``session`` is a hint for caches and fairness only. Empty ``tools``: the answer is text.

    ``tool_choice`` is auto, none, required or the name of one of ``tools``. ``output`` binds answers in text, not
    calls. Raises InvalidRequest from ``stream`` when they contradict each other.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    sampling: Sampling = Sampling()
    session: str = ""
    tool_choice: str = "auto"
    parallel_calls: bool = True
    output: OutputFormat | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """``logprob`` is natural, of the token as the model saw it before any grammar."""

    text: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens in its place, (text, logprob), as many as were asked for and the engine tells."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class CallChunk:
    """A complete tool call; engines assemble partial ones."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class WaitChunk:
    """Nothing yet: the model is loading (``fraction`` 0..1 or None), or the request is queued at ``position`` >= 1."""

    stage: str
    fraction: float | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class EndChunk:
    """The last chunk. ``reason``: stop, length, calls or cancelled. ``stopped`` is the one of ``Sampling.stop`` that
    the text ended before, where the engine knows it."""

    reason: str
    usage: Usage
    stopped: str = ""


Chunk: TypeAlias = TextChunk | ReasoningChunk | CallChunk | WaitChunk | EndChunk


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """``context_length`` in tokens, 0 = unknown. ``state``: unloaded, loading, ready or failed. ``host`` is where the
    conversation goes when the engine is not ``local``."""

    model: str
    local: bool
    context_length: int
    vision: bool
    state: str
    details: Mapping[str, Any] = field(default_factory=dict)
    host: str = ""


class Engine(Protocol):
    def info(self) -> EngineInfo: ...

    def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        """Ends with exactly one EndChunk. Closing the iterator cancels the decode. Raises EngineError."""
        ...

    async def aclose(self) -> None: ...


# ---------------------------------------------------------------------------------------------------- tools


class PathPermissions(Protocol):
    """What sandboxed code of a session may open beside its work directory because a person said so."""

    async def allowed(self) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """For the rest of the session: (to read, to write), as they are on the disk now."""
        ...

    async def ask(self, path: Path, *, write: bool = False) -> Path | None:
        """Asks for one path that code named and could not open. What the next run may open: the path itself, its
        folder, or nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the turn it runs in. ``emit`` announces progress (CallOutput). ``ordinal`` is the turn's
    number in its session, from 0. ``foreign`` names what brought words of strangers into this turn before the call."""

    key: SessionKey
    turn: str
    round: int
    call: ToolCall
    emit: Emit
    ordinal: int = 0
    foreign: str = ""
    paths: PathPermissions | None = None


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """``text`` is for the model. ``shown`` media were already displayed by the client that ran the call. ``files`` are
    kept with the session and named to the model; ``details`` are facts for programs (JSON): an exit code, sources.
    ``keep_s`` bounds how long copying the files may take. ``foreign`` says that the text holds words of strangers,
    where only the result shows it."""

    text: str
    status: Status = "success"
    media: tuple[Media, ...] = ()
    shown: bool = False
    files: tuple[ProducedFile, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    keep_s: float = 60.0
    foreign: bool = False


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """May raise anything: the toolbox turns it into a result the model can read."""
        ...


@runtime_checkable
class CallPreparer(Protocol):
    """A tool whose calls stand for something else: a cell's id for its code."""

    async def prepared(self, call: ToolCall, context: ToolContext) -> ToolCall:
        """The call as it will run, so that a person is asked about that. Raises AgentKernelError: it can not run."""
        ...


class FileKeeper(Protocol):
    async def keep(
        self, files: Sequence[ProducedFile], context: ToolContext, *, within_s: float = 60.0
    ) -> list[StoredFile]:
        """Keeps what a call produced with its session, in order; what can not be kept (too large, quota, gone, not
        within ``within_s`` seconds) is kept as a file with an error. Raises StoreError."""
        ...


# ---------------------------------------------------------------------------------------------------- sandbox


Encoding: TypeAlias = Literal["json", "npy", "arrow", "pickle"]


@dataclass(frozen=True, slots=True)
class Variable:
    """A copy of a variable on its way between the person's kernel and the sandbox. Pickle goes into the sandbox only:
    to read one is to run what its writer chose."""

    name: str
    encoding: Encoding
    data: bytes = field(repr=False)
    type: str = ""


@dataclass(frozen=True, slots=True)
class VariableInfo:
    """A variable that sandboxed code holds, without its value. ``shape`` is that of an array or a table, or the length
    of a text or a collection; empty where there is none."""

    name: str
    type: str
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """One run in a sandbox. ``python`` runs in the session's persistent namespace; ``shell`` is one ``sh`` script with
    no state but files. ``given`` are variables to set first, 64 MiB together; one that can not be read is an error, and
    the code does not run. ``timeout_s`` of wall clock: then interrupt, 3 s, kill; output is kept. ``cpu_s`` of
    processor time in this run (0 = the policy's; never more)."""

    code: str
    kind: Literal["python", "shell"] = "python"
    timeout_s: float = 60.0
    cpu_s: float = 0.0
    given: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """``value`` is the repr of the last expression. ``media`` are pictures, and tables and charts as JSON (their MIME
    types: ``sandbox/frames.py``). ``status``: success, error, timeout or interrupted. ``lost`` says why the variables
    of this session are gone, once, after a restart. ``exit_code`` is a shell's. ``less`` says which
    layers of the sandbox were asked for and not in force, ``interpreter`` which one ran it and whose that is.
    ``denied`` is a path outside that the code failed to open, by its own word, and that a person may allow."""

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


class Sandbox(Protocol):
    async def run(
        self,
        session: SessionKey,
        work: Work | str,
        *,
        on_output: Callable[[str, str], None] = lambda stream, text: None,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
    ) -> RunResult:
        """A string is python code with the usual limits. ``on_output(stream, text)`` while it runs. ``read`` and
        ``write`` are directories and files that the session may use beside its work directory; when they change, its
        process starts again. Cancelling interrupts. Raises SandboxUnavailable."""
        ...

    async def reset(self, session: SessionKey) -> None:
        """Forgets the session's variables; files stay."""
        ...

    async def take(self, session: SessionKey, name: str) -> Variable:
        """A copy of a variable of the session: json, npy or arrow, at most 64 MiB; never pickle. Waits for a run that
        is going on. Raises NotFound, and InvalidRequest for a value that can not be copied."""
        ...

    async def variables(self, session: SessionKey) -> Sequence[VariableInfo]:
        """What the session's code holds now, by name; nothing when no python runs for it."""
        ...

    def lost(self, session: SessionKey) -> str:
        """Why the variables of the session are gone, while nothing has run since; empty if they are there."""
        ...

    def workdir(self, session: SessionKey) -> Path:
        """Where the session's code writes; it may not exist yet."""
        ...

    async def report(self) -> Mapping[str, Any]:
        """Which layers are in force here: name -> {required, active, detail}."""
        ...

    async def close(self, session: SessionKey, *, remove: bool = False) -> None:
        """Ends what runs for the session; with ``remove`` its work directory goes too."""
        ...

    async def aclose(self) -> None: ...
