"""What belongs to one server, made and put together: the only place that knows all parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec

from jupyter_server.services.contents.filemanager import FileContentsManager

from agent_kernel.core.api_tokens import ApiTokenStore
from agent_kernel.core.settings import Settings
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.turn.runtime import Runtime
from jupyter_ext.api.http.request_tracker import Requests
from jupyter_ext.auth.bind_requests import Binds
from jupyter_ext.monitoring.gauges import Gauges
from jupyter_ext.monitoring.metrics import Metrics
from jupyter_ext.notebooks import parent_kernel
from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.notebooks.cleared_outputs import Cleared
from jupyter_ext.notebooks.contents_watch import ContentsWatch
from jupyter_ext.notebooks.kernel_jobs import Jobs
from jupyter_ext.notebooks.kernels import Kernels
from jupyter_ext.notebooks.private_sessions import PrivateSessions
from jupyter_ext.notebooks.sidecar import Sidecars
from jupyter_ext.notebooks.sidecar_import import Reunion
from jupyter_ext.push.missed_events import MissedEvents
from jupyter_ext.push.model_pulls import Pulls
from jupyter_ext.push.notifications import News
from jupyter_ext.push.page_connection import Pages
from jupyter_ext.push.page_tools import Serving
from jupyter_ext.quotas.limits import Limits
from jupyter_ext.quotas.server_db import records
from jupyter_ext.quotas.token_usage import Spending
from jupyter_ext.turns.access import Access
from jupyter_ext.turns.cpu_priority import Neighbours
from jupyter_ext.turns.engine_choices import Choices
from jupyter_ext.turns.ephemeral_sessions import Ephemeral
from jupyter_ext.turns.idempotency import Idempotency
from jupyter_ext.turns.revision_lock import Changes
from jupyter_ext.turns.start_turn import Calls
from jupyter_ext.turns.turn_versions import Versions
from jupyter_ext.turns.turns import Turns

if TYPE_CHECKING:
    from jupyter_ext.app import AgentKernel

P = ParamSpec("P")
SETTING = "agent_kernel_services"
"""The name of the Services among the settings of the web application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of one server, as request handlers reach them."""

    runtime: Runtime
    access: Access
    turns: Turns
    turn_starter: Calls
    turn_versions: Versions
    idempotency: Idempotency
    revision_locks: Changes
    ephemeral_sessions: Ephemeral
    private_sessions: PrivateSessions
    engine_choices: Choices
    user_limits: Limits
    notebooks: Notebooks
    sidecars: Sidecars
    sidecar_imports: Reunion
    cleared_outputs: Cleared
    kernels: Kernels
    kernel_jobs: Jobs
    notifications: News
    missed_events: MissedEvents
    pages: Pages
    page_tools: Serving
    model_pulls: Pulls
    tokens: ApiTokenStore
    bind_requests: Binds
    metrics: Metrics
    requests: Requests
    import_lock: asyncio.Lock
    """Held while a document is imported: reading one may take a few hundred MB."""
    url: Callable[[], str]
    """Returns the address at which a process on this machine reaches this server, ending in ``/``."""


def wire(app: AgentKernel, settings: Settings) -> None:
    """Starts nothing. Raises InvalidRequest for settings that make no sense."""
    assert app.serverapp is not None
    managers = app.serverapp.kernel_manager
    runtime = app.runtime = Runtime.build(settings)
    app.binds = Binds()
    app.choices = Choices(settings.data_dir / "engines" if settings.store in ("sqlite", "files") else None)
    app.pulls = Pulls(settings)
    app.versions = Versions(runtime.store)
    app.news, app.serving, app.pages = News(), Serving(), Pages()
    app.metrics = Metrics(Gauges(app))
    app.requests = Requests(app.metrics.answered)
    runtime.sources = [*app.metrics.watching(runtime.sources)]
    app.tokens = ApiTokenStore(settings.tokens_path)
    app.changes = Changes(runtime.store, app.news.changed)
    runtime.afterwards.told = app.news.changed
    kept = None if settings.store == "memory" else settings.data_dir / "requests.db"
    app.records = records(kept)
    app.user_limits = Limits(settings, Spending(app.records))
    app.turns = Turns(
        runtime,
        app.user_limits,
        on_pulse=app.stay_active,
        on_begin=each(app.metrics.began, app.news.began),
        on_end=each(app.metrics.ended, app.turn_ended),
        on_body=each(app.metrics.said, app.news.said),
    )
    app.idempotency = Idempotency(runtime.store, app.turns, app.records)
    app.private = PrivateSessions(runtime.store, runtime.sandbox)
    app.ephemeral = Ephemeral(app.private)
    app.calls = Calls(app)
    app.kernels = Kernels(
        managers, app.url, app.namespace_here, app.kernel_life_ended, app.kernel_gone, told=app.told_to_kernels()
    )
    if isinstance(runtime.sandbox, LinuxSandbox):
        runtime.sandbox.kernel_of = app.interpreter_of
    app.jobs = Jobs(managers.get_kernel)
    app.neighbours = Neighbours(app.kernels, app.turns, runtime.engines)
    _wire_notebooks(app)
    app.importing = asyncio.Lock()
    app.access = Access(
        runtime.store,
        app.kernels,
        app.notebooks,
        app.turns,
        app.choices,
        app.private,
        runtime.engines,
        settings.allow_urls,
    )
    parent_kernel.adopt(app)
    app.services = Services(
        runtime=app.runtime,
        access=app.access,
        turns=app.turns,
        turn_starter=app.calls,
        turn_versions=app.versions,
        idempotency=app.idempotency,
        revision_locks=app.changes,
        ephemeral_sessions=app.ephemeral,
        private_sessions=app.private,
        engine_choices=app.choices,
        user_limits=app.user_limits,
        notebooks=app.notebooks,
        sidecars=app.sidecars,
        sidecar_imports=app.reunion,
        cleared_outputs=app.cleared,
        kernels=app.kernels,
        kernel_jobs=app.jobs,
        notifications=app.news,
        missed_events=MissedEvents(runtime, app.turns, app.versions, app.notebooks, app.sidecars),
        pages=app.pages,
        page_tools=app.serving,
        model_pulls=app.pulls,
        tokens=app.tokens,
        bind_requests=app.binds,
        metrics=app.metrics,
        requests=app.requests,
        import_lock=app.importing,
        url=app.url,
    )


def _wire_notebooks(app: AgentKernel) -> None:
    """What follows the files of a person, in the places where Jupyter tells of them."""
    server, runtime = app.serverapp, app.runtime
    assert server is not None
    assert server.event_logger is not None
    contents: Any = server.contents_manager
    local = isinstance(contents, FileContentsManager)
    root = str(contents.root_dir) if local else type(contents).__name__
    app.notebooks = Notebooks(runtime.store, server.session_manager, root)
    runtime.root = app.notebooks.root
    app.sidecars = Sidecars(runtime.store, app.notebooks, runtime.settings, contents.is_hidden, local=local)
    app.reunion = Reunion(runtime.store, app.notebooks, app.sidecars)
    app.notebooks.arriving = app.reunion.arriving
    app.notebooks.told = app.bound_anew
    app.cleared = Cleared(runtime.store, app.sidecars)
    app.watch = ContentsWatch(server.event_logger, app)
    contents.register_pre_save_hook(app.notebook_saving)
    contents.register_post_save_hook(app.notebook_saved)


def each(*hooks: Callable[P, None]) -> Callable[P, None]:
    """One that calls all of them, in order."""

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        for hook in hooks:
            hook(*args, **kwargs)

    return call
