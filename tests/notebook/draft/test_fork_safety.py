"""Tests for which kernels no draft is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.notebook.draft import fork_safety


@pytest.mark.parametrize(
    ("used", "cached", "problem"),
    [
        (100 << 20, 0, ""),
        (8 << 30, 7 << 30, ""),  # a container in which large files were read
        (8 << 30, 1 << 20, "of memory are free"),
    ],
)
def test_memory_that_holds_files_is_free_for_a_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: int, cached: int, problem: str
) -> None:
    monkeypatch.setattr(fork_safety, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text(f"{8 << 30}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    (tmp_path / "memory.stat").write_text(f"anon {used - cached}\ninactive_file {cached}\nactive_file 0\n")
    reason = fork_safety.memory_problem()
    assert problem in reason
    assert bool(problem) == bool(reason)
