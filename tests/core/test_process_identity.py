"""Tests whether an owner is still alive: only a pid of the same machine and boot can decide it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent_kernel.core import process_identity
from agent_kernel.core.session import Owner

NOW = time.time()
linux = pytest.mark.skipif(not process_identity.boot_id(), reason="this system has no boot id")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def owner_of(pid: int) -> Owner:
    return replace(Owner.here(), pid=pid, started=process_identity.start_time(pid))


def test_this_process_lives() -> None:
    assert not Owner.here().is_provably_dead(NOW)


def test_two_starts_of_one_process_are_two_owners() -> None:
    assert Owner.here().instance != Owner.here().instance


def test_a_running_process_lives_and_a_gone_one_is_dead(child: subprocess.Popen[bytes]) -> None:
    owner = owner_of(child.pid)
    assert not owner.is_provably_dead(NOW)
    child.kill()
    child.wait()
    assert owner.is_provably_dead(NOW)


@linux
def test_a_zombie_is_dead(child: subprocess.Popen[bytes]) -> None:
    owner = owner_of(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner.is_provably_dead(NOW)


@linux
def test_a_reused_pid_is_another_process(child: subprocess.Popen[bytes]) -> None:
    assert replace(owner_of(child.pid), started="1").is_provably_dead(NOW)


@linux
def test_a_pid_of_another_namespace_is_not_judged() -> None:
    gone = replace(Owner.here(), pid=2**22 + 5)
    assert gone.is_provably_dead(NOW)
    assert not replace(gone, pid_namespace="pid:[1]").is_provably_dead(NOW)


@linux
def test_another_machine_is_not_judged() -> None:
    assert not replace(Owner.here(), boot="another", machine="another", pid=2**22 + 5).is_provably_dead(0)
    assert not replace(Owner.here(), boot="another", machine="", pid=2**22 + 5).is_provably_dead(0)


@linux
def test_an_earlier_boot_of_this_machine_is_dead_unless_it_was_seen_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_identity, "machine_id", lambda: "this machine")
    booted = process_identity.boot_time()
    assert booted is not None
    earlier = replace(Owner.here(), boot="another boot")
    assert earlier.is_provably_dead(booted - 1)
    assert not earlier.is_provably_dead(booted + 1), "a clone of this machine is running"


def test_an_owner_of_a_system_without_facts_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("boot_id", "machine_id", "pid_namespace"):
        monkeypatch.setattr(process_identity, name, lambda: "")
    assert not replace(Owner.here(), pid=2**22 + 5).is_provably_dead(0)


def test_a_pid_no_system_has_does_not_break_judging() -> None:
    for pid in (2**31 - 1, 2**40):
        assert isinstance(replace(Owner.here(), pid=pid).is_provably_dead(NOW), bool)
