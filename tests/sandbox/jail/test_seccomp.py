"""Tests the seccomp filter by running it with a small interpreter of its instructions."""

from __future__ import annotations

import errno
import struct
import sys

import pytest

from agent_kernel.sandbox.jail import seccomp

if sys.platform != "linux":
    pytest.skip("the sandbox needs Linux", allow_module_level=True)

from agent_kernel.sandbox.jail.raw_syscalls import _TABLES

ALLOW, PRETEND = "allow", "pretend"
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def decide(program: bytes, number: int, args: tuple[int, ...], arch: int) -> str | int:
    """Return the kernel's decision: allow, kill, pretend or an errno."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *(arg & 0xFFFFFFFFFFFFFFFF for arg in (*args, 0, 0, 0, 0, 0, 0)[:6]))
    at, value = 0, 0
    while True:
        code, yes, no, k = map(int, struct.unpack_from("=HBBI", program, 8 * at))
        at += 1
        if code == 0x20:
            value = int(struct.unpack_from("=I", data, k)[0])
        elif code == 0x54:
            value &= k
        elif code == 0x05:
            at += k
        elif code == 0x06:
            return {0x7FFF0000: ALLOW, 0x80000000: "kill", 0x00050000: PRETEND}.get(k, k & 0xFFFF)
        else:
            met = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[code]
            at += yes if met else no


@pytest.fixture(params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(machine: str, call: str, *args: int, isolated: bool = True) -> str | int:
    table = _TABLES[machine]
    program = seccomp.compile_program(seccomp.rules(isolated=isolated, pid=77), machine, table)
    return decide(program, table[call], args, ARCH[machine])


@pytest.mark.parametrize("call", seccomp.NEVER)
def test_calls_that_no_code_needs_are_refused(machine: str, call: str) -> None:
    if call in _TABLES[machine]:
        assert ask(machine, call) == errno.EPERM
    else:
        assert machine == "aarch64"


def test_only_unix_sockets_are_made(machine: str) -> None:
    assert ask(machine, "socket", 1, 1) == ALLOW
    assert [ask(machine, "socket", family, 1) for family in (2, 10, 16, 17, 40)] == [errno.EPERM] * 5


def test_threads_and_processes_are_made_but_no_namespaces(machine: str) -> None:
    assert ask(machine, "clone", 17) == ALLOW
    assert ask(machine, "clone", 0x3D0F00) == ALLOW
    assert ask(machine, "clone", 0x10000000 | 17) == errno.EPERM
    assert ask(machine, "clone3") == errno.ENOSYS


def test_without_namespaces_only_oneself_can_be_signalled(machine: str) -> None:
    assert [ask(machine, "kill", pid, 9, isolated=False) for pid in (77, 0)] == [ALLOW, ALLOW]
    assert [ask(machine, "kill", pid, 9, isolated=False) for pid in (1, 78, -1)] == [errno.EPERM] * 3
    assert ask(machine, "kill", 78, 9) == ALLOW
    assert ask(machine, "tgkill", 77, 78, 6, isolated=False) == ALLOW
    assert ask(machine, "tgkill", 78, 78, 6, isolated=False) == errno.EPERM
    assert ask(machine, "prlimit64", 78, 7, isolated=False) == errno.EPERM


def test_without_namespaces_sockets_are_pairs_of_streams(machine: str) -> None:
    assert ask(machine, "socket", 1, 1, isolated=False) == errno.EPERM
    assert ask(machine, "socketpair", 1, 1 | 0o2000000, isolated=False) == ALLOW
    assert ask(machine, "socketpair", 1, 2, isolated=False) == errno.EPERM


def test_without_mounts_changes_of_mode_and_time_have_no_effect(machine: str) -> None:
    assert ask(machine, "fchmodat", isolated=False) == PRETEND
    assert ask(machine, "utimensat", isolated=False) == PRETEND
    assert ask(machine, "fchmodat") == ALLOW


def test_another_architecture_is_killed_and_its_numbers_are_refused() -> None:
    program = seccomp.compile_program(seccomp.rules(isolated=True, pid=1), "x86_64", _TABLES["x86_64"])
    assert decide(program, 0, (), 0x40000003) == "kill"
    assert decide(program, 0x40000000 | 41, (), ARCH["x86_64"]) == errno.EPERM
