"""What a person or an administrator can set. Order: Jupyter traits, then ``AGENT_KERNEL_*``, then the defaults here; a
request can only make a policy stricter."""

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
"""Limits of a server that people share, where its administrator sets none."""
TOOL_GROUPS = ("python", "shell", "files", "web", "skills", "mcp", "functions", "dispatch", "notebook", "recall")
"""Of tools, for the setting ``tools``; ``agent`` is all of them."""
FROM_PRESET = -1
"""A number of sessions or turns that ``limits`` decides."""
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
    """``engine`` and ``store`` are names of ``assembly.py`` or ``package.module:Class``; ``engine`` may also be one of
    ``engines``. ``model`` is a catalog name, a path, or an id of a hub (``org/name``); of the engine ``openai_api`` it
    is URL#MODEL.

    ``engines`` are servers of models by name, ``{name: {url, model, api_key_env, ...}}``, for people to choose from; as
    a variable a JSON object, or the path of a TOML file with a table for each. ``allow_urls``: a notebook may also
    choose any URL without being confirmed. ``local_only``: no conversation leaves this machine, and nothing is fetched.

    A model that nobody asked for ``idle_unload_s`` seconds is unloaded (0 = never); ``memory_reserve_gb`` of memory are
    kept for a person's own programs (0 = a tenth, 1 GiB at least).

    How a model of this machine is run, decided here where it is empty or 0: ``backend`` openvino or transformers;
    ``device`` cpu, cuda, cuda:N or auto; ``precision`` fp32, bf16, fp16, int8 or nf4; ``cache_gb`` of KV cache;
    ``model_threads``; ``requests_at_once``; ``tool_protocol`` fence, native or auto, instead of the model's own.

    ``observers`` are told of sessions: ``package.module:Class``, several with commas between. ``redaction`` takes keys
    and passwords out of what is kept and shown; ``redaction_patterns`` has more of them, ``{label: expression}``.
    ``compaction`` auto: when ``compaction_threshold`` of the model's tokens is in use, older turns are summarised for
    the model. ``titles`` of new sessions come by a rule, or from the engine. ``transcripts`` is a directory that gets
    one file of JSON lines for each session, or off. ``recall`` on: the model may search the person's earlier
    conversations; what it finds goes where this conversation goes, and small models use a second tool badly.

    ``export`` writes NAME.agent.json beside NAME.ipynb, or in ``data_dir``; not one of more than ``export_max_mb``.

    ``durable``: every write of the sqlite store is on the disk before it counts, so that a power cut loses nothing; it
    costs a turn some milliseconds for each of its saves. Without it a power cut may take the last moments, a crash of
    the server nothing. The store ``files`` is always so.

    What is kept (``sessions/limits.py``): ``limits`` keep, mistralrs or nexo, and instead of what that says ``ttl``
    ("24h", "0" = for ever), ``max_sessions`` of a namespace and ``max_history_turns`` (0 = no limit). Beyond
    ``quota_sessions`` and ``quota_gb`` of text and media a namespace gets nothing new (0 = no quota).

    ``tools`` that turns have: names or groups (python, shell, files, web, skills, mcp, functions, dispatch, notebook,
    recall) with commas between; ``agent`` is all of them. Most wait for a setting of their own, and a request only
    narrows them. Models that call in a code fence use python alone.

    The sandbox: ``sandbox`` on: what can not be isolated as it should be does not run; auto: it runs with what this
    system has, and says what is missing; off: without isolation. ``sandbox_profile`` developer sees the tools and
    packages of this machine, restricted no more than Python needs. ``sandbox_network`` none, loopback or full (by the
    profile if empty: none); full reaches other machines through a proxy that never leads to this one. The limits are
    for each session; ``sandbox_read`` and ``sandbox_write`` are more paths, with ``:`` between, ``sandbox_env`` names
    variables that code sees.

    ``surface``: files that code made are kept and shown even if nobody asked for them. ``upload_mb`` is the largest
    file that a person may bring, ``output_mb`` the largest that code may make. ``shell_timeout_s`` of a script.

    ``checked_numbers``: of each number of an answer it is said which line of an output it comes from, or that it was
    not computed. ``mode`` replay: agent cells show the answers that lie beside the notebook, and no turn is begun (for
    graders and CI); a cell without one fails, or tells it with ``replay_missing`` tell. ``mode`` off: agent cells do
    nothing but say so.

    ``policy`` makes kinds or names of tools stricter or freer: ``{mcp: auto, shell: ask}``; as a variable a JSON
    object. An administrator's file (``/etc/agent-kernel/policy.toml``) can only be made stricter.
    ``python_in`` is where python of a notebook's turns runs when a cell does not say: live (in the person's kernel,
    after asking), draft (in a copy of it that changes nothing) or sandbox; if empty a draft, where one can be made,
    else live. ``approval_timeout_s``: a client of the API is waited for so long, then it is no (0 = as long as it
    takes).

    ``web``: off, duckduckgo, searxng:URL, or package.module:function. ``web_hosts``: private hosts that may be fetched
    from all the same. ``skills_dir``: where skills are kept. ``mcp_config``: a JSON file of MCP servers. ``functions``:
    typed functions that are tools, ``package.module:name`` with commas between. ``dispatch_url`` runs the calls of
    tools that clients declare, with the header Authorization from the variable that ``dispatch_key_env`` names.

    Limits for servers that several people use; 0 = none, as for a person's own. Each user gets
    ``user_requests_per_minute`` turns begun, ``user_turns_at_once`` that are not over, and ``user_tokens_per_hour`` and
    ``user_tokens_per_day`` of prompts and answers together; a scoped token gets at most ``token_share`` of each of its
    user's limits. Each engine answers ``turns_at_once`` model calls at a time, which go round by user; when
    ``turns_waiting`` turns wait for it, no more are begun.
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
        """The kinds of sources that a model may be fetched from, or be asked about; none with ``local_only``."""
        return () if self.local_only else tuple(kind.strip() for kind in self.sources.split(",") if kind.strip())

    @property
    def skills_path(self) -> Path:
        return Path(self.skills_dir).expanduser() if self.skills_dir else self.data_dir / "skills"

    @property
    def trust_path(self) -> Path:
        """Where trusted folders are kept."""
        return self.data_dir / "trusted.json"

    @property
    def tokens_path(self) -> Path:
        """Where lasting tokens are kept, as hashes."""
        return self.data_dir / "tokens"

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ, **traits: Any) -> Settings:
        """``traits`` win over the environment; empty values count as not set. Raises InvalidRequest."""
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
    """Never repeats what could not be read: it may hold a key."""
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
