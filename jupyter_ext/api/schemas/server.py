"""Response bodies of the routes of models, notebooks, trust and the server."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from agent_kernel.sessions.export.import_export import ImportPreview
from jupyter_ext.api.schemas.files import AnthropicPage
from jupyter_ext.api.schemas.sessions import BoundSession, Session


class Engine(TypedDict):
    """An engine. ``context_length`` is 0 if unknown. If the engine is not local, ``host`` is the server that receives
    the conversations."""

    model: str
    local: bool
    host: str
    context_length: int
    vision: bool
    state: str
    details: dict[str, Any]


class CurrentEngine(Engine):
    """The engine of a session. ``problem`` says why the engine cannot be used; empty if it can."""

    name: str
    problem: str


class NamedEngine(TypedDict):
    name: str
    model: str
    local: bool
    host: str
    refused: bool


class ModelSource(TypedDict):
    kind: str
    label: str
    publisher: str
    vouched: bool
    why: str
    sha256: str
    download_bytes: int


class Model(TypedDict):
    """A model of the catalog. ``state`` is ready, missing, or broken with the reason."""

    name: str
    title: str
    licence: str
    licence_from: NotRequired[str]
    publisher: str
    source: str
    download_bytes: NotRequired[int]
    disk_bytes: NotRequired[int]
    sources: NotRequired[list[ModelSource]]
    description: NotRequired[str]
    state: str


class ModelServer(TypedDict):
    """A model server that the user added. ``key`` says where its key is stored; empty: it has none."""

    name: str
    url: str
    model: str
    local: bool
    host: str
    key: Literal["", "keyring", "file"]


class Removed(TypedDict):
    removed: bool


class ModelServers(TypedDict):
    servers: list[ModelServer]


class ProbeFinding(TypedDict):
    feature: str
    state: Literal["ok", "lacks", "unsure"]
    detail: str


class ProbeReport(TypedDict):
    """The result of testing a model server. ``models`` are those that the server lists; ``problem`` says why it lists
    none. ``missing`` are the features that an agent needs and the model lacks. Nothing is tested if no model was named
    and the server has several; then ``findings`` and ``missing`` are empty.
    """

    model: str
    local: bool
    host: str
    context_length: int
    models: list[str]
    problem: str
    findings: list[ProbeFinding]
    missing: list[str]


class ServerGpu(TypedDict):
    name: str
    memory_bytes: int


class ServerMachine(TypedDict):
    """The memory and processors of the server's machine. A field is null if the system does not report it."""

    memory_bytes: int | None
    available_bytes: int | None
    cores: int
    gpus: list[ServerGpu]


class SuitableModel(TypedDict):
    """A model of the catalog, and whether it fits the machine. ``memory_bytes`` is the most memory that the model
    takes. ``speed_basis`` says where the speed comes from: measured on this machine, scaled from another model that was
    measured here, or unknown.
    """

    name: str
    memory_bytes: int
    fits: bool | None
    fit_reason: str
    tokens_per_s: float | None
    speed_basis: Literal["measured", "scaled", "unknown"]
    speed_note: str


class Recommendation(TypedDict):
    machine: ServerMachine
    recommended: str | None
    models: list[SuitableModel]


class ListedModel(TypedDict):
    """A model in OpenAI's format, with fields of mistral.rs and of agent-kernel. A value that is not known yet is
    null."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    title: str
    status: str
    local: bool
    host: str
    context_length: int | None
    capabilities: dict[str, bool | None]
    tools_available: bool
    mcp_tools_count: int
    mcp_servers_connected: int


class AnthropicModel(TypedDict):
    """A model in Anthropic's format, for requests with the header ``anthropic-version``."""

    id: str
    type: Literal["model"]
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: int | None


class AnthropicModels(AnthropicPage):
    data: list[AnthropicModel]


class WholeModel(ListedModel, Model):
    """A model of the catalog that requests may name."""


AnyModel: TypeAlias = WholeModel | Model | ListedModel | AnthropicModel


class McpServerState(TypedDict):
    """The state of an MCP server. ``tools`` is the number of offered tools; ``left_out`` names the other tools with the
    reason for each."""

    name: str
    state: Literal["starting", "connected", "failed"]
    tools: int
    left_out: list[str]
    problem: str


class Models(TypedDict):
    """The models and engines. ``data`` lists the models that requests may name; ``models`` is the catalog, with models
    that are downloaded and models that are not. ``may_change`` is whether the caller may download models and choose the
    model of a conversation."""

    object: Literal["list"]
    may_change: bool
    data: list[ListedModel]
    models: list[Model]
    engines: list[NamedEngine]
    engine: Engine
    current: CurrentEngine
    mcp_servers: list[McpServerState]


AnyModels: TypeAlias = Models | AnthropicModels


class EngineChosen(TypedDict):
    session: str
    engine: Engine


class Pending(TypedDict):
    """The answer if a kernel requested something that a person must confirm. The person does so at ``url``."""

    pending: str
    url: str
    expires_s: float


class EnginePending(Pending):
    engine: Engine


class Unloaded(TypedDict):
    engine: Engine
    freed_bytes: int


class Store(TypedDict):
    kind: str
    state: str


class Health(TypedDict):
    status: Literal["ok", "degraded"]
    version: str
    engine: Engine
    sandbox: dict[str, dict[str, Any]]
    store: Store
    mcp_servers: list[McpServerState]


class Server(TypedDict):
    version: str
    url: str


class Binding(TypedDict):
    session: Session | None
    notebook: str | None
    kernel: str | None
    namespace: str
    server: Server
    model: CurrentEngine
    notes: list[str]
    open: bool
    environment: dict[str, str]


class Unbound(TypedDict):
    unbound: str | None
    session: str | None


class BindState(TypedDict):
    status: str


class Arrival(TypedDict):
    sha256: str
    refused: str
    created: NotRequired[float]
    updated: NotRequired[float]
    models: NotRequired[list[str]]
    format: NotRequired[str]
    id: NotRequired[str]
    title: NotRequired[str]
    branches: NotRequired[int]
    turns: NotRequired[int]
    messages: NotRequired[int]
    media: NotRequired[int]
    media_bytes: NotRequired[int]
    begins: NotRequired[str]
    left_out: NotRequired[dict[str, int]]
    files: NotRequired[int]


class Beside(TypedDict):
    name: str
    kind: str
    told: str
    problem: str
    saved: float | None
    size: int
    arrival: Arrival | None


class Arrived(BoundSession):
    preview: ImportPreview


class Folder(TypedDict):
    path: str
    since: float
    files: list[str]


class Trust(TypedDict):
    folder: str | None
    trusted: bool
    folders: list[Folder]


class TrustRemoved(TypedDict):
    folder: str
    removed: bool


class Granted(TypedDict):
    granted: Literal[True]


class Limit(TypedDict):
    """One limit and how much of it is used. Without a limit, ``allowed`` is 0 and ``used`` is null, because nothing is
    counted then."""

    allowed: int
    used: int | None


class Account(TypedDict):
    """The limits of a user or a token, and how much of them is used. They count the requests of the last minute, the
    unfinished turns, and the tokens of the last hour and the last day."""

    requests_per_minute: Limit
    turns_at_once: Limit
    tokens_per_hour: Limit
    tokens_per_day: Limit


class TokenAccount(Account):
    """The limits of the scoped token with which the request came."""

    id: str


class Used(Account):
    """The limits of the user. The use of all tokens and kernels of the user is included."""

    user: str
    token: TokenAccount | None
