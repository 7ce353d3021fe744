"""The layers of the jail, in the order in which they can be applied, and a report of each.

Standard library only: this runs in the processes that become the jail. Nothing here can be undone, so what is possible
on a system is found out in a throw-away process (``LinuxSandbox.report``).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.sandbox.jail import (
    credentials,
    idmapped_mounts,
    landlock,
    mounts,
    namespaces,
    network,
    seccomp,
    visible_paths,
)
from agent_kernel.sandbox.jail import rlimits as limits


@dataclass(frozen=True, slots=True)
class Plan:
    """How far this system lets us go. ``namespaces``: root, user or none; off is a plain process, with limits only.
    ``drop``: run as another user (root only)."""

    namespaces: str
    drop: bool

    @classmethod
    def candidates(cls, *, root: bool, off: bool = False) -> list[Plan]:
        """Best first."""
        if off:
            return [cls("off", False)]
        if not root:
            return [cls("user", False), cls("none", False)]
        return [cls("root", True), cls("user", False), cls("none", True), cls("none", False)]


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything a jail needs to know; travels as JSON to the process that becomes it."""

    plan: Plan
    workdir: str
    uid: int
    limits: Mapping[str, int]
    required: Sequence[str]
    read: Sequence[str] = ()
    hidden: Sequence[str] = ()
    write: Sequence[str] = ()
    tools: Sequence[str] = ()
    """Read-only and whole, where ``read`` shows no dot entries and sidecars."""
    network: str = "none"
    env: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    """Layers that a control group sees to, and how."""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Spec:
        """The inverse of ``dataclasses.asdict``."""
        return cls(**{**body, "plan": Plan(**body["plan"])})


@dataclass(slots=True)
class Jail:
    """Applied in three steps by three processes: the supervisor, process 1 of the namespace, the worker."""

    spec: Spec
    layers: dict[str, dict[str, Any]] = field(default_factory=dict)
    tree: mounts.FileTree | None = None
    shared: list[mounts.SharedDirectory] = field(default_factory=list)
    readable: list[str] = field(default_factory=list)
    writable: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    listener: socket.socket | None = None
    """For the server's proxy, in the jail's network."""

    @property
    def isolated(self) -> bool:
        return self.spec.plan.namespaces not in ("none", "off")

    @property
    def open(self) -> bool:
        """Nothing is isolated, because it was said so."""
        return self.spec.plan.namespaces == "off"

    @property
    def network(self) -> str:
        """What code has of it in fact."""
        return self.spec.network if self.isolated else "host" if self.open else ""

    def prepare(self) -> None:
        """In the supervisor: the work directory, the namespaces and the file tree. Raises OSError."""
        spec = self.spec
        home = os.path.realpath(os.path.expanduser("~"))
        self.hidden = sorted({os.path.realpath(path) for path in spec.hidden})
        os.makedirs(spec.workdir, mode=0o700, exist_ok=True)
        if spec.plan.drop:
            _give(spec.workdir, spec.uid)
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
            self.readable += [
                entry.path for real in read.values() for entry in visible_paths.entries(real, self.hidden)
            ]
            self.writable = [
                entry.path for real in write.values() for entry in visible_paths.entries(real, self.hidden)
            ]
            return
        owners = {real: idmapped_mounts.exchange(real, spec.uid) for real in write.values()} if spec.plan.drop else {}
        self._note("namespaces", True, namespaces.enter(as_user=spec.plan.namespaces == "user"))
        if spec.network != "none":
            network.loopback_up()
        if spec.network == "full":
            self.listener = network.listener()
        self.tree = self._build(read, write, owners)
        self.readable += [*spec.tools, *read.values()]
        self.writable = list(write.values())

    def _shareable(self, paths: Sequence[str], home: str) -> dict[str, str]:
        """As they are named -> where they lead; nothing hidden, and nothing that holds the home directory."""
        found = {path: os.path.realpath(path) for path in paths}
        return {path: real for path, real in found.items() if visible_paths.shareable(real, self.hidden, home)}

    def _build(self, read: Mapping[str, str], write: Mapping[str, str], owners: Mapping[str, int]) -> mounts.FileTree:
        # What is shown of a directory must be known while the old tree is still where its paths say.
        visible = {
            real: visible_paths.entries(real, self.hidden, apart=True)
            for real in sorted(set(read.values()) - set(write.values()))
            if os.path.isdir(real)
        }
        private = [path for real in write.values() for path in visible_paths.private_below(real)]
        tree = mounts.FileTree("/tmp")
        for path in ("/tmp", "/dev/shm", "/var/tmp"):
            tree.temporary(path, self.spec.limits["tmp_mb"])
        for number, (real, found) in enumerate(visible.items()):
            directory = mounts.SharedDirectory(real, number)
            directory.update(found, "/new")
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
        tree.hide([*self.hidden, *private], but=os.path.realpath(self.spec.workdir))
        for path in visible_paths.existing(["/old" + device for device in visible_paths.DEVICES]):
            tree.device(path.removeprefix("/old"))
        os.symlink("/proc/self/fd", "/new/dev/fd")
        tree.show(self.spec.workdir, write=True)
        for directory in self.shared:
            directory.seal()
        return tree

    def isolate(self) -> None:
        """In process 1 of the namespace: its own /proc, then the old tree goes. Raises OSError."""
        assert self.tree is not None
        self.tree.proc()
        self.tree.switch()
        self._note("mounts", True, "own file tree, read-only but for the work directory; own /proc, /tmp, /dev/shm")
        self._note("pids", os.getpid() == 1, "own processes; all end with the first")

    def refresh(self) -> None:
        """In the supervisor, between runs: what was added to, replaced in or removed from a shared directory."""
        for directory in self.shared:
            source = directory.source
            below = directory.directory.rstrip("/") + "/"
            hidden = [f"{source}/{path.removeprefix(below)}" for path in self.hidden if path.startswith(below)]
            found = visible_paths.entries(source, hidden, apart=True)
            inside = directory.directory
            directory.update(
                [visible_paths.Entry(inside + entry.path.removeprefix(source), entry.key) for entry in found]
            )

    def confine(self, parent: int = 0) -> list[str]:
        """In the worker, last: everything that only this process and its children are under. Returns the required
        layers that are missing; code must not run then. ``parent``: the process whose end ends this one, if it can be
        told from here."""
        spec = self.spec
        others = 0 if spec.plan.drop else limits.tasks_of(os.getuid())
        if spec.plan.drop:
            self._try("uid", lambda: credentials.become(spec.uid))
        elif not self.open:
            self._note("uid", os.getuid() != 0, f"uid {os.getuid()}, as the server")
        self._try("limits", lambda: limits.apply(spec.limits, others=others))
        if not self.isolated:
            credentials.die_with_parent(signal.SIGKILL, parent)
        if not self.open:
            self._lock()
        self._count()
        for name, layer in self.layers.items():
            layer["required"] = name in spec.required
        return [name for name in spec.required if not self.layers.get(name, {}).get("active")]

    def _lock(self) -> None:
        readable, writable = self._paths()
        wanted = seccomp.rules(
            isolated=self.isolated,
            pid=os.getpid(),
            network=self.network or "none",
            counted="memory" in self.spec.counted,
            scoped=landlock.scopes_signals(),
        )
        tcp = self.network not in ("", "none")
        self._try("no_new_privs", credentials.no_new_privileges)
        self._try("landlock", lambda: landlock.restrict(readable, writable, tcp=tcp))
        self._try("capabilities", credentials.drop_capabilities)
        self._try("seccomp", lambda: seccomp.install(wanted, self.network))

    def _count(self) -> None:
        """What is said of the network, and of what holds for all processes together."""
        spec = self.spec
        if not self.open:
            self._note("network", spec.network in ("none", self.network), _told(spec.network, self.network))
        most = f"{spec.limits['session_memory_mb']} MB for all processes together"
        self._note("memory", True, f"{most}, {spec.counted.get('memory', 'looked at every moment')}")
        by = "by the limit of the user" if os.getuid() else "looked at every moment"
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


def _told(asked: str, given: str) -> str:
    if given == "":
        return "none at all" if asked == "none" else f"none at all: {asked} needs a network namespace"
    return {
        "none": "none: its own, without any device",
        "loopback": "loopback: its own, which leads nowhere",
        "full": "full: other machines, through a proxy that never leads to this one or to private addresses",
    }[given]


def _give(directory: str, uid: int) -> None:
    """The work directory and what an earlier life of the session left there to the session's user."""
    for path, folders, files in os.walk(directory):
        for name in (path, *(os.path.join(path, name) for name in (*folders, *files))):
            if os.lstat(name).st_uid != uid:
                os.chown(name, uid, uid, follow_symlinks=False)


def missing_platform() -> str:
    """Why this system has no jail at all, "" where it may have one."""
    return "" if sys.platform == "linux" else f"the sandbox needs Linux, this is {sys.platform}"
