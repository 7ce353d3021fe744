"""Builds a running agent from the settings. Engine, store and sandbox are named in the settings, by a built-in name or
as ``package.module:Class``."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from agent_kernel.core.egress import EgressPolicy
from agent_kernel.core.errors import AgentKernelError, InvalidRequest, StoreError
from agent_kernel.core.events import EventBody, Notice
from agent_kernel.core.net.guard import Guard
from agent_kernel.core.protocols import Engine, ToolSpec
from agent_kernel.core.seams.sandbox import Sandbox
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import HEARTBEAT_S, SessionKey
from agent_kernel.core.setting_declaration import split_list
from agent_kernel.core.settings import Permission, Settings
from agent_kernel.core.shielded_await import cancel_tasks
from agent_kernel.core.trusted_folders import TrustStore
from agent_kernel.engines.local.backend import LoadOptions
from agent_kernel.engines.local.catalog.worker_environment import interpreter
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.engines.openai_api.endpoint import Endpoint, is_url
from agent_kernel.engines.registry import NamedEngines, engine_of
from agent_kernel.permissions import AdminPolicy, Approvals, Gate, Policy
from agent_kernel.permissions.approvals import grants_of
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sandbox.jail.visible_paths import hidden_by_default
from agent_kernel.sessions.export.jsonl_log import LiveTranscripts
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.sessions.retention.limited_store import LimitedStore, limit_store
from agent_kernel.sessions.retention.limits import RetentionLimits
from agent_kernel.sessions.search.indexer import SearchIndexer
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.private_store import PrivateStore, is_private
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.sessions.tables.quota import Quota
from agent_kernel.tools.base.client_call_broker import ClientCallBroker
from agent_kernel.tools.base.notebook_access import NotebookAccess
from agent_kernel.tools.base.tool_source import ClosableSource, StartableSource, ToolSourceContext, gather_tools
from agent_kernel.tools.skills.store import SkillStore
from agent_kernel.turn.agent import Agent, TurnRequest
from agent_kernel.turn.agent_options import TurnNotebook, TurnServices
from agent_kernel.turn.compaction import CompactionPolicy, Compactor
from agent_kernel.turn.observers import Observers, SessionObserver
from agent_kernel.turn.post_turn_tasks import PostTurnTasks
from agent_kernel.turn.tool_sources import ToolDependencies, create_sources, has_tools
from agent_kernel.turn.turn_writer import TurnWriter

log = logging.getLogger(__name__)
RECOVER_EVERY_S = 30.0
SWEEP_EVERY_S = 3600.0
MAX_RECORDED = 16
"""Maximum number of requests that the scripted engine of a server records."""


def _create_scripted_engine(settings: Settings) -> Engine:
    if not settings.script:
        raise InvalidRequest("The scripted engine needs a script.", hint="Set script (AGENT_KERNEL_SCRIPT) to a file.")
    from agent_kernel.engines.scripted import ScriptedEngine

    return ScriptedEngine(Path(settings.script), max_recorded=MAX_RECORDED)


def _create_local_engine(settings: Settings) -> Engine:
    python = functools.partial(interpreter, settings.worker_python, settings.data_dir)
    return LocalEngine(
        settings.model,
        settings.cache_dir,
        python=python,
        options=LoadOptions(
            backend=settings.backend,
            device=settings.device,
            precision=settings.precision,
            cache_gb=settings.cache_gb,
            threads=settings.model_threads,
            at_once=settings.requests_at_once,
        ),
        protocol=settings.tool_protocol,
        idle_unload_s=settings.idle_unload_s,
        reserve_gb=settings.memory_reserve_gb,
        sources=settings.model_sources,
    )


def _create_openai_engine(settings: Settings) -> Engine:
    if not is_url(settings.model):
        raise InvalidRequest(
            "The engine openai_api needs a URL.", hint="Set model to URL#MODEL, or to a name from engines."
        )
    from agent_kernel.engines.openai_api.engine import OpenAIEngine

    return OpenAIEngine(Endpoint.of_url(settings.model))


def _files_store(settings: Settings) -> SessionStore:
    from agent_kernel.sessions.store.json_files import FilesStore

    return FilesStore(settings.data_dir / "sessions", quota=_quota(settings))


def _quota(settings: Settings) -> Quota:
    return Quota(settings.quota_sessions, int(settings.quota_gb * 2**30))


ENGINES: Mapping[str, Callable[[Settings], Engine]] = MappingProxyType(
    {"local": _create_local_engine, "openai_api": _create_openai_engine, "scripted": _create_scripted_engine}
)
STORES: Mapping[str, Callable[[Settings], SessionStore]] = MappingProxyType(
    {
        "sqlite": lambda settings: SqliteStore(
            settings.data_dir / "sessions.db", durable=settings.durable, quota=_quota(settings)
        ),
        "files": _files_store,
        "memory": lambda settings: MemoryStore(quota=_quota(settings)),
    }
)


def build_by_name(table: Mapping[str, Callable[[Settings], Any]], name: str, settings: Settings) -> Any:
    """Return the implementation that ``table`` has under ``name``; a name such as ``package.module:Class`` is imported
    instead. Both are called with the settings. Raises InvalidRequest for an unknown name."""
    if name in table:
        return table[name](settings)
    if ":" not in name:
        raise InvalidRequest(
            f"The settings ask for {name!r}, which does not exist. Use {', '.join(table)}, or package.module:Class."
        )
    try:
        return _import_class(name)(settings)
    except TypeError as error:  # the object is not a class, or its parameters differ
        raise InvalidRequest(f"{name} cannot be created from the settings: {error}.") from error


def build_engine(settings: Settings) -> Engine:
    """Return the engine that the settings name: one of their ``engines``, or a name that ``build_by_name`` accepts.
    Raises InvalidRequest."""
    engine: Engine = engine_of(settings, _create_local_engine) or build_by_name(ENGINES, settings.engine, settings)
    return engine


def build_store(settings: Settings) -> Any:
    """Return the session store that the settings name, either by its URL or by a name that ``build_by_name`` accepts.
    Raises InvalidRequest, whose message quotes nothing of a URL but its scheme."""
    if "://" not in settings.store:
        return build_by_name(STORES, settings.store, settings)
    from agent_kernel.sessions.store.store_url import open_store

    return open_store(settings.store, quota=_quota(settings))


def _import_class(name: str) -> Any:
    """Return the object that ``package.module:Class`` names. Raises InvalidRequest if it cannot be imported."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidRequest(f"{name} cannot be loaded: {error}.") from error


def _observers(settings: Settings) -> Observers:
    """Create the observers that the settings name by calling each class without arguments. Raises InvalidRequest if a
    class cannot be loaded."""
    observers: list[SessionObserver] = []
    for name in split_list(settings.observers):
        try:
            observers.append(_import_class(name)())
        except TypeError as error:
            raise InvalidRequest(f"The observer {name!r} cannot be created: {error}.") from error
    return Observers(observers)


def _transcripts(settings: Settings) -> LiveTranscripts | None:
    path = settings.transcripts_path
    return None if path is None else LiveTranscripts(path.absolute())


class Runtime:
    """The engine, store, sandbox and permission gate of one server.

    ``build`` reads the administrator's policy and does no other I/O. ``start`` begins to close turns that a crashed
    server left open. ``aclose`` stops everything that was started, and can be called in any state. ``root`` is the
    contents root under which notebooks are bound, if there is one.
    """

    def __init__(self, settings: Settings, engine: Engine, store: SessionStore, sandbox: Sandbox) -> None:
        self.settings = settings
        self.egress = EgressPolicy(settings.local_only)
        self.engine = engine
        self.engines = NamedEngines(settings, engine, _create_local_engine)
        self.observers = _observers(settings)
        callbacks = [self.observers.notify_expire] if settings.observers else ()
        self.store = limit_store(PrivateStore(store), RetentionLimits.of(settings), callbacks)
        self.sandbox = sandbox
        self.turn_writer = TurnWriter(self.store, redactor=Redactor.of(settings), transcripts=_transcripts(settings))
        policy = CompactionPolicy(auto=settings.compaction == "auto", threshold=settings.compaction_threshold)
        compactor = Compactor(self.turn_writer, policy)
        self.post_turn_tasks = PostTurnTasks(self.store, compactor, settings.titles)
        self.policy = Policy(settings.permission, cast("Mapping[str, Permission]", settings.policy), AdminPolicy.read())
        self.approvals = Approvals(grants_of(self.store))
        self.client_calls = ClientCallBroker()
        self.guard = Guard(settings.web_hosts)
        self.root = ""
        self.trust = TrustStore(settings.trust_path)
        # Only a store that several servers share may have a bus; other stores lack this method.
        self.skills = SkillStore(settings.skills_path, getattr(self.store, "bus", lambda: None)())
        self.files = FileRegistry.of(self.store, settings.data_dir / "incoming", settings.output_mb, settings.upload_mb)
        self.sources = create_sources(
            ToolDependencies(
                settings,
                self.store,
                sandbox,
                self.client_calls,
                self.files,
                self.egress,
                self.guard,
                self.trust,
                self.skills,
                root=lambda: self.root,
                load=_import_class,
            )
        )
        self._starting = [source for source in self.sources if isinstance(source, StartableSource)]
        self._closing = [source for source in self.sources if isinstance(source, ClosableSource)]
        self.search_indexer = SearchIndexer(self.store)
        self._recovery: asyncio.Task[None] | None = None

    @property
    def dispatches(self) -> bool:
        """Whether the server at the setting ``dispatch_url`` runs calls of functions that a client declares."""
        on = has_tools(self.settings, "dispatch") and self.settings.max_tool_rounds > 0
        return on and bool(url := self.settings.dispatch_url) and self.egress.allows(url)

    @classmethod
    def build(cls, settings: Settings) -> Runtime:
        """Build a runtime from settings. Raises InvalidRequest for a setting that names an unknown engine, store,
        sandbox or class."""
        sandbox = LinuxSandbox(
            settings.data_dir / "work",
            SandboxPolicy.of(settings),
            hidden=[settings.data_dir],
            egress=EgressPolicy(settings.local_only),
        )
        return cls(settings, build_engine(settings), build_store(settings), sandbox)

    async def start(self) -> None:
        """Close the turns that a crashed server left open, now and every RECOVER_EVERY_S seconds, and start retention,
        search indexing and MCP servers."""
        await self._recover()
        if isinstance(self.store, LimitedStore):
            self.store.start()
        self._recovery = asyncio.create_task(self._keep_recovering(), name="turn recovery")
        self.search_indexer.start()
        for source in self._starting:
            await source.start()

    async def _keep_recovering(self) -> None:
        swept = time.monotonic()
        await self._sweep()
        while True:
            slept = time.time()
            await asyncio.sleep(RECOVER_EVERY_S)
            # After the machine was suspended or its clock was set forward, every lease looks expired until its server
            # has renewed it. The first check after that is therefore skipped.
            if time.time() - slept < RECOVER_EVERY_S + HEARTBEAT_S:
                await self._recover()
            if (now := time.monotonic()) - swept > SWEEP_EVERY_S:
                swept = now
                await self._sweep()

    async def _sweep(self) -> None:
        """Remove the work directories of sessions that no longer exist: because another server deleted them, because
        they expired, or because they were private sessions of a server that was killed."""
        if not isinstance(self.sandbox, LinuxSandbox):
            return
        try:
            for workdir in await self.sandbox.leftovers():
                lasting = self.settings.store in ("sqlite", "files") or "://" in self.settings.store
                lasting = lasting and not is_private(workdir.key.id)
                if (workdir.idle or lasting) and await self.store.info(workdir.key) is None:
                    await self.sandbox.close(workdir.key, remove=True)
        except (AgentKernelError, OSError) as error:
            log.warning("unused work directories could not be removed: %s", error)

    async def _recover(self) -> None:
        try:
            await self.turn_writer.settle()
            closed = await self.store.recover()
        except StoreError as error:
            log.warning("the search for turns that were left open failed: %s", error)
            return
        for turn in closed:
            log.warning("turn %s of session %s was left open by a dead server; closed it", turn.id, turn.key.id)

    def agent(
        self,
        key: SessionKey,
        request: TurnRequest,
        *,
        notebook_dir: Path | None = None,
        trusted: bool = False,
        notebook: NotebookAccess | None = None,
        metadata: Mapping[str, Any] | None = None,
        through: Callable[[Engine], Engine] = lambda engine: engine,
    ) -> Agent:
        """Create the agent for one turn.

        The agent uses the engine that ``request.model`` names, wrapped by ``through``, and runs Python code in the
        place that ``request.where`` names. Its gate applies the stricter of the server's and the request's permission.
        Settings beside the notebook are used only with ``trusted``. Raises UnknownModel, Forbidden.
        """
        return Agent(
            self.store,
            through(self.engines.get(request.model)),
            key,
            gate=self.gate(request),
            services=TurnServices(self.turn_writer, self.post_turn_tasks, self.sources, self.files),
            notebook=TurnNotebook(notebook_dir, trusted, notebook),
            metadata=metadata,
            observers=self.observers,
            max_tool_rounds=self.settings.max_tool_rounds,
            check_numbers=self.settings.checked_numbers == "on",
            effort=self.settings.effort,
        )

    def gate(self, request: TurnRequest) -> Gate:
        """Create the permission gate for the turns of one request."""
        return Gate(
            self.approvals,
            self.policy.server,
            request.permission,
            request.answers,
            self.policy.own,
            self.policy.admin,
            remembered=request.remembered,
            timeout_s=self.settings.approval_timeout_s,
            hidden=(self.settings.data_dir, *map(Path, hidden_by_default())),
            denied=request.denied,
        )

    async def list_tools(
        self,
        key: SessionKey,
        request: TurnRequest,
        tell: Callable[[str], None],
        *,
        notebook_dir: Path | None = None,
        notebook: NotebookAccess | None = None,
    ) -> list[ToolSpec]:
        """Return the tools that the model could call in a turn with this request. ``tell`` is called with a message for
        each tool source that is unavailable."""

        def emit(body: EventBody) -> None:
            if isinstance(body, Notice):
                tell(body.text)

        trusted = await asyncio.to_thread(self.trust.trusts, notebook_dir)
        occasion = ToolSourceContext(key, request, emit, notebook_dir, trusted, notebook)
        return [tool.spec for tool in (await gather_tools(self.sources, occasion)).tools]

    async def aclose(self) -> None:
        """Stop background work, then close the engine and the store."""
        await cancel_tasks(self._recovery)
        await self.search_indexer.aclose()
        await self.post_turn_tasks.aclose()
        for source in self._closing:
            await source.aclose()
        await self.engines.aclose()
        await self.sandbox.aclose()
        await asyncio.to_thread(self.skills.close)
        await self.store.aclose()
