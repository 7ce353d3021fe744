"""Decides which paths of this machine, and which entries of a shared directory, are visible to jailed code.

Runs in the process that becomes the jail's supervisor, before and between runs. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

SYSTEM = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/fonts",
    "/etc/magic",
    "/nix/store",
    "/gnu/store",
    "/sys/devices/system/cpu",
]
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PROC_FILES = ("cpuinfo", "meminfo", "stat", "filesystems", "sys/kernel/osrelease", "sys/vm/overcommit_memory")
"""Files of the system's /proc that jailed code can read, besides the worker's own entry."""
MAX_ENTRIES = 50_000
"""Number of entries examined per shared directory; further entries are not visible, so that nothing unexamined is
exposed."""


def interpreter() -> list[str]:
    """Return the directories of this interpreter and its packages, including the user's site-packages."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    paths += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    if site.ENABLE_USER_SITE and site.USER_SITE:
        paths.append(site.USER_SITE)
    home = os.path.realpath(os.path.expanduser("~"))
    # A prefix that contains the home directory would show all of it; the library paths above are sufficient then.
    return _outermost(path for path in paths if path and path != "/" and not _is_within(home, os.path.realpath(path)))


SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".pypirc", ".npmrc"),
    *(".config", ".huggingface", ".cache/huggingface/token", ".local/share/keyrings", ".password-store", ".mozilla"),
    *(".bash_history", ".python_history", ".cargo/credentials.toml", ".condarc", ".databrickscfg", ".pgpass"),
)
"""Entries of a home directory with keys, passwords or typed history."""


def hidden_by_default() -> list[str]:
    """Return the paths that are hidden from jailed code by default: directories of Jupyter and IPython (connection
    files, tokens, settings, history), and files and directories with keys and passwords."""
    home = os.path.expanduser("~")
    data = os.environ.get("JUPYTER_DATA_DIR") or os.path.join(home, ".local/share/jupyter")
    variables = ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "XDG_RUNTIME_DIR")
    paths = [data, os.path.join(home, ".jupyter"), os.path.join(home, ".ipython")]
    paths += [os.path.join(home, name) for name in SECRETS]
    return paths + [os.environ[name] for name in variables if os.environ.get(name)]


def is_private(name: str) -> bool:
    """Return True for dot entries and for sidecars: NAME.agent.json, its backup and conflict copies, and the directory
    NAME.agent."""
    return name.startswith(".") or name.endswith(".agent") or ".agent." in name


class VisibleEntry(NamedTuple):
    """A path that is visible with everything below it. ``key`` identifies the file, so it changes when another file
    gets the same name."""

    path: str
    key: tuple[int, int]


def is_shareable(directory: str, hidden: Sequence[str], home: str) -> bool:
    """Return whether a directory (absolute, resolved) may be shown. Return False if it contains the home directory or
    lies in a hidden directory; nothing of it is shown then."""
    return not _is_within(home, directory) and not any(_is_within(directory, path) for path in hidden)


def holds(path: str, hidden: Sequence[str]) -> bool:
    """Return whether ``path`` is one of the ``hidden`` paths or contains one of them."""
    return any(_is_within(secret, path) for secret in hidden)


def private_below(directory: str) -> list[str]:
    """Return the paths of the dot entries and sidecars below a directory, at most MAX_ENTRIES. Their contents are not
    searched."""
    paths: list[str] = []
    seen, left = 0, [directory]
    while left and seen <= MAX_ENTRIES:
        base = left.pop()
        listing = _list(base)
        if listing is not None:
            paths += [os.path.join(base, name) for name in listing.private]
            # The order is that of _visible, so that both examine the same directories of a large tree.
            left += [os.path.join(base, name) for name in reversed(listing.folders)]
            seen += listing.size
    return paths


def entries(directory: str, hidden: Sequence[str], *, apart: bool = False) -> list[VisibleEntry]:
    """Return the parts of ``directory`` that may be read: the largest subtrees without private or hidden entries.

    Links are omitted unless they lie inside such a subtree; they can be followed only if their target is visible as
    well. If an entry becomes private later, inside a subtree that had no private entry, it stays visible until the next
    listing. With ``apart``, the directory's entries are always listed one by one."""
    covered: dict[str, set[str]] = {}
    for path in hidden:
        covered.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
    whole, parts = _visible(directory, covered, [MAX_ENTRIES], apart=apart)
    return [_entry(directory)] if whole and not apart else [_entry(path) for path in sorted(parts)]


def _visible(
    directory: str, hidden: Mapping[str, set[str]], budget: list[int], *, apart: bool = False
) -> tuple[bool, list[str]]:
    """Return two values: True if the whole directory is visible, and its largest visible parts. The parts are left out
    if the directory is visible as a whole, unless ``apart`` is True.

    ``hidden`` maps directories to the names in them that are not visible. ``budget`` holds one number, which every
    examined entry decreases; once it is below 0, further entries are not visible."""
    listing = _list(directory)
    if listing is None:
        return True, []
    covered, whole = hidden.get(directory, set()), listing.is_plain
    if listing.size > budget[0]:
        names = sorted([*listing.folders, *listing.files, *listing.private, *listing.others])
        covered = covered | set(names[max(0, budget[0]) :])
    budget[0] -= listing.size
    parts: list[str] = []
    for name in listing.folders:
        if name in covered:
            whole = False
            continue
        path = os.path.join(directory, name)
        shown, inside = _visible(path, hidden, budget)
        parts += [path] if shown else inside
        whole = whole and shown
    whole = whole and covered.isdisjoint(listing.files)
    if whole and not apart:
        return True, []
    return whole, parts + [os.path.join(directory, name) for name in listing.files if name not in covered]


class _Listing(NamedTuple):
    """The names in one directory, by kind. ``private`` has the entries of any kind that a jail must not show. The other
    fields have the entries that are not private: ``folders``, ``files``, and ``others``, which are links and special
    files. ``is_plain`` is True if the directory contains only folders, files and links that are not private."""

    state: tuple[int, int, int]
    folders: tuple[str, ...]
    files: tuple[str, ...]
    private: tuple[str, ...]
    others: tuple[str, ...]
    is_plain: bool

    @property
    def size(self) -> int:
        return len(self.folders) + len(self.files) + len(self.private) + len(self.others)


SETTLED_NS = 2_000_000_000
"""Time in nanoseconds. If a directory changed less than this time before it was read, the next listing reads it again:
some file systems record times in steps of up to two seconds, so that a further change would not show."""
MAX_LISTINGS = 20_000


class _Listings:
    """Caches the names in directories. Inside ``examining_once``, ``examined`` has the listings that were read so far;
    otherwise it is None."""

    def __init__(self) -> None:
        self.examined: dict[str, _Listing] | None = None
        self._kept: dict[str, _Listing] = {}

    def read(self, directory: str) -> _Listing | None:
        """Return the names in a directory, or None if it cannot be read.

        A directory that has not changed since it was read is not read again. The system changes ``st_ctime`` whenever
        an entry is created, removed or renamed, and no program can set it."""
        try:
            info = os.stat(directory)
            state = info.st_dev, info.st_ino, info.st_ctime_ns
            known = self._kept.get(directory)
            if known is not None and known.state == state:
                return known
            with os.scandir(directory) as children:
                listing = _sort(state, children)
        except OSError:
            return None
        if time.time_ns() - info.st_ctime_ns > SETTLED_NS:
            if len(self._kept) >= MAX_LISTINGS:
                self._kept.clear()
            self._kept[directory] = listing
        return listing


_listings = _Listings()


@contextlib.contextmanager
def examining_once() -> Iterator[None]:
    """Until the context ends, examine each directory at most once. A process that is forked meanwhile uses the listings
    of this process."""
    _listings.examined = {}
    try:
        yield
    finally:
        _listings.examined = None


def _list(directory: str) -> _Listing | None:
    examined = _listings.examined
    if examined is None:
        return _listings.read(directory)
    if directory not in examined and (listing := _listings.read(directory)) is not None:
        examined[directory] = listing
    return examined.get(directory)


def _sort(state: tuple[int, int, int], children: Iterable[os.DirEntry[str]]) -> _Listing:
    folders, files, private, others = list[str](), list[str](), list[str](), list[str]()
    is_plain = True
    for child in children:
        if is_private(child.name):
            private.append(child.name)
        elif child.is_symlink():
            others.append(child.name)
        elif child.is_dir(follow_symlinks=False):
            folders.append(child.name)
        elif child.is_file(follow_symlinks=False):
            files.append(child.name)
        else:
            others.append(child.name)
            is_plain = False
    is_plain = is_plain and not private
    return _Listing(state, tuple(sorted(folders)), tuple(files), tuple(private), tuple(others), is_plain)


def _entry(path: str) -> VisibleEntry:
    info = os.lstat(path)
    return VisibleEntry(path, (info.st_dev, info.st_ino))


def _is_within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def _outermost(paths: Iterable[str]) -> list[str]:
    outermost: list[str] = []
    for path in sorted(set(paths), key=len):
        if not any(_is_within(path, parent) for parent in outermost):
            outermost.append(path)
    return outermost


def existing(paths: Iterable[str]) -> Iterator[str]:
    return (path for path in paths if os.path.lexists(path))
