"""Tests which disks get a rollback journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.sessions.shared_disk import is_shared_disk

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:30 / /home rw shared:2 - nfs4 server:/home rw
31 30 0:31 / /home/ann/local rw - xfs /dev/sdb rw
32 22 0:32 / /mnt/with\\040blank rw - cifs //host/share rw
33 22 0:33 / /mnt/c rw - 9p drvfs rw
34 22 0:34 / /mnt/ntfs rw - fuseblk /dev/sdc rw
35 22 0:35 / /mnt/ssh rw - fuse.sshfs host: rw
36 22 0:36 / /mnt/over rw - ext4 /dev/sdd rw
37 22 0:37 / /mnt/over rw - nfs server:/over rw
38 22 0:38 / /mnt/é rw - virtiofs tag rw
a line of another kind
"""


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/var/lib/s.db", False),
        ("/home/ann/s.db", True),
        ("/home", True),
        ("/homework/s.db", False),
        ("/home/ann/local/s.db", False),
        ("/mnt/with blank/s.db", True),
        ("/mnt/c/Users/s.db", True),
        ("/mnt/ntfs/s.db", False),
        ("/mnt/ssh/s.db", True),
        ("/mnt/over/s.db", True),
        ("/mnt/é/s.db", True),
    ],
)
def test_the_innermost_mount_decides(path: str, shared: bool) -> None:
    assert is_shared_disk(Path(path), MOUNTS) is shared


def test_without_a_mount_table_a_disk_counts_as_local() -> None:
    assert not is_shared_disk(Path("/home/ann/s.db"), "")


def test_this_systems_own_table_can_be_read(tmp_path: Path) -> None:
    assert is_shared_disk(tmp_path) in (True, False)
