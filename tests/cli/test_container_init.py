"""Tests the first process of a container, with a process that orphans are reparented to."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.narrowing import not_none

PLAY = """
import ctypes, fcntl, os, signal, subprocess, sys, termios, time
from agent_kernel.cli import container_init
ctypes.CDLL(None).prctl(36, 1)  # orphans come here
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
def work():
    {work}
sys.exit(container_init.run(work))
"""
ORPHANS = """
    for _ in range(5):
        subprocess.run(["sh", "-c", "sleep 0.05 &"], check=True)
    parent, until = os.getppid(), time.monotonic() + 20
    while time.monotonic() < until:
        children = open(f"/proc/{parent}/task/{parent}/children").read().split()
        if time.monotonic() > until - 19 and children == [str(os.getpid())]:
            return 7
        time.sleep(0.05)
    return 1
"""
WAITS = """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    print("ready", flush=True)
    time.sleep(30)
    return 1
"""
COUNTS = """
    interrupts = []
    signal.signal(signal.SIGINT, lambda *_: interrupts.append(1))
    print("ready", flush=True)
    until = time.monotonic() + 20
    while not interrupts and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.3)
    return 40 + len(interrupts)
"""
DIES = """
    os.kill(os.getpid(), signal.SIGKILL)
"""


def play(work: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", PLAY.format(work=work)], stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="orphans go elsewhere")
def test_orphans_are_ended_properly_and_the_status_is_that_of_the_work() -> None:
    with play(ORPHANS) as process:
        assert process.wait(30) == 7


def test_a_signal_is_handed_on() -> None:
    with play(WAITS) as process:
        assert not_none(process.stdout).readline() == "ready\n"
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 5


def test_work_that_is_killed_is_told_as_a_shell_does() -> None:
    with play(DIES) as process:
        assert process.wait(30) == 128 + signal.SIGKILL


def test_ctrl_c_in_a_terminal_interrupts_the_work_once() -> None:
    """The terminal sends SIGINT to every process of its foreground group; the work must not be one of them."""
    terminal, other = pty.openpty()
    command = [sys.executable, "-c", PLAY.format(work=COUNTS)]
    with subprocess.Popen(command, stdin=other, stdout=subprocess.PIPE, start_new_session=True, text=True) as process:
        assert not_none(process.stdout).readline() == "ready\n"
        os.write(terminal, b"\x03")
        assert process.wait(30) == 41
    os.close(terminal)
    os.close(other)
