"""Settings of a server. Jupyter traits take precedence over ``AGENT_KERNEL_*`` variables, which take precedence over
the defaults here. A request can only make a policy stricter."""

from __future__ import annotations

import dataclasses
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import platformdirs

from agent_kernel.core.errors import InvalidRequest

Permission = Literal["auto", "ask", "deny"]
Export = Literal["on", "off", "data_dir"]
Redaction = Literal["on", "off"]
Compaction = Literal["auto", "off"]
Titles = Literal["rule", "engine", "off"]
Recall = Literal["on", "off"]
Surface = Literal["on", "off"]
CheckedNumbers = Literal["on", "off"]
Mode = Literal["", "replay", "off"]
ReplayMissing = Literal["fail", "tell"]
SandboxMode = Literal["off", "auto", "on"]
Profile = Literal["developer", "restricted"]
Network = Literal["", "none", "loopback", "full"]
PythonIn = Literal["", "live", "draft", "sandbox"]
APP = "agent-kernel"
ON = ("true", "1", "on", "yes")
OFF = ("false", "0", "off", "no")
LIMIT_FIELDS = (
    *("turns_at_once", "turns_waiting", "user_requests_per_minute", "user_turns_at_once"),
    *("user_tokens_per_hour", "user_tokens_per_day"),
)
SHARED_SERVER_LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "turns_at_once": 8,
        "user_requests_per_minute": 60,
        "user_turns_at_once": 8,
        "user_tokens_per_hour": 1_000_000,
        "user_tokens_per_day": 10_000_000,
    }
)
"""Limits of a server with several users, unless its administrator sets others."""
TOOL_GROUPS = ("python", "shell", "files", "web", "skills", "mcp", "functions", "dispatch", "notebook", "recall")
"""Groups of tools for the setting ``tools``; ``agent`` stands for all of them."""
FROM_PRESET = -1
"""Marks a number of sessions or turns that the setting ``limits`` determines."""
POSITIVE_FIELDS = (
    *("sandbox_memory_mb", "sandbox_cpu_s", "sandbox_procs", "sandbox_fds", "sandbox_file_mb"),
    *("upload_mb", "output_mb", "run_timeout_s", "shell_timeout_s"),
)
CHOICES = {
    "permission": get_args(Permission),
    "export": get_args(Export),
    "redaction": get_args(Redaction),
    "compaction": get_args(Compaction),
    "titles": get_args(Titles),
    "recall": get_args(Recall),
    "surface": get_args(Surface),
    "checked_numbers": get_args(CheckedNumbers),
    "mode": get_args(Mode),
    "replay_missing": get_args(ReplayMissing),
    "sandbox": get_args(SandboxMode),
    "sandbox_profile": get_args(Profile),
    "sandbox_network": get_args(Network),
    "python_in": get_args(PythonIn),
    "backend": ("", "openvino", "transformers", "generate"),
    "precision": ("", "fp32", "bf16", "fp16", "int8", "nf4"),
    "tool_protocol": ("", "fence", "native", "auto"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a server.

    Engine and model. ``engine`` and ``store`` are names from ``turn/runtime.py`` or ``package.module:Class``;
    ``engine`` may also be a key of ``engines``. ``model`` is a catalog name, a path, or an id on a model hub
    (``org/name``); for the engine ``openai_api`` it is URL#MODEL. ``engines`` are model servers that users can choose,
    ``{name: {url, model, api_key_env, ...}}``; as an environment variable it is a JSON object, or the path of a TOML
    file with one table for each server. ``allow_urls`` lets a notebook choose any URL without confirmation.
    ``local_only`` keeps every conversation on this machine and disables all downloads.

    Local models. A model is unloaded after ``idle_unload_s`` seconds without a request (0 = never);
    ``memory_reserve_gb`` of memory stay free for the user's own programs (0 = a tenth, at least 1 GiB). Empty or 0
    leaves the choice to the server for: ``backend`` (openvino or transformers), ``device`` (cpu, cuda, cuda:N or auto),
    ``precision`` (fp32, bf16, fp16, int8 or nf4), ``cache_gb`` of KV cache, ``model_threads``, ``requests_at_once``,
    and ``tool_protocol`` (fence, native or auto), which replaces the model's own protocol.

    Conversations. ``observers`` are notified about sessions: ``package.module:Class``, separated by commas.
    ``redaction`` removes keys and passwords from everything that is stored and shown; ``redaction_patterns`` adds
    patterns, ``{label: expression}``. With ``compaction`` auto, older turns are summarised for the model when
    ``compaction_threshold`` of its tokens is in use. ``titles`` selects how new sessions are titled: by a rule, or by
    the engine. ``transcripts`` is a directory that receives one JSON Lines file for each session, or off. With
    ``recall`` on, the model may search the user's earlier conversations; the results go wherever this conversation
    goes, and small models handle a second tool badly.

    Storage. ``export`` writes NAME.agent.json beside NAME.ipynb, or below ``data_dir``, up to ``export_max_mb``. With
    ``durable``, the sqlite store syncs every write to the disk, so that a power cut loses nothing; this costs some
    milliseconds for each save of a turn. Without it a power cut may lose the last moments; a crash of the server loses
    nothing. The store ``files`` is always durable. ``limits`` (keep, mistralrs or nexo) is a retention preset
    (``sessions/retention/limits.py``); ``ttl`` ("24h", "0" = for ever), ``max_sessions`` of a namespace and
    ``max_history_turns`` (0 = no limit) override it. A namespace that reached ``quota_sessions``, or ``quota_gb`` of
    text and media, cannot store more (0 = no quota).

    Tools. ``tools`` are names of tools or groups (python, shell, files, web, skills, mcp, functions, dispatch,
    notebook, recall), separated by commas; ``agent`` stands for all. Most groups also need a setting of their own, and
    a request can only narrow the set. Models that call tools in a code fence use python only.

    Sandbox. With ``sandbox`` on, code runs only if all required isolation is available; auto runs it with the isolation
    that this system supports and reports what is missing; off runs it without isolation. ``sandbox_profile`` developer
    exposes the tools and packages of this machine, restricted only what Python needs. ``sandbox_network`` is none,
    loopback or full (empty: none); full reaches other machines through a proxy that never connects to this one. The
    resource limits apply to each session. ``sandbox_read`` and ``sandbox_write`` add paths, separated by ``:``;
    ``sandbox_env`` names variables that code may read.

    Files. ``surface`` stores and shows files that code created without being asked for them. ``upload_mb`` is the
    largest file that a user may upload, ``output_mb`` the largest that code may produce. ``run_timeout_s`` limits a run
    of python, ``shell_timeout_s`` a shell script.

    Answers and replay. ``checked_numbers`` states, for every number of an answer, which output line it comes from, or
    that it was not computed. ``mode`` replay shows the answers stored beside the notebook and starts no turn (for
    graders and CI); a cell without a stored answer fails, or prints a message with ``replay_missing`` tell. With
    ``mode`` off, agent cells only print that they are off.

    Permissions. ``policy`` makes kinds or names of tools stricter or freer: ``{mcp: auto, shell: ask}``; as an
    environment variable it is a JSON object. The administrator's file (``/etc/agent-kernel/policy.toml``) can only be
    made stricter. ``python_in`` is where python of a notebook's turns runs if the cell does not say: live (in the
    user's kernel, after asking), draft (in a copy of it that changes nothing) or sandbox; empty means a draft if one
    can be made, else live. ``approval_timeout_s`` is how long the server waits for an API client's decision before it
    denies the call (0 = no limit).

    Connections. ``web`` is off, duckduckgo, searxng:URL, or package.module:function. ``web_hosts`` are private hosts
    that may be fetched anyway. ``skills_dir`` is the directory of installed skills. ``mcp_config`` is a JSON file of
    MCP servers. ``functions`` are typed functions offered as tools, ``package.module:name`` separated by commas.
    ``dispatch_url`` runs the calls of tools that clients declare, with an Authorization header from the variable named
    by ``dispatch_key_env``.

    Limits for servers with several users; 0 = none, the default of a personal server. Each user may start
    ``user_requests_per_minute`` turns, have ``user_turns_at_once`` unfinished turns, and use ``user_tokens_per_hour``
    and ``user_tokens_per_day`` of prompts and answers together; a scoped token gets at most ``token_share`` of each
    limit of its user. Each engine answers ``turns_at_once`` model calls at a time, taking turns between users; when
    ``turns_waiting`` turns wait for it, new turns are refused.
    """

    model: str = "default"
    engine: str = "local"
    store: str = "sqlite"
    durable: bool = False
    namespace: str = ""
    permission: Permission = "auto"
    max_tool_rounds: int = 16
    export: Export = "on"
    export_max_mb: int = 128
    script: str = ""
    """JSON file that the scripted engine plays."""
    sources: str = "hub,wheels"
    worker_python: str = ""
    engines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    allow_urls: bool = False
    local_only: bool = False
    data_dir: Path = field(default_factory=lambda: platformdirs.user_data_path(APP))
    cache_dir: Path = field(default_factory=lambda: platformdirs.user_cache_path(APP))
    run_timeout_s: float = 60.0
    idle_unload_s: float = 1800.0
    memory_reserve_gb: float = 0.0
    backend: str = ""
    device: str = ""
    precision: str = ""
    cache_gb: float = 0.0
    model_threads: int = 0
    requests_at_once: int = 0
    tool_protocol: str = ""
    observers: str = ""
    redaction: Redaction = "on"
    redaction_patterns: Mapping[str, str] = field(default_factory=dict)
    compaction: Compaction = "auto"
    compaction_threshold: float = 0.8
    titles: Titles = "rule"
    transcripts: str = "off"
    recall: Recall = "off"
    limits: str = ""
    ttl: str = ""
    max_sessions: int = FROM_PRESET
    max_history_turns: int = FROM_PRESET
    quota_sessions: int = 100_000
    quota_gb: float = 50.0
    tools: str = "python,shell,files,notebook,skills,mcp,web,functions,dispatch"
    sandbox: SandboxMode = "auto"
    sandbox_profile: Profile = "developer"
    sandbox_network: Network = ""
    sandbox_memory_mb: int = 2048
    sandbox_cpu_s: int = 600
    sandbox_procs: int = 64
    sandbox_fds: int = 1024
    sandbox_file_mb: int = 256
    sandbox_read: str = ""
    sandbox_write: str = ""
    sandbox_env: str = ""
    surface: Surface = "on"
    checked_numbers: CheckedNumbers = "on"
    mode: Mode = ""
    replay_missing: ReplayMissing = "fail"
    upload_mb: int = 64
    output_mb: int = 256
    shell_timeout_s: float = 600.0
    policy: Mapping[str, str] = field(default_factory=dict)
    approval_timeout_s: float = 300.0
    python_in: PythonIn = ""
    web: str = "off"
    web_hosts: str = ""
    skills_dir: str = ""
    mcp_config: str = ""
    functions: str = ""
    dispatch_url: str = ""
    dispatch_key_env: str = ""
    turns_at_once: int = 0
    turns_waiting: int = 256
    user_requests_per_minute: int = 0
    user_turns_at_once: int = 0
    user_tokens_per_hour: int = 0
    user_tokens_per_day: int = 0
    token_share: float = 1.0

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                choices = ", ".join(filter(None, allowed))
                raise InvalidRequest(f"{name} is one of {choices}, not {getattr(self, name)!r}.")
        if self.max_tool_rounds < 0:
            raise InvalidRequest("max_tool_rounds is 0 (no tools) or more.")
        if not 0.1 <= self.compaction_threshold <= 1:
            raise InvalidRequest("compaction_threshold is a share of the model's tokens, 0.1 to 1.")
        for name in ("max_sessions", "max_history_turns"):
            if getattr(self, name) < FROM_PRESET:
                raise InvalidRequest(f"{name} is 0 (no limit) or more.")
        if self.export_max_mb < 1:
            raise InvalidRequest("export_max_mb is 1 or more.")
        for name in POSITIVE_FIELDS:
            if getattr(self, name) <= 0:
                raise InvalidRequest(f"{name} is more than 0.")
        for name in ("idle_unload_s", "memory_reserve_gb", "quota_gb", "approval_timeout_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidRequest(f"{name} is 0 or more.")
        self._check_limits()
        self._check_tools()

    def _check_limits(self) -> None:
        if self.quota_sessions < 0:
            raise InvalidRequest("quota_sessions is 0 (no quota) or more.")
        for name in LIMIT_FIELDS:
            if getattr(self, name) < 0:
                raise InvalidRequest(f"{name} is 0 (no limit) or more.")
        if not 0 < self.token_share <= 1:
            raise InvalidRequest("token_share is a share of a user's limits, more than 0 and at most 1.")

    def _check_tools(self) -> None:
        if unknown := {name.strip() for name in self.tools.split(",")} - {*TOOL_GROUPS, "agent", ""}:
            raise InvalidRequest(
                f"tools are {', '.join(TOOL_GROUPS)}, or agent for all; not {', '.join(sorted(unknown))}."
            )

    @property
    def model_sources(self) -> tuple[str, ...]:
        """The kinds of sources that models may be downloaded from; none with ``local_only``."""
        return () if self.local_only else tuple(kind.strip() for kind in self.sources.split(",") if kind.strip())

    @property
    def skills_path(self) -> Path:
        return Path(self.skills_dir).expanduser() if self.skills_dir else self.data_dir / "skills"

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
        """Read the settings from the environment. ``traits`` take precedence; empty values count as not set. Raises
        InvalidRequest."""
        values: dict[str, Any] = {}
        for item in dataclasses.fields(cls):
            given = traits.get(item.name)
            value = env.get(f"AGENT_KERNEL_{item.name.upper()}", "") if given in (None, "", {}) else given
            if value != "":
                values[item.name] = _convert(item.name, str(item.type), value)
        return cls(**values)


def _convert(name: str, kind: str, value: Any) -> Any:
    converters: dict[str, type] = {"int": int, "float": float, "Path": Path}
    if name == "engines":
        return _parse_engines(value)
    if name == "redaction_patterns":
        return _parse_patterns(value)
    if name == "policy":
        return _parse_policy(value)
    if kind == "bool":
        return _parse_flag(name, str(value))
    try:
        converted = converters.get(kind, str)(value)
    except ValueError as error:
        raise InvalidRequest(f"AGENT_KERNEL_{name.upper()} must be a number, not {value!r}.") from error
    return converted.expanduser() if isinstance(converted, Path) else converted


def _parse_flag(name: str, value: str) -> bool:
    if value.lower() not in (*ON, *OFF):
        raise InvalidRequest(f"AGENT_KERNEL_{name.upper()} is {' or '.join((ON[0], OFF[0]))}, not {value!r}.")
    return value.lower() in ON


def _parse_engines(value: Any) -> Mapping[str, Any]:
    """Parse the setting ``engines``. Error messages never repeat the value, because it may contain a key."""
    if isinstance(value, Mapping):
        return value
    try:
        text = str(value).strip()
        found = json.loads(text) if text.startswith("{") else tomllib.loads(Path(text).expanduser().read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"AGENT_KERNEL_ENGINES is a JSON object or the path of a TOML file; it can not be read "
            f"({type(error).__name__})."
        ) from None
    if not isinstance(found, dict):
        raise InvalidRequest("AGENT_KERNEL_ENGINES is a JSON object: {name: {url, model}}.")
    return found


def _parse_patterns(value: Any) -> Mapping[str, str]:
    try:
        found = value if isinstance(value, Mapping) else json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, Mapping) or not all(isinstance(pattern, str) for pattern in found.values()):
        raise InvalidRequest("AGENT_KERNEL_REDACTION_PATTERNS is a JSON object: {label: regular expression}.")
    return found


def _parse_policy(value: Any) -> Mapping[str, str]:
    try:
        found = value if isinstance(value, Mapping) else json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, Mapping) or not all(choice in get_args(Permission) for choice in found.values()):
        raise InvalidRequest("AGENT_KERNEL_POLICY is a JSON object: {kind or name of a tool: auto, ask or deny}.")
    return found
