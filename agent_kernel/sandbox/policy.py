"""How much sandboxed code may use, and which layers must be in force."""

from __future__ import annotations

from dataclasses import dataclass

REQUIRED = ("limits", "no_new_privs", "landlock", "seccomp")
"""Without one of these nothing runs: they are what keeps files, sockets and other processes out of reach."""
WANTED = ("namespaces", "mounts", "pids", "uid", "capabilities")
"""Applied where the system allows; what is missing can be told from ``report()``."""


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """Limits per session. Memory, CPU time and file size hold per process (``setrlimit``).

    ``cpu_s`` is CPU time over the whole life of one process; a single run is bounded by the wall clock
    (``Sandbox.run``) and killed ``grace_s`` after its interrupt. ``output_chars`` per stream are kept (head and tail);
    code that writes more than ``output_stop_mb`` is stopped. ``tmp_mb`` bounds each of the private /tmp and /dev/shm. A
    run that leaves less than ``disk_reserve_mb`` on the disk of the work directory is stopped. ``max_sessions`` 0 =
    max(4, GiB of memory).
    """

    memory_mb: int = 2048
    cpu_s: int = 3600
    procs: int = 64
    fds: int = 256
    file_mb: int = 512
    tmp_mb: int = 64
    disk_reserve_mb: int = 512
    grace_s: float = 3.0
    output_chars: int = 100_000
    output_stop_mb: int = 32
    value_chars: int = 20_000
    figures: int = 20
    figure_mb: int = 8
    warm: int = 2
    max_sessions: int = 0
    idle_s: float = 4 * 3600.0
    required: tuple[str, ...] = REQUIRED

    def limits(self) -> dict[str, int]:
        """What the jail applies, as it travels to the jailed process."""
        names = ("memory_mb", "cpu_s", "procs", "fds", "file_mb", "tmp_mb", "value_chars", "figures", "figure_mb")
        return {name: getattr(self, name) for name in names}
