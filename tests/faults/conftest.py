from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.jupyter_ext.conftest import agent_server

__all__ = ["agent_server"]

SmallDisk = Callable[[str, int], Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """``small_disk(name, megabytes)`` returns a directory with a file system of that size; needs the right to mount."""
    mounted: list[Path] = []

    def mount(name: str, megabytes: int) -> Path:
        point = tmp_path / name
        point.mkdir(parents=True, exist_ok=True)
        size = f"size={megabytes}m"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", point], capture_output=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
        mounted.append(point)
        return point

    yield mount
    for point in mounted:
        subprocess.run(["umount", "-l", point], check=True)
