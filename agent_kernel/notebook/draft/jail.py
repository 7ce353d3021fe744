"""The jail of a draft. A draft can read the same files as the sandbox, and can write only to its own directory. It has
no access to a network, or to processes and memory outside the jail.

The forked process applies the jail before any code of the model runs. The jail cannot be lifted afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import site
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from agent_kernel.sandbox.jail import landlock, mounts, privileges, rlimits, seccomp, visible_paths
from agent_kernel.sandbox.jail.raw_syscalls import check_result, libc, numbers

VARIABLE = "AGENT_KERNEL_HIDDEN"
"""Environment variable that the server sets for its kernels: the server's own directories, which drafts must not
read."""
MEMORY_MB = 4096
PROCESSES = 256
FILE_MB = 512
SHARED_MEMORY = "/dev/shm"
SHARED_MB = 128
FILES = 4096
"""Limit of open files. The limit is higher if the kernel has many files open, because their numbers stay taken."""
NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000
PRIVATE, NO_PROGRAMS = 0x4000 | 0x40000, 0x2 | 0x4 | 0x8
"""The mount flags MS_REC | MS_PRIVATE, and MS_NOSUID | MS_NODEV | MS_NOEXEC."""
MAX_COVERED = 1000
"""Limit of hidden directories that are covered below one visible directory (about 20 microseconds each). If there are
more, the draft cannot list the visible directory."""
FIXED = 0x10
"""The mmap flag MAP_FIXED, the same on both architectures."""
COPIED_MB = 512
"""Limit in MB for all shared mappings that belong to no file. Their content is copied."""
PROC = ("cgroup", "cmdline", "exe", "fd", "limits", "maps", "mountinfo", "stat", "statm", "status")
"""Files of the draft's own /proc entry that it may read. ``environ`` is not among them, because it still has the
kernel's initial environment."""
SECRETS = (
    *("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh"),
    *("/etc/ssl/private", "/etc/krb5.keytab", "/etc/agent-kernel"),
)
"""Paths that are hidden if the kernel runs as root, because root could read them."""
PACKAGES = ("site-packages", "dist-packages")
"""Names of package directories. Some packages keep libraries in dot directories, so nothing in them is hidden."""
OF_HOME = (".cache/matplotlib", ".config/matplotlib", ".cache/fontconfig", ".fonts", ".fonts.conf")


def missing() -> str:
    """Return why this system cannot jail a draft, or ""."""
    if sys.platform != "linux":
        return "drafts need Linux"
    if not landlock.abi():
        return "this system has no Landlock, so a draft could change files"
    try:
        numbers()
    except OSError as error:
        return str(error)
    return ""


def confine(directory: str) -> str:
    """Apply every layer to this process. It may then write to ``directory`` only. Returns a description of the layers
    in force. Raises OSError if a layer cannot be applied."""
    # The order matters: mounts need capabilities, Landlock and seccomp need no_new_privs, and seccomp comes last
    # because it forbids the system calls that the layers before it use.
    unshare_memory()
    shared = _mount_shared_memory()
    readable, listed = _view(directory if shared else "")
    _limit()
    privileges.no_new_privileges()
    held = landlock.restrict([*readable, directory], [directory, *visible_paths.DEVICES, *shared], listed=listed)
    privileges.drop_capabilities()  # an ordinary user has every capability inside a new user namespace
    refused = seccomp.rules(isolated=False, pid=os.getpid(), counted=False, scoped=landlock.scopes_signals())
    return f"Landlock {held}; {seccomp.install(refused, '')}"


def _mount_shared_memory() -> list[str]:
    """Mount a private /dev/shm, where locks between processes are created. Returns a list with the path, or an empty
    list if the system allows no mounts."""
    assert libc is not None
    parent, user, group = os.getppid(), os.getuid(), os.getgid()
    try:
        try:
            check_result(libc.unshare(NEW_MOUNTS), "unshare")
        # A process without this privilege gets it in a new user namespace. The id maps keep the ids of the user.
        except OSError:
            check_result(libc.unshare(NEW_MOUNTS | NEW_USER), "unshare")
            Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
        mounts.mount("none", "/", "", PRIVATE)
        mounts.mount("tmpfs", SHARED_MEMORY, "tmpfs", NO_PROGRAMS, f"size={SHARED_MB}m,mode=1777")
    except OSError:
        return []
    finally:
        # A new user namespace changes the credentials, which clears the parent-death signal.
        follow_parent(parent)
    return [SHARED_MEMORY]


def follow_parent(parent: int, by: int = signal.SIGKILL) -> None:
    """Ask the system to send the signal ``by`` to this process when ``parent`` ends; if ``parent`` has already ended,
    this process ends now. Raises OSError."""
    privileges.die_with_parent(by, parent)


def readable_paths() -> list[str]:
    """Return the paths that a draft of this process may read."""
    return _view("")[0]


def readable_notebook_paths() -> frozenset[str]:
    """Return the paths in the notebook's directory that a draft of this process may read: the directory itself if all
    of it is readable, otherwise its largest readable parts."""
    hidden, home, notebook_dir = _places()
    if not visible_paths.is_shareable(notebook_dir, hidden, home):
        return frozenset()
    return frozenset(entry.path for entry in visible_paths.entries(notebook_dir, hidden))


def has_newer_files(readable: Collection[str]) -> bool:
    """Return whether the notebook's directory has a file that a new draft could read, and a draft that may read the
    paths ``readable`` in this directory cannot."""
    return any(
        path not in readable and not any(str(parent) in readable for parent in Path(path).parents)
        for path in readable_notebook_paths()
    )


def _places() -> tuple[list[str], str, str]:
    """Return the hidden paths, the home directory and the notebook's directory."""
    configured = filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    hidden = sorted({os.path.realpath(path) for path in (*visible_paths.hidden_by_default(), *SECRETS, *configured)})
    return hidden, os.path.realpath(os.path.expanduser("~")), os.path.realpath(os.getcwd())


def _view(own: str) -> tuple[list[str], list[str]]:
    """Return (paths that may be read, directories that may only be listed).

    The draft can read the same files as the sandbox: the system, Python and its packages, and the notebook's directory.
    At any depth, that directory is without dot entries, sidecars and Jupyter's own directories. Other directories of
    ``sys.path`` are treated in the same way. If the notebook's directory is the home directory or contains it, none of
    it is readable: a draft runs without asking, and a remote model reads what it prints.

    ``own`` is the draft's directory if this process has its own mount namespace, else "". Without a mount namespace, a
    directory that contains something hidden cannot be listed."""
    hidden, home, notebook_dir = _places()
    modules = [os.path.realpath(path) for path in (*sys.path, *site.getsitepackages()) if path]
    system = [
        os.path.realpath(path) for path in (*visible_paths.existing(visible_paths.SYSTEM), *visible_paths.interpreter())
    ]
    system += [path for path in modules if os.path.basename(path) in PACKAGES]
    readable = [path for directory in system for path in _parts_without(directory, [home, notebook_dir, *hidden])]
    needed, listed = [*readable, os.path.realpath(own)], list[str]()
    # A module directory that contains the notebook's directory would reveal the entries beside that directory.
    shown = [
        path
        for path in modules
        if not visible_paths.holds(path, [notebook_dir]) and not any(visible_paths.holds(p, [path]) for p in readable)
    ]
    for directory in dict.fromkeys([*shown, notebook_dir]):
        if visible_paths.is_shareable(directory, hidden, home):
            parts = [entry.path for entry in visible_paths.entries(directory, hidden)]
            readable += parts
            listed += [directory] if own and parts != [directory] and _cover(directory, hidden, needed) else []
    readable += [os.path.join(home, name) for name in OF_HOME]
    readable += [f"/proc/{os.getpid()}/{name}" for name in PROC] + [
        f"/proc/{name}" for name in visible_paths.PROC_FILES
    ]
    return readable, listed


def _parts_without(directory: str, hidden: Sequence[str]) -> list[str]:
    """Return the paths of files and directories in ``directory`` that contain no path of ``hidden``. A directory
    without hidden paths is returned as a whole; otherwise its entries are searched."""
    if directory in hidden:
        return []
    if not visible_paths.holds(directory, hidden):
        return [directory]
    try:
        children = [entry.path for entry in os.scandir(directory) if not entry.is_symlink()]
    except OSError:
        return []
    return [path for child in children for path in _parts_without(child, hidden)]


def _cover(directory: str, hidden: Sequence[str], needed: Sequence[str]) -> bool:
    """Mount an empty, inaccessible directory over each hidden directory below ``directory``, so that ``directory`` can
    be listed without revealing their content. Directories that contain something ``needed`` are left open. Returns
    False if there are too many hidden directories or if the system refuses a mount."""
    inside = {
        path for path in (*visible_paths.private_below(directory), *hidden) if visible_paths.holds(directory, [path])
    }
    closed = [path for path in sorted(inside - {directory}) if os.path.isdir(path) and not os.path.islink(path)]
    closed = [path for path in closed if not visible_paths.holds(path, needed)]
    if len(closed) > MAX_COVERED:
        return False
    try:
        for path in closed:
            mounts.mount("none", path, "tmpfs", NO_PROGRAMS, "size=4k,mode=000")
    except OSError:
        return False
    return True


def _limit() -> None:
    """Set the resource limits. The memory limit is MEMORY_MB more than the fork already uses."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * mmap.PAGESIZE
    rlimits.lower(
        {
            resource.RLIMIT_AS: used + (MEMORY_MB << 20),
            resource.RLIMIT_FSIZE: FILE_MB << 20,
            resource.RLIMIT_NOFILE: max(FILES, 2 * max(map(int, os.listdir("/proc/self/fd")))),
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NPROC: rlimits.tasks_of(os.getuid()) + PROCESSES,
        }
    )


# ---------------------------------------------------------------------------------------------------- shared memory


class SharedMapping(NamedTuple):
    """A shared mapping of this process, parsed from /proc/self/maps."""

    start: int
    length: int
    protection: int
    path: str
    inode: int
    offset: int

    @classmethod
    def from_line(cls, line: str) -> SharedMapping | None:
        span, rights, offset, _, inode, *path = line.split(None, 5)
        if rights[3] != "s":
            return None
        start, end = (int(word, 16) for word in span.split("-"))
        protection = (rights[0] == "r") * mmap.PROT_READ | (rights[1] == "w") * mmap.PROT_WRITE
        return cls(start, end - start, protection, path[0] if path else "", int(inode), int(offset, 16))

    def remap_privately(self) -> bool:
        """Map the same part of the same file privately. Returns False if there is no file or it was replaced."""
        if not self.path.startswith("/") or self.path.startswith("/dev/"):
            return False
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if os.fstat(fd).st_ino != self.inode:
                return False
            self._map(self.protection, mmap.MAP_PRIVATE, fd)
        finally:
            os.close(fd)
        return True

    def copy_privately(self) -> None:
        """Replace the memory mapping by private memory with the same content."""
        data = ctypes.string_at(self.start, self.length)
        self._map(mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        ctypes.memmove(self.start, data, self.length)
        assert libc is not None
        size = ctypes.c_size_t(self.length)
        check_result(libc.mprotect(ctypes.c_void_p(self.start), size, self.protection), "mprotect")

    def _map(self, protection: int, flags: int, fd: int) -> None:
        assert libc is not None
        libc.mmap.restype = ctypes.c_void_p
        at, size, offset = ctypes.c_void_p(self.start), ctypes.c_size_t(self.length), ctypes.c_long(self.offset)
        if libc.mmap(at, size, protection, flags | FIXED, fd, offset) != self.start:
            code = ctypes.get_errno()
            raise OSError(code, f"mmap failed: {os.strerror(code)}")


def unshare_memory() -> None:
    """Replace shared mappings by private ones, so that writes through them (a writable ``memmap``, shared arrays) do
    not reach the kernel. Raises OSError for mappings that cannot be made private."""
    copied = 0
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    for shared in filter(None, map(SharedMapping.from_line, maps.splitlines())):
        if shared.remap_privately():
            continue
        copied += shared.length
        if copied > COPIED_MB << 20 or not shared.protection & mmap.PROT_READ:
            raise OSError(f"{copied >> 20} MB of its memory are shared with other programs")
        shared.copy_privately()
