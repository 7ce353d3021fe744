"""Decides which paths of this machine, and which entries of a shared directory, are visible to jailed code.

Runs in the process that becomes the jail's supervisor, before and between runs. Standard library only.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
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
    return _outermost(path for path in paths if path and path != "/" and not _within(home, os.path.realpath(path)))


SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".pypirc", ".npmrc"),
    *(".config", ".huggingface", ".cache/huggingface/token", ".local/share/keyrings", ".password-store", ".mozilla"),
    *(".bash_history", ".python_history", ".cargo/credentials.toml", ".condarc", ".databrickscfg", ".pgpass"),
)
"""Entries of a home directory with keys, passwords or typed history."""


def hidden_by_default() -> list[str]:
    """Return directories of Jupyter and IPython (connection files, tokens, settings, history), and keys and
    passwords."""
    home = os.path.expanduser("~")
    data = os.environ.get("JUPYTER_DATA_DIR") or os.path.join(home, ".local/share/jupyter")
    named = ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "XDG_RUNTIME_DIR")
    paths = [data, os.path.join(home, ".jupyter"), os.path.join(home, ".ipython")]
    paths += [os.path.join(home, name) for name in SECRETS]
    return paths + [os.environ[name] for name in named if os.environ.get(name)]


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
    return not _within(home, directory) and not any(_within(directory, path) for path in hidden)


def holds(path: str, hidden: Sequence[str]) -> bool:
    """Return True if ``path`` is a hidden path or contains one."""
    return any(_within(secret, path) for secret in hidden)


def private_below(directory: str) -> list[str]:
    """Return dot entries and sidecars below a directory, not descending into them, up to MAX_ENTRIES."""
    paths: list[str] = []
    seen = 0
    for base, folders, files in os.walk(directory):
        mine = [name for name in (*folders, *files) if is_private(name)]
        paths += [os.path.join(base, name) for name in mine]
        folders[:] = [name for name in folders if name not in mine]
        seen += len(folders) + len(files)
        if seen > MAX_ENTRIES:
            break
    return paths


def entries(directory: str, hidden: Sequence[str], *, apart: bool = False) -> list[VisibleEntry]:
    """Return the parts of ``directory`` that may be read: the largest subtrees without private or hidden entries.

    Links are omitted unless they lie inside such a subtree; they can be followed only if their target is visible as
    well. If an entry becomes private later, inside a subtree that had no private entry, it stays visible until the next
    listing. With ``apart``, the directory's entries are always listed one by one."""
    whole, parts = _visible(directory, frozenset(hidden), [MAX_ENTRIES])
    return [_entry(directory)] if whole and not apart else parts


def _visible(directory: str, hidden: frozenset[str], budget: list[int]) -> tuple[bool, list[VisibleEntry]]:
    """Return two values: True if the whole directory is visible, and its largest visible parts. ``budget`` holds one
    number, which every examined entry decreases; once it is below 0, further entries are not visible."""
    whole, visible = True, []
    try:
        children = sorted(os.scandir(directory), key=lambda child: child.name)
    except OSError:
        return True, []
    for child in children:
        budget[0] -= 1
        shown = False
        if budget[0] >= 0 and not is_private(child.name) and child.path not in hidden and not child.is_symlink():
            if child.is_dir(follow_symlinks=False):
                shown, parts = _visible(child.path, hidden, budget)
                visible += [_entry(child.path)] if shown else parts
            elif child.is_file(follow_symlinks=False):
                shown = True
                visible.append(_entry(child.path))
        # A link does not make its subtree partial: its target is readable only if it is visible itself.
        whole = whole and (shown or (child.is_symlink() and not is_private(child.name)))
    return whole, visible


def _entry(path: str) -> VisibleEntry:
    info = os.lstat(path)
    return VisibleEntry(path, (info.st_dev, info.st_ino))


def _within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def _outermost(paths: Iterable[str]) -> list[str]:
    outermost: list[str] = []
    for path in sorted(set(paths), key=len):
        if not any(_within(path, parent) for parent in outermost):
            outermost.append(path)
    return outermost


def existing(paths: Iterable[str]) -> Iterator[str]:
    return (path for path in paths if os.path.lexists(path))
