"""Applies the layers of the jail in the only order in which all of them work, and reports on each of them.

Standard library only, because this runs in the processes that become the jail. Nothing here can be undone. To find out
what a system supports, the layers are tried in processes of their own (``LinuxSandbox.report``).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_kernel.sandbox.jail import idmapped_mounts, landlock, loopback, mounts, privileges, seccomp, visible_paths
from agent_kernel.sandbox.jail import rlimits as limits
from agent_kernel.sandbox.jail.raw_syscalls import check_result, libc

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000


@dataclass(frozen=True, slots=True)
class IsolationPlan:
    """A combination of isolation layers that a jail uses. ``namespaces`` states who creates the namespaces: ``root``,
    or ``user`` (inside a user namespace). ``none`` means no namespaces, ``off`` a plain process with limits only. With
    ``drop``, code runs as another user, which is possible only if the server runs as root."""

    namespaces: str
    drop: bool

    @classmethod
    def candidates(cls, *, root: bool, off: bool = False) -> list[IsolationPlan]:
        """Return the plans to try, strictest first."""
        if off:
            return [cls("off", False)]
        if not root:
            return [cls("user", False), cls("none", False)]
        return [cls("root", True), cls("user", False), cls("none", True), cls("none", False)]


@dataclass(frozen=True, slots=True)
class JailSpec:
    """Everything a jail needs. Travels as JSON to the process that becomes the jail."""

    plan: IsolationPlan
    workdir: str
    uid: int
    limits: Mapping[str, int]
    required: Sequence[str]
    read: Sequence[str] = ()
    hidden: Sequence[str] = ()
    write: Sequence[str] = ()
    tools: Sequence[str] = ()
    """Paths that are visible as a whole, read-only. Of the paths in ``read``, in contrast, dot entries and sidecars are
    left out."""
    network: str = "none"
    env: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    """Maps each layer that a control group enforces to a description of its limit."""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> JailSpec:
        """Create the specification from its dictionary, in the form that ``dataclasses.asdict`` returns."""
        return cls(**{**body, "plan": IsolationPlan(**body["plan"])})


@dataclass(slots=True)
class Jail:
    """Applies the layers of one jail. Three processes do this in three steps: the supervisor, process 1 of the
    namespace, and the worker."""

    spec: JailSpec
    layers: dict[str, dict[str, Any]] = field(default_factory=dict)
    tree: mounts.FileTree | None = None
    shared: list[mounts.SharedDirectory] = field(default_factory=list)
    readable: list[str] = field(default_factory=list)
    writable: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    listener: socket.socket | None = None
    """The socket inside the jail's network on which the server's proxy listens."""

    @property
    def isolated(self) -> bool:
        return self.spec.plan.namespaces not in ("none", "off")

    @property
    def open(self) -> bool:
        """Whether the policy turns isolation off."""
        return self.spec.plan.namespaces == "off"

    @property
    def network(self) -> str:
        """The network mode that is in effect: ``host`` if the policy turns isolation off, the mode of the specification
        if the jail has namespaces, and empty if isolation is required but the system has no namespaces."""
        return self.spec.network if self.isolated else "host" if self.open else ""

    def prepare(self) -> None:
        """Create the work directory, namespaces and file tree; called in the supervisor. Raises OSError."""
        spec = self.spec
        home = os.path.realpath(os.path.expanduser("~"))
        self.hidden = sorted({os.path.realpath(path) for path in spec.hidden})
        os.makedirs(spec.workdir, mode=0o700, exist_ok=True)
        if spec.plan.drop:
            _change_owner(spec.workdir, spec.uid)
        if self.open:
            return
        read = self._shareable(spec.read, home)
        write = self._shareable(spec.write, home)
        self.readable = [*visible_paths.existing([*visible_paths.SYSTEM, *visible_paths.interpreter()])]
        if not self.isolated:
            reason = "not possible on this system" if os.getuid() else "this process lacks the rights"
            for name in ("namespaces", "mounts", "pids"):
                self._note(name, False, reason)
            self.readable += [
                path for path in spec.tools if not visible_paths.holds(os.path.realpath(path), self.hidden)
            ]
            self.readable += self._visible_parts(read)
            self.writable = self._visible_parts(write)
            return
        # The id mappings are opened before the namespaces are entered: this forks, and the first child after unshare
        # becomes process 1.
        owners = (
            {real: idmapped_mounts.open_id_mapping(real, spec.uid) for real in write.values()} if spec.plan.drop else {}
        )
        self._note("namespaces", True, enter_namespaces(as_user=spec.plan.namespaces == "user"))
        if spec.network != "none":
            loopback.loopback_up()
        if spec.network == "full":
            self.listener = loopback.listener()
        # The listener was made in the new network namespace, so the server's proxy can serve it from outside.
        self.tree = self._build(read, write, owners)
        self.readable += [*spec.tools, *read.values()]
        self.writable = list(write.values())

    def _shareable(self, paths: Sequence[str], home: str) -> dict[str, str]:
        """Map requested paths to their real paths. Hidden paths, and paths that contain the home directory, are left
        out."""
        resolved = {path: os.path.realpath(path) for path in paths}
        return {path: real for path, real in resolved.items() if visible_paths.is_shareable(real, self.hidden, home)}

    def _visible_parts(self, shared: Mapping[str, str]) -> list[str]:
        return [entry.path for real in shared.values() for entry in visible_paths.entries(real, self.hidden)]

    def _build(self, read: Mapping[str, str], write: Mapping[str, str], owners: Mapping[str, int]) -> mounts.FileTree:
        # List the visible entries first: once the file tree is built, the paths of the old tree are no longer valid.
        visible = {
            real: visible_paths.entries(real, self.hidden, apart=True)
            for real in sorted(set(read.values()) - set(write.values()))
            if os.path.isdir(real)
        }
        private = [path for real in write.values() for path in visible_paths.private_below(real)]
        tree = mounts.FileTree("/tmp")
        # Temporary file systems are mounted first, so that later mounts can lie inside them.
        for path in ("/tmp", "/dev/shm", "/var/tmp"):
            tree.temporary(path, self.spec.limits["tmp_mb"])
        for number, (real, visible_entries) in enumerate(visible.items()):
            directory = mounts.SharedDirectory(real, number)
            directory.update(visible_entries, "/new")
            self.shared.append(directory)
        for path in (*self.readable, *self.spec.tools):
            tree.show(path)
        for path, real in read.items():
            if real not in visible and real not in write.values():
                tree.show(real)
            tree.link(path, real)
        for path, real in write.items():
            tree.show(real, write=True, owners=owners.get(real, -1))
            tree.link(path, real)
        for namespace in owners.values():
            if namespace >= 0:
                os.close(namespace)
        # Paths are hidden after everything is mounted, because hidden paths below a mount exist only then.
        tree.hide([*self.hidden, *private], but=os.path.realpath(self.spec.workdir))
        for path in visible_paths.existing(["/old" + device for device in visible_paths.DEVICES]):
            tree.device(path.removeprefix("/old"))
        os.symlink("/proc/self/fd", "/new/dev/fd")
        # The work directory comes after hiding, because it may lie inside a hidden directory.
        tree.show(self.spec.workdir, write=True)
        for directory in self.shared:
            directory.seal()
        return tree

    def isolate(self) -> None:
        """Mount a new /proc and leave the old file tree; called in process 1 of the namespace. Raises OSError."""
        assert self.tree is not None
        # /proc must be mounted while the old one is still visible: the system refuses a new one in a user namespace
        # otherwise.
        self.tree.proc()
        self.tree.switch()
        self._note("mounts", True, "own file tree, read-only but for the work directory; own /proc, /tmp, /dev/shm")
        self._note("pids", os.getpid() == 1, "own processes, which all end when the first one ends")

    def refresh(self) -> None:
        """Update shared directories for entries that were added, replaced or removed; called in the supervisor
        between runs."""
        for directory in self.shared:
            source = directory.source
            below = directory.directory.rstrip("/") + "/"
            hidden = [f"{source}/{path.removeprefix(below)}" for path in self.hidden if path.startswith(below)]
            entries = visible_paths.entries(source, hidden, apart=True)
            inside = directory.directory
            directory.update(
                [visible_paths.VisibleEntry(inside + entry.path.removeprefix(source), entry.key) for entry in entries]
            )

    def confine(self, parent: int = 0) -> list[str]:
        """Apply the layers for this process and its children; called last, in the worker. Returns required layers that
        are missing; code must not run then. ``parent`` is the process with which this process must end, if it is
        known."""
        spec = self.spec
        # RLIMIT_NPROC counts all tasks of a user. A session's own user has no others.
        others = 0 if spec.plan.drop else limits.tasks_of(os.getuid())
        if spec.plan.drop:
            self._try("uid", lambda: privileges.switch_user(spec.uid))
        elif not self.open:
            self._note("uid", os.getuid() != 0, f"uid {os.getuid()}, as the server")
        self._try("limits", lambda: limits.apply(spec.limits, others=others))
        # This comes after `switch_user`, which clears the parent-death signal. In a namespace, this process ends with
        # process 1.
        if not self.isolated:
            privileges.die_with_parent(signal.SIGKILL, parent)
        if not self.open:
            self._lock()
        self._count()
        for name, layer in self.layers.items():
            layer["required"] = name in spec.required
        return [name for name in spec.required if not self.layers.get(name, {}).get("active")]

    def _lock(self) -> None:
        """Apply the layers that cannot be lifted.

        Landlock and seccomp require no_new_privs. seccomp is last, because its filter applies to all later system
        calls."""
        readable, writable = self._paths()
        filter_rules = seccomp.rules(
            isolated=self.isolated,
            pid=os.getpid(),
            network=self.network or "none",
            counted="memory" in self.spec.counted,
            scoped=landlock.scopes_signals(),
        )
        tcp = self.network not in ("", "none")
        self._try("no_new_privs", privileges.no_new_privileges)
        self._try("landlock", lambda: landlock.restrict(readable, writable, tcp=tcp))
        self._try("capabilities", privileges.drop_capabilities)
        self._try("seccomp", lambda: seccomp.install(filter_rules, self.network))

    def _count(self) -> None:
        """Add to the report the restriction of the network, and the limits that apply to all processes of the jail
        together."""
        spec = self.spec
        if not self.open:
            self._note("network", spec.network in ("none", self.network), _describe_network(spec.network, self.network))
        most = f"{spec.limits['session_memory_mb']} MB for all processes together"
        self._note("memory", True, f"{most}, {spec.counted.get('memory', 'checked at short intervals')}")
        by = "by the limit of the user" if os.getuid() else "checked at short intervals"
        self._note("processes", True, spec.counted.get("processes") or f"{spec.limits['procs']}, {by}")

    def _paths(self) -> tuple[list[str], list[str]]:
        writable = [self.spec.workdir, *self.writable, *visible_paths.DEVICES]
        if self.isolated:
            return [*self.readable, "/proc"], [*writable, "/tmp", "/var/tmp", "/dev/shm"]
        own = [f"/proc/{os.getpid()}", *(f"/proc/{name}" for name in visible_paths.PROC_FILES)]
        return [*self.readable, *own], writable

    def _try(self, name: str, apply: Callable[[], str]) -> None:
        try:
            self._note(name, True, apply())
        except (OSError, ValueError) as error:
            self._note(name, False, str(error))

    def _note(self, name: str, active: bool, detail: str) -> None:
        self.layers[name] = {"required": False, "active": active, "detail": detail}


def _describe_network(requested: str, effective: str) -> str:
    if effective == "":
        return "none at all" if requested == "none" else f"none at all: {requested} needs a network namespace"
    return {
        "none": "none: a network of its own, without any device",
        "loopback": "loopback: a device of its own, which reaches no other machine",
        "full": "full: other machines, through a proxy that never leads to this one or to private addresses",
    }[effective]


def _change_owner(directory: str, uid: int) -> None:
    """Give the work directory, with files from earlier processes of the session, to the session's user."""
    for path, folders, files in os.walk(directory):
        for name in (path, *(os.path.join(path, name) for name in (*folders, *files))):
            if os.lstat(name).st_uid != uid:
                os.chown(name, uid, uid, follow_symlinks=False)


def missing_platform() -> str:
    """Return why this platform has no jail at all, or ""."""
    return "" if sys.platform == "linux" else f"the sandbox needs Linux, this is {sys.platform}"


# Creates namespaces, in which the jail has its own network, processes, IPC, host name and file tree.
#
# Root creates them directly. Other users create them inside a user namespace, if the system allows that.


def enter_namespaces(*, as_user: bool) -> str:
    """Enter new namespaces and return a description of them. With ``as_user`` they are created inside a new user
    namespace. The next child process becomes process 1 of the new process namespace. Raises OSError if the system
    refuses."""
    assert libc is not None
    uid, gid = os.getuid(), os.getgid()
    flags = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET | (_NEWUSER if as_user else 0)
    check_result(int(libc.unshare(flags)), "unshare")
    if as_user:
        # Without "deny", an unprivileged process may not write gid_map.
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return "own network, processes, IPC, host name" + (", user" if as_user else "")
