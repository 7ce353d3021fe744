"""Tests how much memory is available: that of the machine, of control groups of both versions, and which processes use
the rest.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent_kernel.engines.local.system_memory import GIB, Memory, largest_processes, read_memory, resident_bytes

MIB = 2**20


def machine(root: Path, total: int = 16 * GIB, available: int = 10 * GIB, group: str = "0::/") -> tuple[Path, Path]:
    """Create a /proc and a /sys/fs/cgroup directory for a machine with this memory. Return both."""
    proc, groups = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    groups.mkdir()
    facts = f"MemTotal: {total // 1024} kB\nMemFree: 1 kB\nMemAvailable: {available // 1024} kB\nHugePages_Total: 0\n"
    (proc / "meminfo").write_text(facts)
    (proc / "self" / "cgroup").write_text(f"{group}\n")
    return proc, groups


def limit_memory(folder: Path, most: str, used: int, reclaimable: int, *, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = {2: ("memory.max", "memory.current", ""), 1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")}
    limit, usage, prefix = names[version]
    (folder / limit).write_text(f"{most}\n")
    (folder / usage).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 7\n{prefix}inactive_file {reclaimable}\n{prefix}active_file 9\n")


def test_without_limits_it_is_what_the_machine_has(tmp_path: Path) -> None:
    assert read_memory(*machine(tmp_path)) == Memory(16 * GIB, 10 * GIB)


def test_a_control_group_limits_what_can_be_taken(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, group="0::/user/app")
    limit_memory(groups / "user" / "app", str(4 * GIB), 3 * GIB, GIB // 2)
    assert read_memory(proc, groups) == Memory(4 * GIB, GIB + GIB // 2)


def test_the_limit_of_a_group_further_up_counts_too(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, group="0::/user/app")
    limit_memory(groups / "user" / "app", "max", 0, 0)
    limit_memory(groups / "user", str(2 * GIB), GIB, 0)
    assert read_memory(proc, groups) == Memory(2 * GIB, GIB)


def test_groups_of_the_first_version_are_read_too(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, group="5:devices:/x\n4:cpu,memory:/box\n0::/")
    limit_memory(groups / "memory" / "box", str(3 * GIB), GIB, 0, version=1)
    limit_memory(groups / "memory", "9223372036854771712", 9 * GIB, 0, version=1)
    assert read_memory(proc, groups) == Memory(3 * GIB, 2 * GIB)


def test_in_a_container_the_groups_path_is_one_of_the_host_and_the_limit_stands_at_the_root(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, group="0::/../../docker/abc")
    limit_memory(groups, str(GIB), 2 * GIB, 0)
    assert read_memory(proc, groups) == Memory(GIB, 0)


def test_where_the_system_does_not_say_nothing_is_known(tmp_path: Path) -> None:
    assert read_memory(tmp_path / "none", tmp_path) is None
    (tmp_path / "meminfo").write_text("something else")
    assert read_memory(tmp_path, tmp_path) is None


@pytest.mark.parametrize(
    ("total", "setting", "reserve"), [(4 * GIB, 0.0, GIB), (64 * GIB, 0.0, int(6.4 * GIB)), (64 * GIB, 0.5, GIB // 2)]
)
def test_a_tenth_stays_for_the_person_and_a_gibibyte_at_least(total: int, setting: float, reserve: int) -> None:
    assert Memory(total, total).reserve(setting) == reserve


def program(proc: Path, pid: int, size: int, *command: str, **environment: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "status").write_text(f"Name:\tpython\nRssAnon:\t{size // 1024} kB\n")
    (folder / "cmdline").write_text("\0".join(command))
    (folder / "environ").write_text("\0".join(f"{name}={value}" for name, value in environment.items()))


def test_who_holds_most_is_named_as_a_person_knows_it(tmp_path: Path) -> None:
    kernel = ("python", "-m", "ipykernel_launcher", "-f", "/run/kernel-0a1b-2c.json")
    program(tmp_path, 11, 6 * GIB, *kernel, JPY_SESSION_NAME="/home/me/train.ipynb")
    program(tmp_path, 12, GIB, "/usr/bin/postgres")
    program(tmp_path, 13, 2 * GIB, *kernel)
    program(tmp_path, 14, 10 * MIB, "small")
    program(tmp_path, 15, 9 * GIB, "ourselves")
    found = largest_processes(tmp_path, own=frozenset({15}))
    assert [holder.name for holder in found] == ["the kernel of train.ipynb", "a kernel", "postgres (process 12)"]
    assert found[0].size == 6 * GIB


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read on Linux only")
def test_a_real_process_is_seen_to_hold_what_it_holds() -> None:
    code = f"data = bytearray({300 * MIB}); print('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 300 * MIB <= resident_bytes(process.pid) < 400 * MIB
        process.communicate(b"\n")
    assert resident_bytes(process.pid) == 0
