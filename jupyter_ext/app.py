"""The server extension: its settings, what belongs to one server, and a clean stop."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
from typing import TYPE_CHECKING, Any

from jupyter_server._tz import utcnow
from jupyter_server.auth.identity import User
from jupyter_server.base.call_context import CallContext
from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Dict, Float, Int, Unicode, default

from agent_kernel.core.settings import Settings
from jupyter_ext.auth.callers import namespace_of

if TYPE_CHECKING:
    from agent_kernel.core.api_tokens import ApiTokenStore
    from agent_kernel.core.session import SessionKey
    from agent_kernel.sessions.store.database import Database
    from agent_kernel.turn.runtime import Runtime
    from jupyter_ext.api.anthropic.threads import MessageThreads
    from jupyter_ext.api.http.request_tracker import Requests
    from jupyter_ext.api.mcp.endpoint import McpEndpoint
    from jupyter_ext.api.responses.live_responses import Responses
    from jupyter_ext.auth.bind_requests import Binds
    from jupyter_ext.monitoring.metrics import Metrics
    from jupyter_ext.notebooks.bindings import Notebooks
    from jupyter_ext.notebooks.cleared_outputs import Cleared
    from jupyter_ext.notebooks.contents_watch import ContentsWatch
    from jupyter_ext.notebooks.kernel_jobs import Jobs
    from jupyter_ext.notebooks.kernels import Kernel, Kernels
    from jupyter_ext.notebooks.private_sessions import PrivateSessions
    from jupyter_ext.notebooks.sidecar import Sidecars
    from jupyter_ext.notebooks.sidecar_import import Reunion
    from jupyter_ext.push.model_pulls import Pulls
    from jupyter_ext.push.notifications import News
    from jupyter_ext.push.page_connection import Pages
    from jupyter_ext.push.page_tools import Serving
    from jupyter_ext.quotas.limits import Limits
    from jupyter_ext.services import Services
    from jupyter_ext.turns.access import Access
    from jupyter_ext.turns.cpu_priority import Neighbours
    from jupyter_ext.turns.engine_choices import Choices
    from jupyter_ext.turns.ephemeral_sessions import Ephemeral
    from jupyter_ext.turns.idempotency import Idempotency
    from jupyter_ext.turns.revision_lock import Changes
    from jupyter_ext.turns.start_turn import Calls
    from jupyter_ext.turns.turn_versions import Versions
    from jupyter_ext.turns.turns import LiveTurn, Turns

ANY_ADDRESS = frozenset({"", "*", "0.0.0.0", "::", "localhost", "127.0.0.1"})


class AgentKernel(ExtensionApp):
    """Settings are ``c.AgentKernel.NAME`` or ``AGENT_KERNEL_NAME``; a trait that is not set leaves the variable's
    value, or the default of ``agent_kernel.core.settings``."""

    name = "agent_kernel"
    loaded = False

    # What belongs to one server, made by ``wiring.wire``. Every Jupyter command imports this module to list extensions;
    # only a server that loads this one imports the rest.
    runtime: Runtime
    binds: Binds
    choices: Choices
    pulls: Pulls
    versions: Versions
    changes: Changes
    turns: Turns
    private: PrivateSessions
    ephemeral: Ephemeral
    calls: Calls
    kernels: Kernels
    jobs: Jobs
    user_limits: Limits
    records: Database
    idempotency: Idempotency
    neighbours: Neighbours
    news: News
    pages: Pages
    requests: Requests
    metrics: Metrics
    tokens: ApiTokenStore
    notebooks: Notebooks
    sidecars: Sidecars
    reunion: Reunion
    serving: Serving
    cleared: Cleared
    access: Access
    watch: ContentsWatch
    services: Services
    importing: asyncio.Lock
    """One document at a time: reading one may take a few hundred MB."""

    model = Unicode(None, allow_none=True, config=True, help="A model of the catalog, a path, or a hub's org/name.")
    engine = Unicode(
        None, allow_none=True, config=True, help="local, openai_api, scripted, one of engines, or package.module:Class."
    )
    engines = Dict(
        None,
        allow_none=True,
        config=True,
        help="Servers of models to choose from: {name: {'url': ..., 'model': ..., 'api_key_env': ...}}.",
    )
    allow_urls = Bool(None, allow_none=True, config=True, help="Notebooks may choose any URL without being confirmed.")
    local_only = Bool(None, allow_none=True, config=True, help="No conversation leaves this machine.")
    store = Unicode(None, allow_none=True, config=True, help="sqlite, files, memory, or package.module:Class.")
    durable = Bool(None, allow_none=True, config=True, help="Every write of sqlite is on the disk before it counts.")
    namespace = Unicode(
        None, allow_none=True, config=True, help="Whose sessions these are; by default the user, where users are known."
    )
    permission = Unicode(None, allow_none=True, config=True, help="auto, ask or deny, for every call; only stricter.")
    max_tool_rounds = Int(None, allow_none=True, config=True, help="Rounds of calls in a turn; 0 means no tools.")
    export = Unicode(None, allow_none=True, config=True, help="NAME.agent.json beside NAME.ipynb: on, off or data_dir.")
    export_max_mb = Int(None, allow_none=True, config=True, help="Conversations beyond this stay in the store only.")
    script = Unicode(None, allow_none=True, config=True, help="The JSON file that the scripted engine plays.")
    sources = Unicode(None, allow_none=True, config=True, help="Where models come from: hub, wheels, in this order.")
    worker_python = Unicode(None, allow_none=True, config=True, help="The interpreter of the model worker.")
    data_dir = Unicode(  # type: ignore[assignment]  # JupyterApp's can not be None
        None, allow_none=True, config=True, help="Where sessions are kept."
    )
    cache_dir = Unicode(None, allow_none=True, config=True, help="Where models are kept.")
    idle_unload_s = Float(None, allow_none=True, config=True, help="Seconds until an idle model is unloaded; 0: never.")
    memory_reserve_gb = Float(None, allow_none=True, config=True, help="Memory that models leave to you; 0: a tenth.")
    backend = Unicode(None, allow_none=True, config=True, help="openvino or transformers; by the model if empty.")
    device = Unicode(None, allow_none=True, config=True, help="cpu, cuda, cuda:N or auto.")
    precision = Unicode(None, allow_none=True, config=True, help="fp32, bf16, fp16, int8 or nf4.")
    cache_gb = Float(None, allow_none=True, config=True, help="Memory of the KV cache; 0: by what is free.")
    model_threads = Int(None, allow_none=True, config=True, help="Threads of the CPU that a model may use.")
    requests_at_once = Int(None, allow_none=True, config=True, help="Requests decoded at once; the others wait.")
    tool_protocol = Unicode(None, allow_none=True, config=True, help="fence, native or auto; the model's own if empty.")
    observers = Unicode(
        None, allow_none=True, config=True, help="Who is told of sessions: package.module:Class, with commas between."
    )
    redaction = Unicode(
        None, allow_none=True, config=True, help="Take keys and passwords out of what is kept and shown: on or off."
    )
    redaction_patterns = Dict(None, allow_none=True, config=True, help="More to take out: {label: regular expression}.")
    compaction = Unicode(
        None, allow_none=True, config=True, help="Older turns are summarised for the model when it fills: auto or off."
    )
    compaction_threshold = Float(
        None, allow_none=True, config=True, help="The share of the model's tokens in use at which that is done."
    )
    titles = Unicode(None, allow_none=True, config=True, help="Titles of new sessions: rule, engine or off.")
    recall = Unicode(None, allow_none=True, config=True, help="on: the model may search earlier conversations; or off.")
    transcripts = Unicode(
        None, allow_none=True, config=True, help="A directory for a file of JSON lines of each session, or off."
    )
    run_timeout_s = Float(None, allow_none=True, config=True, help="Seconds that one run in the sandbox may take.")
    limits = Unicode(None, allow_none=True, config=True, help="What is kept: keep, mistralrs or nexo.")
    ttl = Unicode(
        None, allow_none=True, config=True, help="Sessions unused for so long are removed: 24h, 30d; 0: none."
    )
    max_sessions = Int(None, allow_none=True, config=True, help="Of a namespace; the longest unused goes. 0: no limit.")
    max_history_turns = Int(None, allow_none=True, config=True, help="Turns that readers see; 0: all of them.")
    quota_sessions = Int(None, allow_none=True, config=True, help="Sessions that a namespace may make; 0: no quota.")
    quota_gb = Float(None, allow_none=True, config=True, help="Text and media that a namespace may store; 0: no quota.")
    tools = Unicode(
        None,
        allow_none=True,
        config=True,
        help="Tools of turns, with commas between; agent: all of them.",
    )
    sandbox = Unicode(None, allow_none=True, config=True, help="on: isolation or nothing; auto; off: none at all.")
    sandbox_profile = Unicode(None, allow_none=True, config=True, help="developer or restricted.")
    sandbox_network = Unicode(None, allow_none=True, config=True, help="none, loopback or full.")
    sandbox_memory_mb = Int(None, allow_none=True, config=True, help="Memory of each process of sandboxed code.")
    sandbox_cpu_s = Int(None, allow_none=True, config=True, help="Seconds of processor time of a call.")
    sandbox_procs = Int(None, allow_none=True, config=True, help="Processes and threads of a session.")
    sandbox_fds = Int(None, allow_none=True, config=True, help="Open files of each process.")
    sandbox_file_mb = Int(None, allow_none=True, config=True, help="The largest file that code may write.")
    sandbox_read = Unicode(None, allow_none=True, config=True, help="More paths that code may read, with : between.")
    sandbox_write = Unicode(None, allow_none=True, config=True, help="More paths that code may write, with : between.")
    sandbox_env = Unicode(None, allow_none=True, config=True, help="Names of variables that code sees.")
    surface = Unicode(None, allow_none=True, config=True, help="Keep and show files that code made unasked: on or off.")
    checked_numbers = Unicode(
        None, allow_none=True, config=True, help="Say which numbers of an answer were not computed: on or off."
    )
    mode = Unicode(
        None, allow_none=True, config=True, help="replay: stored answers only, no turn is begun; off: none at all."
    )
    replay_missing = Unicode(
        None, allow_none=True, config=True, help="A cell without a stored answer, in the mode replay: fail or tell."
    )
    upload_mb = Int(None, allow_none=True, config=True, help="The largest file that a person may bring.")
    output_mb = Int(None, allow_none=True, config=True, help="The largest file of a tool that is kept.")
    shell_timeout_s = Float(None, allow_none=True, config=True, help="Seconds that one shell script may take.")
    policy = Dict(None, allow_none=True, config=True, help="{kind or name of a tool: auto, ask or deny}.")
    approval_timeout_s = Float(None, allow_none=True, config=True, help="Seconds until silence means no; 0: never.")
    python_in = Unicode(None, allow_none=True, config=True, help="live, draft or sandbox, for cells that do not say.")
    web = Unicode(None, allow_none=True, config=True, help="off, duckduckgo, searxng:URL or package.module:function.")
    web_hosts = Unicode(None, allow_none=True, config=True, help="Private hosts that may be fetched from.")
    skills_dir = Unicode(None, allow_none=True, config=True, help="Where skills are kept.")
    mcp_config = Unicode(None, allow_none=True, config=True, help="A JSON file of MCP servers.")
    functions = Unicode(None, allow_none=True, config=True, help="Functions that are tools: package.module:name.")
    dispatch_url = Unicode(None, allow_none=True, config=True, help="Runs the calls of tools that clients declare.")
    dispatch_key_env = Unicode(None, allow_none=True, config=True, help="The variable that holds its key.")
    turns_at_once = Int(
        None, allow_none=True, config=True, help="Model calls at a time, by turns of users; 0: no bound."
    )
    turns_waiting = Int(None, allow_none=True, config=True, help="Turns that wait for an engine; 0: no bound.")
    user_requests_per_minute = Int(None, allow_none=True, config=True, help="Turns that a user begins; 0: no limit.")
    user_turns_at_once = Int(None, allow_none=True, config=True, help="Turns of a user that are not over; 0: no limit.")
    user_tokens_per_hour = Int(None, allow_none=True, config=True, help="Of prompts and answers; 0: no limit.")
    user_tokens_per_day = Int(None, allow_none=True, config=True, help="Of prompts and answers; 0: no limit.")
    token_share = Float(None, allow_none=True, config=True, help="What a scoped token gets of its user's limits: 0..1.")

    @default("data_dir")
    def _no_data_dir(self) -> None:
        """Not Jupyter's own data directory, which JupyterApp has under this name."""
        return None

    def initialize_settings(self) -> None:
        """Raises InvalidRequest for settings that make no sense: the extension is not loaded, with that reason."""
        from jupyter_ext import services

        services.wire(self, self._settings())
        self.settings[services.SETTING] = self.services
        self.loaded = True

    def initialize_handlers(self) -> None:
        from jupyter_ext.api.routes import RULES

        self.handlers.extend(RULES)

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        await self.runtime.start()
        self.sidecars.start()
        self.neighbours.start()
        self.log.info("agent-kernel: engine %s, sessions in %s", self.runtime.settings.engine, self._where())

    @functools.cached_property
    def responses(self) -> Responses:
        """Made for the first client that speaks that dialect, as the others here."""
        from jupyter_ext.api.responses.live_responses import Responses

        settings = self.runtime.settings
        return Responses(self, None if settings.store == "memory" else settings.data_dir / "responses.db")

    @functools.cached_property
    def message_threads(self) -> MessageThreads:
        from jupyter_ext.api.anthropic.threads import MessageThreads

        return MessageThreads()

    @functools.cached_property
    def mcp(self) -> McpEndpoint:
        """Made for the first program that speaks MCP."""
        from jupyter_ext.api.mcp.endpoint import McpEndpoint

        return McpEndpoint(self)

    def current_activity(self) -> list[str] | None:
        """What keeps a server with ``shutdown_no_activity_timeout`` up."""
        return [turn.id for turn in self.turns.running] or None if self.loaded else None

    async def stop_extension(self) -> None:
        """Turns end as cancelled and saved, then everything that was started stops; nothing is left running. Jupyter
        calls this also for an extension that could not be loaded."""
        if not self.loaded:
            return
        self.kernels.close()
        self.watch.close()
        await self.neighbours.aclose()
        await self.turns.aclose()
        await self.idempotency.aclose()
        self.pages.close()
        if "mcp" in vars(self):
            await self.mcp.aclose()
        await self.calls.aclose()
        if "responses" in vars(self):
            await self.responses.aclose()
        self.ephemeral.close()
        await self.jobs.aclose()
        await self.private.aclose()
        await self.pulls.aclose()
        await self.sidecars.aclose()
        await self.runtime.aclose()
        await self.user_limits.aclose()
        await self.records.aclose()

    def url(self) -> str:
        """This server as a process on this machine reaches it, ending in ``/``."""
        server = self.serverapp
        assert server is not None
        scheme = "https" if server.certfile else "http"
        address = "127.0.0.1" if server.ip in ANY_ADDRESS else server.ip
        host = f"[{address}]" if ":" in address else address
        return f"{scheme}://{host}:{server.port}{server.base_url}"

    async def renamed(self, old: str, new: str) -> None:
        await self.notebooks.renamed(old, new)
        await self.sidecars.renamed(old, new)

    async def deleted(self, path: str) -> None:
        await self.sidecars.deleted(self.namespace_here(), path)
        await self.notebooks.deleted(path)

    async def saved(self, path: str) -> None:
        self.notebooks.created(path)

    async def copied(self, source: str, path: str) -> None:
        self.notebooks.created(path)
        await self.reunion.copied(self.namespace_here(), source, path)

    def _settings(self) -> Settings:
        """As text, because a 0 would count as not set."""
        names = [item.name for item in dataclasses.fields(Settings)]
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        traits: dict[str, Any] = {
            name: value if isinstance(value, dict) else str(value) for name, value in given.items()
        }
        return Settings.from_env(**traits)

    def interpreter_of(self, session: SessionKey) -> str:
        """Of the kernel from which the session's running turn came."""
        kernels = [turn.order.kernel for turn in self.turns.running if turn.order.key == session and turn.order.kernel]
        return self.kernels.interpreter(kernels[0]) if kernels else ""

    def told_to_kernels(self) -> dict[str, str]:
        """What the magic of a kernel goes by: where python runs, and what drafts must not see."""
        assert self.serverapp is not None
        server, settings = self.serverapp, self.runtime.settings
        hidden = [settings.data_dir, server.runtime_dir, server.config_dir]
        return {
            "AGENT_KERNEL_PYTHON_IN": settings.python_in,
            "AGENT_KERNEL_HIDDEN": os.pathsep.join(map(os.path.abspath, map(str, hidden))),
            **(
                {"AGENT_KERNEL_MODE": settings.mode, "AGENT_KERNEL_REPLAY_MISSING": settings.replay_missing}
                if settings.mode
                else {}
            ),
        }

    def namespace_here(self) -> str:
        """Of the request that is being served, if one is."""
        handler = CallContext.get(CallContext.JUPYTER_HANDLER)
        if (caller := getattr(handler, "caller", None)) is not None:
            return str(caller.namespace)
        user = getattr(handler, "current_user", None)
        return namespace_of(self.runtime.settings.namespace, user if isinstance(user, User) else None)

    def notebook_saving(self, model: dict[str, Any], path: str, contents_manager: Any, **kwargs: Any) -> None:
        """Runs in the save, on what a client sent."""
        if model.get("type") == "notebook":
            self.cleared.saw(self.namespace_here(), path.strip("/"), model.get("content"))

    def notebook_saved(self, os_path: str, model: dict[str, Any], contents_manager: Any, **kwargs: Any) -> None:
        """Runs in the save: only notes that there is something to write."""
        if model["type"] == "notebook":
            self.sidecars.mark(self.namespace_here(), os_path)

    def kernel_life_ended(self, kernel: str, reason: str) -> None:
        self.turns.cancel_kernel(kernel, reason)
        self.jobs.life_ended(kernel, reason)

    def kernel_gone(self, kernel: Kernel) -> None:
        self.jobs.forget(kernel.id)
        self.private.kernel_gone(kernel)

    def turn_ended(self, turn: LiveTurn) -> None:
        self.sidecars.turn_ended(turn.order.key)
        self.news.ended(turn)

    async def bound_anew(self, namespace: str, place: str) -> None:
        """Tells the pages that watch a kernel of the notebook."""
        kernels = [kernel for kernel in self.news.kernels(namespace) if await self.notebooks.place(kernel) == place]
        if kernels:
            key = await self.notebooks.bound(namespace, place)
            for kernel in kernels:
                self.news.bound(namespace, kernel, key.id if key else None)

    def stay_active(self, kernels: set[str]) -> None:
        assert self.serverapp is not None
        now = utcnow()
        self.serverapp.web_app.settings["last_activity_times"]["agent_kernel"] = now
        for kernel in kernels:
            self.kernels.touch(kernel, now)

    def _where(self) -> str:
        settings = self.runtime.settings
        return str(settings.data_dir) if settings.store in ("sqlite", "files") else settings.store
