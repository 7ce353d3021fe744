"""Creates a control group for each session, if this process may create control groups. A group limits the memory and
the number of processes of a session as a whole, no matter which user the processes run as.

Sources: ``Documentation/admin-guide/cgroup-v2.rst`` and ``cgroup-v1/`` of the kernel. A session's group is created
beside the server's own group only if the server's group has no limits, because a session must not escape a limit that
was set for the server. Version 1 has no delegation, so only the top of a hierarchy is used there, never a group that
another program manages.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "agent-kernel-"
CONTROLLERS = ("memory", "pids")
OURS = ("memory.max", "memory.high", "pids.max", "cpu.max")
REMOVE_S = 1.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The places where control groups can be created. ``parents`` maps a controller to (parent directory, version)."""

    parents: Mapping[str, tuple[Path, int]] = field(default_factory=dict)

    @classmethod
    def detect(cls, proc: Path = Path("/proc")) -> Cgroups:
        """Find out where groups can be created, without writing. If there is no such place, ``parents`` of the result
        is empty."""
        try:
            mounts = list(_mounts(proc))
            own = list(_read_own_groups(proc))
        except OSError:
            return cls()
        parents: dict[str, tuple[Path, int]] = {}
        for controllers, top, root, version in mounts:
            path = next((path for names, path in own if set(names) == set(controllers)), None)
            if path is None or not _is_within(path, root):
                continue
            group = top / os.path.relpath(path, root) if path != root else top
            if version == 2 and (parent := _find_delegated_group(group, top)):
                parents |= dict.fromkeys(CONTROLLERS, (parent, 2))
            elif version == 1 and path == "/" and os.access(group, os.W_OK):
                parents |= {name: (group, 1) for name in controllers if name in CONTROLLERS}
        return cls(parents)

    def sweep(self) -> None:
        """Remove empty groups that servers left when they were killed."""
        for directory in {parent for parent, _ in self.parents.values()}:
            for path in directory.glob(PREFIX + "*"):
                server = path.name.removeprefix(PREFIX).partition("-")[0]
                if server.isdigit() and not os.path.exists(f"/proc/{server}"):
                    with suppress(OSError):
                        path.rmdir()

    def scope(self, *, memory_mb: int, procs: int) -> SessionCgroup:
        """Create a group with these limits (``procs`` counts threads). Controllers that cannot be used are left out."""
        name = f"{PREFIX}{os.getpid()}-{next(_numbers)}"
        scope = SessionCgroup({})
        for controller, (parent, version) in self.parents.items():
            directory = parent / name
            files = _limits(controller, version, memory_mb, procs)
            try:
                directory.mkdir(exist_ok=True)
                for file, value in files:
                    (directory / file).write_text(value)
                scope.directories[controller] = directory
            except OSError:
                if directory not in scope.directories.values():
                    with suppress(OSError):
                        directory.rmdir()
        return scope


@dataclass(slots=True)
class SessionCgroup:
    """The control group of one session, from its first process until ``close``."""

    directories: dict[str, Path]

    def add(self, pid: int) -> None:
        """Add a process; its children are in the group as well. If the process cannot be added to a controller, that
        controller counts as missing."""
        for controller, directory in list(self.directories.items()):
            try:
                (directory / "cgroup.procs").write_text(str(pid))
            except OSError:
                del self.directories[controller]
                with suppress(OSError):
                    directory.rmdir()

    def kill(self) -> None:
        """Kill every process in the group, including unknown ones."""
        for directory in set(self.directories.values()):
            with suppress(OSError), (directory / "cgroup.kill").open("r+") as file:
                file.write("1")
            with suppress(OSError):
                for pid in (directory / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), 9)

    def killed_for_memory(self) -> bool:
        """Return whether the Linux kernel killed a process because the group's memory was exhausted."""
        directory = self.directories.get("memory")
        if directory is None:
            return False
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError):
                counts = dict(line.split() for line in (directory / name).read_text().splitlines())
                return int(counts.get("oom_kill", 0)) > 0
        return False

    def remove(self) -> bool:
        """Kill every process in the group and remove the group. Returns True when nothing is left, False while a
        process of the group is not reaped yet."""
        self.kill()
        for controller, directory in list(self.directories.items()):
            try:
                directory.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                continue
            del self.directories[controller]
        return not self.directories

    def close(self) -> None:
        """Remove the group, waiting at most REMOVE_S. If that is not enough, the next server removes the group
        (``sweep``)."""
        end = time.monotonic() + REMOVE_S
        while not self.remove() and time.monotonic() < end:
            time.sleep(0.01)


def _limits(controller: str, version: int, memory_mb: int, procs: int) -> list[tuple[str, str]]:
    if controller == "pids":
        return [("pids.max", str(procs))]
    return [("memory.max" if version == 2 else "memory.limit_in_bytes", str(memory_mb << 20))]


def _mounts(proc: Path) -> Iterator[tuple[tuple[str, ...], Path, str, int]]:
    """Yield (controllers, mount point, root, version) of each hierarchy. The fields of a line are described in proc(5),
    mountinfo."""
    controllers_of_v1 = {
        "memory",
        "pids",
        "cpu",
        "cpuacct",
        "cpuset",
        "blkio",
        "devices",
        "freezer",
        "hugetlb",
        "perf_event",
    }
    controllers_of_v1 |= {"net_cls", "net_prio", "rdma", "misc"}
    for line in (proc / "self" / "mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        root, top = left.split(" ")[3:5]
        if kind == "cgroup2":
            yield (), Path(top), root, 2
        elif kind == "cgroup":
            yield tuple(name for name in options.split(",") if name in controllers_of_v1), Path(top), root, 1


def _read_own_groups(proc: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (controllers, path) of each group of this process. The fields of a line are described in cgroups(7)."""
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        yield tuple(name for name in names.split(",") if name), path


def _find_delegated_group(group: Path, top: Path) -> Path | None:
    """Return the nearest group in which groups with limits can be created: the server's own ``group`` or a group above
    it, up to ``top``. Return None if there is none, or if a session in such a group would escape a limit that was set
    for the server."""
    for directory in (group, *group.parents):
        # Only the root group may contain both processes and groups with limits; the root group is the one without a
        # file cgroup.type.
        free = directory != group or not (directory / "cgroup.type").exists()
        if free and _usable(directory):
            return directory
        if directory == top or _has_limits(directory):
            return None
    return None


def _usable(directory: Path) -> bool:
    try:
        enabled = (directory / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    writable = os.access(directory, os.W_OK) and os.access(directory / "cgroup.procs", os.W_OK)
    return writable and set(CONTROLLERS) <= set(enabled)


def _has_limits(directory: Path) -> bool:
    for name in OURS:
        try:
            if not (directory / name).read_text().startswith("max"):
                return True
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False


def _is_within(path: str, root: str) -> bool:
    return root in ("/", path) or path.startswith(root + "/")
