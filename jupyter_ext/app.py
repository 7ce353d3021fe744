"""The server extension: its settings, and how it starts and stops."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from jupyter_server.extension.application import ExtensionApp
from traitlets import Bool, Dict, Float, Int, Unicode, default

from agent_kernel.core.settings import Settings

if TYPE_CHECKING:
    from jupyter_ext.services import Services


class AgentKernel(ExtensionApp):
    """Settings are ``c.AgentKernel.NAME`` or ``AGENT_KERNEL_NAME``; a trait that is not set leaves the variable's
    value, or the default of ``agent_kernel.core.settings``."""

    name = "agent_kernel"
    services: Services | None = None
    """None until the extension is loaded. Every Jupyter command imports this module to list extensions, so the modules
    of the parts are imported when they are built."""

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
        """Build the services. Raises InvalidRequest for settings that make no sense: the extension is not loaded, and
        the server's log has that reason."""
        from jupyter_ext.services import SETTING, build_services

        assert self.serverapp is not None
        self.services = build_services(self._settings(), self.serverapp)
        self.settings[SETTING] = self.services

    def initialize_handlers(self) -> None:
        from jupyter_ext.api.routes import RULES

        self.handlers.extend(RULES)

    async def _start_jupyter_server_extension(self, serverapp: Any) -> None:
        assert self.services is not None
        await self.services.start()
        settings = self.services.runtime.settings
        where = settings.data_dir if settings.store in ("sqlite", "files") else settings.store
        self.log.info("agent-kernel: engine %s, sessions in %s", settings.engine, where)

    def current_activity(self) -> list[str] | None:
        """What keeps a server with ``shutdown_no_activity_timeout`` up."""
        return [turn.id for turn in self.services.turns.running] or None if self.services is not None else None

    async def stop_extension(self) -> None:
        """Stop the services. Jupyter calls this also for an extension that could not be loaded."""
        if self.services is not None:
            await self.services.aclose()

    def _settings(self) -> Settings:
        """The traits that are set, as text, because a 0 would count as not set."""
        names = [item.name for item in dataclasses.fields(Settings)]
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        traits: dict[str, Any] = {
            name: value if isinstance(value, dict) else str(value) for name, value in given.items()
        }
        return Settings.from_env(**traits)
