"""The command with streams that are closed, full, or in another encoding, and with a file as its data directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_kernel.__main__ import main as start
from tests.cli.conftest import Command

FULL = Path("/dev/full")


def run(shell: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``agent-kernel`` with the arguments and redirections of ``shell``."""
    line = f"{sys.executable} -m agent_kernel {shell}"
    return subprocess.run(["sh", "-c", line], env=os.environ | env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_error(command: Command, closed: str) -> None:
    ended = run(f"sessions {closed}")
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False)


def test_what_belongs_to_a_closed_stderr_does_not_go_to_stdout(command: Command) -> None:
    assert run("sessions 2>&-").stdout == ""


@pytest.mark.skipif(not FULL.exists(), reason="Linux only")
def test_a_full_disk_is_one_line(command: Command) -> None:
    ended = run(f"where --json > {FULL}")
    assert (ended.returncode, ended.stderr) == (1, "agent-kernel: No space left on device.\n")


def test_text_that_the_output_cannot_show_has_question_marks(command: Command, tmp_path: Path) -> None:
    ended = run("where", AGENT_KERNEL_CACHE_DIR=str(tmp_path / "caché"), PYTHONIOENCODING="ascii")
    assert (ended.returncode, ended.stderr) == (0, "agent-kernel stores no data on this machine.\n")
    (tmp_path / "caché" / "models").mkdir(parents=True)
    ended = run("where", AGENT_KERNEL_CACHE_DIR=str(tmp_path / "caché"), PYTHONIOENCODING="ascii")
    assert (ended.returncode, "cach?" in ended.stdout) == (0, True)


@pytest.mark.parametrize("arguments", [("sessions",), ("ask", "hello"), ("skills", "list"), ("token", "list")])
def test_a_file_as_data_directory_is_named_in_one_line(
    command: Command, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "file").touch()
    ended = command(*arguments, "--data-dir", str(tmp_path / "file"))
    reason = f"The data directory {tmp_path / 'file'} is a file. Use another --data-dir."
    assert (ended.status, ended.err) == (1, f"agent-kernel: {reason}\n")


def test_ctrl_c_while_the_command_is_imported_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "agent_kernel.cli":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if name.startswith("agent_kernel.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert start() == 130
    assert capsys.readouterr().err == "agent-kernel: stopped.\n"
