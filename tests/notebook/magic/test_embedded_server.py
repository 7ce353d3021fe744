"""Tests a kernel without a server of ours: it starts one for itself, which ends with it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.notebook.alone import own_environment
from tests.notebook.notebook import Notebook
from tests.server import Json

SCRIPT: list[Json] = [
    {"when": "in the kernel", "calls": [{"name": "python", "arguments": {"code": "made = 6 * 7\nprint(made)"}}]},
    {"text": "At your service.", "loop": True},
]
STORY = """
import os
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "agent_kernel")
def run(code):
    print("###", code.splitlines()[0])
    shell.run_cell(code)
    print(flush=True)
"""
ONE = """
run("%agent status")
shell.user_ns["__vsc_ipynb_file__"] = NOTEBOOK
run("%agent start")
run("%agent start")
run("%%agent --in live\\nin the kernel")
run("made + 1")
run("%agent status")
run("print([name for name in __import__('os').environ if 'TOKEN' in name or 'ADOPTS' in name])")
run("%agent stop server")
run("%agent stop server")
run("%%agent\\nhello")
"""
KILLED = """
run("%agent start")
print("PID", shell.magics_manager.registry["AgentMagics"]._context.embedded._process.pid, flush=True)
import time
time.sleep(60)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each line of the story printed, in order; the first element is the output before it."""
    directory = tmp_path_factory.mktemp("own")
    notebook = directory / "mine.ipynb"
    notebook.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    story = STORY + ONE.replace("NOTEBOOK", repr(str(notebook)))
    done = subprocess.run(
        [sys.executable, "-c", story],
        capture_output=True,
        text=True,
        cwd=directory,
        env=own_environment(directory, SCRIPT),
        check=True,
    )
    return done.stdout.split("### ")


def test_without_a_server_the_way_to_one_is_named(told: list[str]) -> None:
    assert "This kernel was not started by a Jupyter server with agent-kernel. %agent start starts a server" in told[1]


def test_start_says_what_it_does_and_what_it_costs_and_twice_is_harmless(told: list[str]) -> None:
    assert "Started a server for this kernel: process " in told[2]
    assert "listens on this machine only (http://127.0.0.1:" in told[2]
    assert "and ends when the kernel ends." in told[2]
    assert "The server of this kernel is already running at http://127.0.0.1:" in told[3]
    assert "Starting" not in told[3]


def test_a_turn_runs_its_code_in_the_kernel_and_belongs_to_the_notebook_of_the_front_end(told: list[str]) -> None:
    assert "made = 6 * 7" in told[4]
    assert "42" in told[4]
    assert "At your service." in told[4]
    assert "43" in told[5]
    assert "mine.ipynb" in told[6]


def test_no_program_of_the_person_inherits_a_token(told: list[str]) -> None:
    assert "[]" in told[7]


def test_stop_server_ends_it_and_a_turn_says_how_to_go_on(told: list[str]) -> None:
    assert "is stopped; its conversations stay stored." in told[8]
    assert "No server was stopped" in told[9]
    assert "%agent start starts a server" in told[10]


def test_the_server_ends_with_a_kernel_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STORY + KILLED],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=own_environment(tmp_path, SCRIPT),
    ) as kernel:
        assert kernel.stdout is not None
        told = next(line for line in kernel.stdout if line.startswith("PID"))
        server = int(told.split()[1])
        assert _runs(server)
        kernel.send_signal(signal.SIGKILL)
    for _ in range(200):
        if not _runs(server):
            return
        time.sleep(0.1)
    raise AssertionError("the server outlives its kernel")


async def test_a_kernel_that_has_a_server_starts_none(notebook: Notebook) -> None:
    ran = await notebook.run("%agent start")
    assert ran.plain == f"This kernel already has a server: {notebook.server.url}"


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
