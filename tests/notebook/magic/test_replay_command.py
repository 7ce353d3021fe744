"""Tests ``%agent replay FILE`` while its command runs: where the file is, and what an interrupt stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic import replay_command

PATIENT = """
import os, signal, subprocess, sys, time
from pathlib import Path

def end(*_):
    Path("ended").write_text("by an interrupt")
    sys.exit(1)

signal.signal(signal.SIGINT, end if sys.argv[1] == "ends" else signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path("child").write_text(str(child.pid))
print("it runs", flush=True)
time.sleep(600)
"""


class Interrupting:
    """A cell's output; the user interrupts as soon as something is written to it."""

    def write(self, text: str) -> int:
        raise KeyboardInterrupt

    def flush(self) -> None: ...


@pytest.mark.parametrize("behaves", ["ends", "stays"])
def test_an_interrupt_asks_first_and_then_ends_all_of_it(
    behaves: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = subprocess.Popen

    def patient(command: list[str], **given: object) -> subprocess.Popen[str]:
        return begin([sys.executable, "-c", PATIENT, behaves], **given)  # type: ignore[call-overload, no-any-return]

    (tmp_path / "a.agent.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(replay_command, "STOP_S", 5.0 if behaves == "ends" else 0.2)
    monkeypatch.setattr(subprocess, "Popen", patient)
    monkeypatch.setattr(sys, "stdout", Interrupting())
    with pytest.raises(KeyboardInterrupt):
        replay_command.replay("a.agent.json")
    assert (tmp_path / "ended").exists() == (behaves == "ends"), "it had the time to end what it began"
    assert _is_gone(int((tmp_path / "child").read_text()))


def test_a_file_in_the_home_directory_is_handed_on_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.agent.json").write_text("{}")
    with pytest.raises(AgentError):
        replay_command.replay("~/a.agent.json")
    assert "it has no messages" in capsys.readouterr().out, "the file was read"


def _is_gone(process: int) -> bool:
    """Return True once the process has ended or only waits to be reaped."""
    for _ in range(100):
        try:
            os.kill(process, 0)
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        threading.Event().wait(0.05)
    os.kill(process, signal.SIGKILL)
    return False
