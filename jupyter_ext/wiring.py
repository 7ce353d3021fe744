"""What belongs to one server, made and put together: the only place that knows all parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

from jupyter_server.services.contents.filemanager import FileContentsManager

from agent_kernel.assembly import Runtime
from agent_kernel.sandbox.pool import LinuxSandbox
from agent_kernel.settings import Settings
from agent_kernel.tokens import Tokens
from jupyter_ext import adopted
from jupyter_ext.access import Access
from jupyter_ext.binds import Binds
from jupyter_ext.calls import Calls
from jupyter_ext.changes import Changes
from jupyter_ext.choices import Choices
from jupyter_ext.cleared import Cleared
from jupyter_ext.contents import ContentsWatch
from jupyter_ext.ephemeral import Ephemeral
from jupyter_ext.gauges import Gauges
from jupyter_ext.idempotency import Idempotency
from jupyter_ext.jobs import Jobs
from jupyter_ext.kernels import Kernels
from jupyter_ext.limits import Limits
from jupyter_ext.metrics import Metrics
from jupyter_ext.neighbours import Neighbours
from jupyter_ext.news import News
from jupyter_ext.notebooks import Notebooks
from jupyter_ext.page import Pages
from jupyter_ext.private_sessions import PrivateSessions
from jupyter_ext.pulls import Pulls
from jupyter_ext.records import records
from jupyter_ext.requests import Requests
from jupyter_ext.reunion import Reunion
from jupyter_ext.serving import Serving
from jupyter_ext.sidecar import Sidecars
from jupyter_ext.spending import Spending
from jupyter_ext.turns import Turns
from jupyter_ext.versions import Versions

if TYPE_CHECKING:
    from jupyter_ext.app import AgentKernel

P = ParamSpec("P")


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
    app.tokens = Tokens(settings.tokens_path)
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
    adopted.adopt(app)


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
