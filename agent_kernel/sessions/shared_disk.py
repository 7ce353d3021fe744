"""Detects disks that several machines may share, where SQLite's WAL is not safe."""

from __future__ import annotations

import re
from pathlib import Path

_ESCAPE = re.compile(r"\\([0-7]{3})")
r"""Escaped blanks and backslashes in the mount table, such as \040."""
_SHARED = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2"}
    | {"gfs2", "orangefs", "pvfs2", "panfs", "virtiofs", "vboxsf", "vmhgfs", "prl_fs", "fuse"}
)
"""Types of file systems on which WAL is not safe. WAL needs memory that all processes that open the file share
(https://sqlite.org/wal.html). None of these file systems shares memory between machines, and several do not even share
it between processes. All types ``fuse.NAME`` belong to them as well (sshfs, s3fs, glusterfs, bind mounts of desktop
container tools), but not ``fuseblk``, which is a local disk."""


def is_shared_disk(path: Path, mounts: str | None = None) -> bool:
    """Return whether ``path`` is on a network file system or a virtual machine's shared file system. ``mounts`` is the
    text of /proc/self/mountinfo (None: read it). On systems without that file (macOS, Windows) the result is False."""
    kind = _kind(path.resolve(), mounts if mounts is not None else _mountinfo())
    return kind in _SHARED or kind.startswith("fuse.")


def _kind(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds ``path``: that of the innermost mount point above it. If two mounts
    have the same mount point, the later one counts, since it covers the earlier."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = Path(_ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4]))
        if (path == point or point in path.parents) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split()[0]
    return kind


def _mountinfo() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return ""
