"""Creates the parts of one server, each once, and connects them. Nothing in this module depends on the HTTP API
or on the server extension."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

from jupyter_server._tz import utcnow
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.contents.filemanager import FileContentsManager

from agent_kernel.core.events import EventBody
from agent_kernel.core.settings import Settings
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.auth.callers import current_namespace
from jupyter_ext.auth.confirmation_requests import BindRequests
from jupyter_ext.monitoring.gauges import Gauges
from jupyter_ext.monitoring.metrics import Metrics
from jupyter_ext.monitoring.request_tracker import Requests
from jupyter_ext.notebooks import embedded_server_kernel
from jupyter_ext.notebooks.attached_notebook import AttachedNotebooks
from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.notebooks.cleared_outputs import ClearedOutputs
from jupyter_ext.notebooks.contents_watch import ContentsWatch
from jupyter_ext.notebooks.kernel_environment import kernel_environment, page_url, remote_url, server_url
from jupyter_ext.notebooks.kernel_jobs import KernelJobs
from jupyter_ext.notebooks.kernels import Kernel, Kernels
from jupyter_ext.notebooks.notebook_file_sync import NotebookFiles
from jupyter_ext.notebooks.page_tools import PageTools
from jupyter_ext.notebooks.private_sessions import PrivateSessions
from jupyter_ext.notebooks.sidecar_import import SidecarImport
from jupyter_ext.notebooks.sidecar_writer import Sidecars
from jupyter_ext.push.away_summary import AwaySummary
from jupyter_ext.push.model_downloads import ModelDownloads
from jupyter_ext.push.notifications import Notifications, announce_binding
from jupyter_ext.push.page_connection import PageConnections
from jupyter_ext.quotas.limits import Limits
from jupyter_ext.turns.access import Access
from jupyter_ext.turns.dialect_turn_starter import DialectTurnStarter
from jupyter_ext.turns.ephemeral_sessions import EphemeralSessions
from jupyter_ext.turns.event_publisher import EventPublisher
from jupyter_ext.turns.idempotency import Idempotency
from jupyter_ext.turns.model_worker_priority import ModelWorkerPriority
from jupyter_ext.turns.remote_turns import RemoteTurns
from jupyter_ext.turns.revision_lock import RevisionLock
from jupyter_ext.turns.server_link import ServerLink
from jupyter_ext.turns.server_state import ServerState, open_server_state
from jupyter_ext.turns.turn_control import TurnControl
from jupyter_ext.turns.turn_input_files import TurnInputs
from jupyter_ext.turns.turn_starter import TurnStarter
from jupyter_ext.turns.turn_versions import TurnVersions
from jupyter_ext.turns.turns import LiveTurn, Turns

P = ParamSpec("P")
T = TypeVar("T")
SETTING = "agent_kernel_services"
"""The key under which the settings of the web application hold the Services."""


class PartsOnDemand:
    """Parts that only some clients need, such as the stored responses of one API. Each is created when the first client
    needs it."""

    def __init__(self) -> None:
        self._parts: dict[type[Any], Any] = {}

    def get(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return the object of the class ``kind``. The first call creates it with ``make``; later calls return the same
        object."""
        part: T | None = self._parts.get(kind)
        if part is None:
            part = self._parts[kind] = make()
        return part

    async def aclose(self) -> None:
        for part in reversed(self._parts.values()):
            if hasattr(part, "aclose"):
                await part.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of one server, for request handlers. A part receives the other parts that it uses when it is created;
    no part receives this object."""

    runtime: Runtime
    state: ServerState
    metrics: Metrics
    requests: Requests

    # Turns and their sessions.
    access: Access
    turns: Turns
    turn_control: TurnControl
    remote_turns: RemoteTurns
    event_publisher: EventPublisher | None
    turn_starter: TurnStarter
    dialect_turn_starter: DialectTurnStarter
    turn_inputs: TurnInputs
    turn_versions: TurnVersions
    idempotency: Idempotency
    revision_locks: RevisionLock
    ephemeral_sessions: EphemeralSessions
    private_sessions: PrivateSessions
    cpu_priority: ModelWorkerPriority

    # Notebooks and kernels.
    notebooks: Notebooks
    attached_notebooks: AttachedNotebooks
    sidecars: Sidecars
    sidecar_imports: SidecarImport
    cleared_outputs: ClearedOutputs
    contents_watch: ContentsWatch
    kernels: Kernels
    kernel_jobs: KernelJobs
    kernel_environment: Mapping[str, str]
    bind_requests: BindRequests
    import_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a document is imported, because reading a document may take a few hundred MB."""

    # Connections to open pages.
    notifications: Notifications
    away_summary: AwaySummary
    pages: PageConnections
    page_tools: PageTools
    model_downloads: ModelDownloads

    on_demand: PartsOnDemand = field(default_factory=PartsOnDemand)
    url: Callable[[], str]
    """Returns the address at which a process on this machine reaches this server, ending in ``/``."""

    async def start(self) -> None:
        await self.runtime.start()
        if self.state.link is not None:
            self.state.link.start()
        self.sidecars.start()
        self.cpu_priority.start()

    async def aclose(self) -> None:
        """Cancel the running turns, save them, and stop everything that was started. Turns are stopped first, because
        they use all other parts; the stores are closed last, because other parts still write to them."""
        self.kernels.close()
        self.contents_watch.close()
        await self.cpu_priority.aclose()
        await self.turns.aclose()
        if self.event_publisher is not None:
            await self.event_publisher.aclose()
        await self.remote_turns.aclose()
        # The responses of turns that have just ended are written through the link, so it must still be open.
        await self.on_demand.aclose()
        if self.state.link is not None:
            # The token counts of the turns that have just ended are written here, while the link is open. Token counts
            # of the following steps are written at the end.
            await self.state.user_limits.aclose()
            await self.state.link.aclose()
        await self.idempotency.aclose()
        self.pages.close()
        await self.dialect_turn_starter.aclose()
        self.ephemeral_sessions.close()
        await self.kernel_jobs.aclose()
        await self.private_sessions.aclose()
        await self.model_downloads.aclose()
        await self.sidecars.aclose()
        await self.runtime.aclose()
        await self.state.user_limits.aclose()
        await asyncio.to_thread(self.state.tokens.close)
        await self.state.server_db.aclose()


def build_services(settings: Settings, server: ServerApp) -> Services:
    """Create the parts and connect them, without starting anything. Raises InvalidRequest for invalid settings."""
    runtime = Runtime.build(settings)
    store, state = runtime.store, open_server_state(runtime)
    environment = kernel_environment(settings, [server.runtime_dir, server.config_dir])

    # Metrics, and what open pages receive. The parts below report to them.
    metrics, notifications, pages = Metrics(), Notifications(), PageConnections()
    model_downloads, page_tools = ModelDownloads(settings), PageTools()
    runtime.sources = [*metrics.observe_sources(runtime.sources)]
    runtime.post_turn_tasks.notify = notifications.on_session_changed

    # Notebooks, kernels, and the turns that run on this server.
    private_sessions = PrivateSessions(store, runtime.sandbox)
    ephemeral_sessions = EphemeralSessions(private_sessions)
    notebooks, sidecars, sidecar_imports, cleared_outputs = _build_notebooks(runtime, server, notifications)
    kernels, kernel_jobs, turns = _build_kernels_and_turns(
        runtime,
        server,
        environment=environment,
        private_sessions=private_sessions,
        user_limits=state.user_limits,
        begin=call_each(metrics.on_turn_begin, notifications.on_turn_begin),
        end=call_each(metrics.on_turn_end, lambda turn: sidecars.on_turn_end(turn.spec.key), notifications.on_turn_end),
        body=call_each(metrics.on_turn_body, notifications.on_turn_body),
    )
    attached_notebooks = AttachedNotebooks(notebooks, kernels, kernel_jobs, server.contents_manager)
    namespace = partial(current_namespace, settings.namespace)
    notebook_files = NotebookFiles(namespace, notebooks, sidecars, sidecar_imports, cleared_outputs)
    embedded_server_kernel.adopt(kernels, notebooks, has_login=bool(server.identity_provider.token))

    # Turns of other servers that share the store, and how clients start turns.
    remote_turns, publisher, turn_control = _connect_servers(runtime, turns, state.link)
    choices, allow_urls = state.engine_choices, settings.allow_urls
    access = Access(
        store, kernels, notebooks, turns, remote_turns, choices, private_sessions, runtime.engines, allow_urls
    )
    turn_inputs, turn_versions = TurnInputs(store, runtime.files, access), TurnVersions(store)
    turn_starter = TurnStarter(
        runtime, access, turn_inputs, turn_versions, attached_notebooks, page_tools, sidecars, ephemeral_sessions
    )
    services = Services(
        runtime=runtime,
        state=state,
        metrics=metrics,
        requests=Requests(metrics.on_request_end),
        access=access,
        turns=turns,
        turn_control=turn_control,
        remote_turns=remote_turns,
        event_publisher=publisher,
        turn_starter=turn_starter,
        dialect_turn_starter=DialectTurnStarter(runtime, turns, turn_starter, ephemeral_sessions),
        turn_inputs=turn_inputs,
        turn_versions=turn_versions,
        idempotency=Idempotency(store, turns, state.idempotency_rows, remote_turns=remote_turns, publisher=publisher),
        revision_locks=RevisionLock(store, notifications.on_session_changed),
        ephemeral_sessions=ephemeral_sessions,
        private_sessions=private_sessions,
        cpu_priority=ModelWorkerPriority(kernels, turns, runtime.engines),
        notebooks=notebooks,
        attached_notebooks=attached_notebooks,
        sidecars=sidecars,
        sidecar_imports=sidecar_imports,
        cleared_outputs=cleared_outputs,
        contents_watch=_watch_contents(server, notebook_files),
        kernels=kernels,
        kernel_jobs=kernel_jobs,
        kernel_environment=environment,
        bind_requests=BindRequests(partial(page_url, server)),
        notifications=notifications,
        away_summary=AwaySummary(runtime, turns, turn_versions, notebooks, sidecars),
        pages=pages,
        page_tools=page_tools,
        model_downloads=model_downloads,
        url=partial(server_url, server),
    )
    metrics.add_gauges(_gauges(services))
    return services


def _gauges(services: Services) -> Gauges:
    return Gauges(
        runtime=services.runtime,
        turns=services.turns,
        user_limits=services.state.user_limits,
        private_sessions=services.private_sessions,
        requests=services.requests,
        pages=services.pages,
        model_downloads=services.model_downloads,
    )


def _build_notebooks(
    runtime: Runtime, server: ServerApp, notifications: Notifications
) -> tuple[Notebooks, Sidecars, SidecarImport, ClearedOutputs]:
    contents: Any = server.contents_manager
    local = isinstance(contents, FileContentsManager)
    root = str(contents.root_dir) if local else type(contents).__name__
    notebooks = Notebooks(runtime.store, server.session_manager, root, titled=runtime.settings.titles != "off")
    runtime.root = notebooks.root
    sidecars = Sidecars(runtime.store, notebooks, runtime.settings, contents.is_hidden, local=local)
    sidecar_imports = SidecarImport(runtime.store, notebooks, sidecars)
    # A notebook that has no session may have come with a sidecar that contains one.
    notebooks.find_arriving = sidecar_imports.find_arriving_session
    notebooks.on_bound = partial(announce_binding, notifications, notebooks)
    notebooks.on_title = partial(notifications.on_session_changed, kind="title")
    return notebooks, sidecars, sidecar_imports, ClearedOutputs(runtime.store, sidecars)


def _build_kernels_and_turns(
    runtime: Runtime,
    server: ServerApp,
    *,
    environment: Mapping[str, str],
    private_sessions: PrivateSessions,
    user_limits: Limits,
    begin: Callable[[LiveTurn], None],
    end: Callable[[LiveTurn], None],
    body: Callable[[LiveTurn, EventBody], None],
) -> tuple[Kernels, KernelJobs, Turns]:
    """Create the kernels, the jobs in them, and the turns. Kernels end turns, and turns keep their kernels from being
    culled. ``begin``, ``end`` and ``body`` are called as ``Turns`` describes."""
    kernel_jobs = KernelJobs(server.kernel_manager.get_kernel)

    def life_ended(kernel: str, reason: str) -> None:
        turns.cancel_kernel(kernel, reason)
        kernel_jobs.on_life_end(kernel, reason)

    def kernel_gone(kernel: Kernel) -> None:
        kernel_jobs.forget(kernel.id)
        private_sessions.on_kernel_gone(kernel)

    kernels = Kernels(
        server.kernel_manager,
        partial(server_url, server),
        partial(current_namespace, runtime.settings.namespace),
        life_ended,
        kernel_gone,
        extra_env=environment,
        remote_url=partial(remote_url, server),
    )
    pulse = partial(_note_activity, server, kernels)
    turns = Turns(runtime, user_limits, on_pulse=pulse, on_begin=begin, on_end=end, on_body=body)
    if isinstance(runtime.sandbox, LinuxSandbox):
        runtime.sandbox.kernel_of = lambda session: kernels.interpreter(turns.kernel_of(session))
    return kernels, kernel_jobs, turns


def _connect_servers(
    runtime: Runtime, turns: Turns, link: ServerLink | None
) -> tuple[RemoteTurns, EventPublisher | None, TurnControl]:
    """Create what follows, publishes and controls turns across the servers that share the store. Without a link this
    server is the only one."""
    remote_turns, publisher = RemoteTurns(runtime.store, link), None if link is None else EventPublisher(link)
    turn_control = TurnControl(turns, remote_turns, runtime.approvals, runtime.client_calls, publisher)
    if link is not None:
        link.answer = turn_control.answer_question
    return remote_turns, publisher, turn_control


def _watch_contents(server: ServerApp, files: NotebookFiles) -> ContentsWatch:
    assert server.event_logger is not None
    contents: Any = server.contents_manager
    contents.register_pre_save_hook(files.before_save)
    contents.register_post_save_hook(files.after_save)
    return ContentsWatch(server.event_logger, files)


def _note_activity(server: ServerApp, kernels: Kernels, busy: set[str]) -> None:
    """Record activity while turns run, so that Jupyter neither stops the server nor culls the kernels in ``busy`` as
    idle."""
    now = utcnow()
    server.web_app.settings["last_activity_times"]["agent_kernel"] = now
    for kernel in busy:
        kernels.touch(kernel, now)


def call_each(*hooks: Callable[P, None]) -> Callable[P, None]:
    """Return a function that calls all of ``hooks``, in order, with its arguments."""

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        for hook in hooks:
            hook(*args, **kwargs)

    return call
