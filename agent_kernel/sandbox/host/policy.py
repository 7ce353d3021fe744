"""Defines the sandbox policy: how many resources code may use, which files and hosts it can reach, and which layers are
required. A layer is one of the restrictions of the jail."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from agent_kernel.core.setting_declaration import split_list

if TYPE_CHECKING:
    from agent_kernel.core.settings import Profile, SandboxMode, Settings

Network = Literal["none", "loopback", "full"]
REQUIRED = ("limits", "no_new_privs", "landlock", "seccomp")
"""Layers without which no code runs. They keep files, sockets and other processes out of reach."""
WANTED = ("namespaces", "mounts", "pids", "uid", "capabilities", "network", "memory", "processes")
"""Layers that are applied where the system supports them. A missing layer is reported by ``report()`` and in every
result; in mode ``on`` these layers are required."""
LAYERS = (*REQUIRED, *WANTED)


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """Limits per session. Memory and file size apply per process (``setrlimit``); ``session_memory_mb`` applies to all
    processes of a session together (0 = twice ``memory_mb``).

    ``mode`` says what happens if a layer is missing: ``on`` is an error, ``auto`` reports it, ``off`` runs code in a
    plain process with limits and no isolation. With ``profile`` ``developer``, code also sees the tools of this
    machine. With ``network`` ``loopback`` there is a loopback device that is private to the jail; with ``full`` code
    reaches other machines through a proxy (``proxy.py``), and private addresses only if they are among ``hosts``.
    ``read`` and ``write`` are additional paths, ``env`` additional variables.

    ``cpu_s`` is CPU time per run. Wall time is limited too (``Work.timeout_s``); the run is killed ``grace_s`` seconds
    after its interrupt. Of each stream, ``output_chars`` characters are kept (from the beginning and the end); a run
    that writes more than ``output_stop_mb`` is stopped. ``tmp_mb`` limits each of the private /tmp and /dev/shm. A run
    that leaves less than ``disk_reserve_mb`` free on the work directory's disk is stopped. ``max_sessions`` 0 means 4
    or the machine's memory in GiB, whichever is more."""

    mode: SandboxMode = "auto"
    profile: Profile = "restricted"
    network: Network = "none"
    memory_mb: int = 2048
    session_memory_mb: int = 0
    cpu_s: int = 3600
    procs: int = 64
    fds: int = 256
    file_mb: int = 512
    tmp_mb: int = 64
    disk_reserve_mb: int = 512
    grace_s: float = 3.0
    output_chars: int = 100_000
    output_stop_mb: int = 256
    value_chars: int = 20_000
    figures: int = 20
    figure_mb: int = 8
    warm: int = 2
    max_sessions: int = 0
    idle_s: float = 4 * 3600.0
    required: tuple[str, ...] = REQUIRED
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    hosts: str = ""

    @classmethod
    def of(cls, settings: Settings, environ: Mapping[str, str] = os.environ) -> SandboxPolicy:
        """Create the policy from the settings. Each entry of ``sandbox_env`` is the name of a variable, whose value
        comes from ``environ``, or NAME=value."""
        return cls(
            mode=settings.sandbox,
            profile=settings.sandbox_profile,
            network=settings.sandbox_network or "none",
            memory_mb=settings.sandbox_memory_mb,
            cpu_s=settings.sandbox_cpu_s,
            procs=settings.sandbox_procs,
            fds=settings.sandbox_fds,
            file_mb=settings.sandbox_file_mb,
            required=LAYERS if settings.sandbox == "on" else REQUIRED if settings.sandbox == "auto" else (),
            read=_paths(settings.sandbox_read),
            write=_paths(settings.sandbox_write),
            env=tuple(_variables(settings.sandbox_env, environ)),
            hosts=settings.web_hosts,
        )

    def limits(self) -> dict[str, int]:
        """Return the limits that the jail applies, in the form sent to the jailed process."""
        names = ["memory_mb", "cpu_s", "procs", "fds", "file_mb", "tmp_mb", "value_chars", "figures", "figure_mb"]
        names.append("disk_reserve_mb")
        session = self.session_memory_mb or 2 * self.memory_mb
        return {name: getattr(self, name) for name in names} | {"session_memory_mb": session}

    def less(self, layers: Mapping[str, Mapping[str, Any]]) -> str:
        """Return a sentence about the layers that are missing, or "" if none is."""
        if self.mode == "off":
            return OFF
        lacking = {name: layers[name] for name in LAYERS if name in layers and not layers[name]["active"]}
        if not lacking:
            return ""
        reasons = dict.fromkeys(str(layer["detail"]) for layer in lacking.values())
        return f"The sandbox is without {', '.join(lacking)}: {'; '.join(reasons)}."


OFF = "The sandbox is off: this ran as a plain process, which can read and change whatever this user can."


def _paths(text: str) -> tuple[str, ...]:
    return tuple(os.path.abspath(os.path.expanduser(path.strip())) for path in text.split(os.pathsep) if path.strip())


def _variables(text: str, environ: Mapping[str, str]) -> list[tuple[str, str]]:
    variables = []
    for word in split_list(text):
        name, separator, value = word.partition("=")
        if separator or name in environ:
            variables.append((name, value if separator else environ[name]))
    return variables
