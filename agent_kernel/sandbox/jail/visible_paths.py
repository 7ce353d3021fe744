"""What jailed code may see: which paths of this machine, and which entries of a directory it was given to read.

Runs in the process that becomes the jail's supervisor, before and between runs: standard library only.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
"""What of /proc is readable where it is the system's own, beside the worker's entry."""
MAX_ENTRIES = 50_000
"""Entries looked at per directory given to read; what lies beyond is not visible (fail closed)."""


def interpreter() -> list[str]:
    """Where this interpreter and its packages live, the person's own site-packages included."""
    paths = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix]
    paths += [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    if site.ENABLE_USER_SITE and site.USER_SITE:
        paths.append(site.USER_SITE)
    home = os.path.realpath(os.path.expanduser("~"))
    # A prefix that holds the home directory would show all of it; the library paths above are enough then.
    return _outermost(path for path in paths if path and path != "/" and not _within(home, os.path.realpath(path)))


SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".pypirc", ".npmrc"),
    *(".config", ".huggingface", ".cache/huggingface/token", ".local/share/keyrings", ".password-store", ".mozilla"),
    *(".bash_history", ".python_history", ".cargo/credentials.toml", ".condarc", ".databrickscfg", ".pgpass"),
)
"""Of a home directory: keys, passwords and what was typed."""


def hidden_by_default() -> list[str]:
    """Jupyter's and IPython's own directories: connection files, tokens, settings, history. And keys and passwords."""
    home = os.path.expanduser("~")
    data = os.environ.get("JUPYTER_DATA_DIR") or os.path.join(home, ".local/share/jupyter")
    named = ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "XDG_RUNTIME_DIR")
    paths = [data, os.path.join(home, ".jupyter"), os.path.join(home, ".ipython")]
    paths += [os.path.join(home, name) for name in SECRETS]
    return paths + [os.environ[name] for name in named if os.environ.get(name)]


def private(name: str) -> bool:
    """Dot entries and sidecars: NAME.agent.json with its backup and conflict copies, and the directory NAME.agent."""
    return name.startswith(".") or name.endswith(".agent") or ".agent." in name


@dataclass(frozen=True, slots=True)
class Entry:
    """Something visible with all below it; ``key`` changes when another file takes its name."""

    path: str
    key: tuple[int, int]


def shareable(directory: str, hidden: Sequence[str], home: str) -> bool:
    """Nothing of a directory (absolute, resolved) is shown when it holds the home directory or lies in a hidden one."""
    return not _within(home, directory) and not any(_within(directory, path) for path in hidden)


def holds(path: str, hidden: Sequence[str]) -> bool:
    """Whether something hidden lies at or below ``path``."""
    return any(_within(secret, path) for secret in hidden)


def private_below(directory: str) -> list[str]:
    """Dot entries and sidecars, down to the first on each way, as far as MAX_ENTRIES."""
    found: list[str] = []
    seen = 0
    for base, folders, files in os.walk(directory):
        mine = [name for name in (*folders, *files) if private(name)]
        found += [os.path.join(base, name) for name in mine]
        folders[:] = [name for name in folders if name not in mine]
        seen += len(folders) + len(files)
        if seen > MAX_ENTRIES:
            break
    return found


def entries(directory: str, hidden: Sequence[str], *, apart: bool = False) -> list[Entry]:
    """What of ``directory`` may be read: the largest subtrees without anything private or hidden. Links are left out
    unless they are inside such a subtree, and lead nowhere unless their target is visible itself. An entry made
    private later inside a subtree that had none, is visible until the next look. ``apart``: the directory's own entries
    each, never all of it at once."""
    whole, found = _visible(directory, frozenset(hidden), [MAX_ENTRIES])
    return [_entry(directory)] if whole and not apart else found


def _visible(directory: str, hidden: frozenset[str], budget: list[int]) -> tuple[bool, list[Entry]]:
    """(True, ...) when all of it is visible, else the parts that are."""
    whole, found = True, []
    try:
        children = sorted(os.scandir(directory), key=lambda child: child.name)
    except OSError:
        return True, []
    for child in children:
        budget[0] -= 1
        shown = False
        if budget[0] >= 0 and not private(child.name) and child.path not in hidden and not child.is_symlink():
            if child.is_dir(follow_symlinks=False):
                shown, parts = _visible(child.path, hidden, budget)
                found += [_entry(child.path)] if shown else parts
            elif child.is_file(follow_symlinks=False):
                shown = True
                found.append(_entry(child.path))
        # A link does not spoil the subtree it is in: where it leads is only readable if that is visible itself.
        whole = whole and (shown or (child.is_symlink() and not private(child.name)))
    return whole, found


def _entry(path: str) -> Entry:
    info = os.lstat(path)
    return Entry(path, (info.st_dev, info.st_ino))


def _within(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def _outermost(paths: Iterable[str]) -> list[str]:
    found: list[str] = []
    for path in sorted(set(paths), key=len):
        if not any(_within(path, parent) for parent in found):
            found.append(path)
    return found


def existing(paths: Iterable[str]) -> Iterator[str]:
    return (path for path in paths if os.path.lexists(path))
