"""The directories in which the layers of the sandbox are tested."""

from __future__ import annotations

import os
import time
from pathlib import Path

from agent_kernel.sandbox.host.jail_factory import remove_old_probes


def test_directories_of_tests_whose_process_was_killed_are_removed_later(tmp_path: Path) -> None:
    for name, age_s in (("probe-1-aa", 7200), ("probe-2-bb", 5), ("b161ac4364a542bd", 7200)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    remove_old_probes(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b161ac4364a542bd", "probe-2-bb"]
    remove_old_probes(tmp_path / "missing")
