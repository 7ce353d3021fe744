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
"""File system types. WAL needs memory shared by all processes that open the file (https://sqlite.org/wal.html). None of
these types shares memory between machines, and several not even between processes. ``fuse.NAME`` counts too (sshfs,
s3fs, glusterfs, bind mounts of desktop container tools); ``fuseblk`` is a local disk."""


def is_shared_disk(path: Path, mounts: str | None = None) -> bool:
    """Whether ``path`` is on a network or virtual machine file system. ``mounts`` is the text of /proc/self/mountinfo;
    where there is none (macOS, Windows), the answer is False."""
    kind = _kind(path.resolve(), mounts if mounts is not None else _mountinfo())
    return kind in _SHARED or kind.startswith("fuse.")


def _kind(path: Path, mounts: str) -> str:
    """Return the file system type of the innermost mount. Of two mounts at one place the later one covers the
    earlier."""
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
