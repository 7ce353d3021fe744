"""Builds and installs a seccomp filter that refuses system calls which agent code does not need and a jail must not
offer.

``compile_program`` has no side effects: it translates rules to BPF code. ``install`` puts the code in force for this
process and its children, permanently.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent_kernel.sandbox.jail.raw_syscalls import numbers, prctl

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN, _JUMP = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06, 0x05
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X32_BIT = 0x40000000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_NEW_NAMESPACES = 0x7E020080
"""Flags of clone that create a namespace: CLONE_NEWTIME | NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID |
NEWNET."""

NEVER = [
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "lookup_dcookie",
    "memfd_secret",
    "migrate_pages",
    "modify_ldt",
    "mount",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "name_to_handle_at",
    "nfsservctl",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "unshare",
    "userfaultfd",
    "vhangup",
]
_UNCOUNTED = ["memfd_create", "msgget", "shmget"]
"""System calls that create memory that belongs to no process. Only a control group counts such memory."""
_SHARED_WITH_HOST = [
    "connect",
    "ioprio_set",
    "mq_open",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "setpriority",
    "shmat",
    "shmctl",
    "shmget",
    "socket",
    "truncate",
]
"""Without namespaces, these system calls reach processes, sockets and memory of the same user outside the jail."""
_SIGNALS = ["pidfd_open", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tkill"]
"""System calls that reach processes outside the jail by signals, if Landlock does not restrict signals (before ABI
6)."""
_PRETEND = [
    "chmod",
    "chown",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "fremovexattr",
    "fsetxattr",
    "futimesat",
    "lchown",
    "lremovexattr",
    "lsetxattr",
    "removexattr",
    "removexattrat",
    "setpgid",
    "setsid",
    "setxattr",
    "setxattrat",
    "utime",
    "utimensat",
    "utimes",
]
"""System calls that change the mode, the owner, the times or the extended attributes of a file, which Landlock does not
restrict. Without read-only mounts they return success but do nothing, because libraries do not expect them to fail on
their own files (``shutil.copy``). setpgid and setsid are included so that all processes stay in one group, which can be
killed at once.
"""
_SOCKETS = {"none": (socket.AF_UNIX,), "loopback": (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)}
_SOCKETS["full"] = _SOCKETS["loopback"]
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_SET_ID = 0o6000
_MODES = {
    "chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2,
    "creat": 1, "open": 2, "openat": 3, "mknod": 1, "mknodat": 2,
}  # fmt: skip
"""System calls that set the mode of a file, with the index of the argument that is the mode. A file with the
set-user-id bit would keep this bit outside the jail too."""
_EVERYBODY = 0xFFFFFFFF
_OWNERS, _OWNERS_TOO = (8, 15), (0x8901, 0x8902)
"""Commands of fcntl (F_SETOWN, F_SETOWN_EX) and ioctl (FIOSETOWN, SIOCSPGRP) that choose a process. The kernel sends it
a signal whenever input arrives."""


class Condition(NamedTuple):
    """A condition on one argument of a system call: on its low 32 bits, after a bitwise AND with ``mask``. ``kind`` is
    ``among`` (equal to one of the values), ``none_of`` (equal to none of them) or ``bits`` (any of the bits set)."""

    argument: int
    kind: str
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


class Rule(NamedTuple):
    """Refuses the system call ``call`` with the error number ``code``; with 0 the call returns success and does
    nothing. ``test`` is a condition on one argument of the call; without it the call is always refused. With a ``test``
    of the kind ``among`` or ``none_of`` the call is refused if the condition is not met, with ``bits`` if it is met."""

    call: str
    code: int = errno.EPERM
    test: Condition | None = None


def rules(*, isolated: bool, pid: int, network: str = "none", counted: bool = True, scoped: bool = False) -> list[Rule]:
    """Return the rules of a jail. ``isolated`` means that namespaces and mounts are in force. Without them, the code
    may signal only ``pid``, unless Landlock restricts signals (``scoped``). ``counted`` means that a control group
    counts all memory."""
    refused = [Rule(name) for name in (*NEVER, *(() if counted else _UNCOUNTED))]
    refused += [
        Rule("clone3", errno.ENOSYS),
        Rule("clone", test=Condition(0, "bits", (_NEW_NAMESPACES,))),
    ]
    refused += [Rule(name, test=Condition(argument, "bits", (_SET_ID,))) for name, argument in _MODES.items()]
    # openat2 and clone3 pass their flags in memory, where a filter cannot read them; with ENOSYS, libraries fall back
    # to openat and clone
    refused.append(Rule("openat2", errno.ENOSYS))
    # TIOCSTI and TIOCLINUX could push input into the terminal of the server.
    refused.append(Rule("ioctl", test=Condition(1, "none_of", (_TIOCSTI, _TIOCLINUX))))
    if isolated:
        return [
            *refused,
            Rule("socket", test=Condition(0, "among", tuple(int(family) for family in _SOCKETS[network]))),
        ]
    refused += [Rule(name) for name in _SHARED_WITH_HOST] + [Rule(name, 0) for name in _PRETEND]
    refused += [
        Rule("socketpair", test=Condition(1, "among", (int(socket.SOCK_STREAM),), mask=0xF)),
        Rule("prlimit64", test=Condition(0, "among", (0, pid))),
    ]
    if scoped:
        # kill(-1) signals every process of the user. Landlock's scope refuses all other signals out of the jail.
        return [*refused, Rule("kill", test=Condition(0, "none_of", (_EVERYBODY,)))]
    refused += [Rule(name) for name in _SIGNALS]
    refused += [
        Rule("fcntl", test=Condition(1, "none_of", _OWNERS)),
        Rule("ioctl", test=Condition(1, "none_of", _OWNERS_TOO)),
    ]
    return [
        *refused,
        Rule("kill", test=Condition(0, "among", (0, pid))),
        Rule("tgkill", test=Condition(0, "among", (pid,))),
    ]


def compile_program(filter_rules: Iterable[Rule], machine: str, table: dict[str, int]) -> bytes:
    """Return the BPF program for the rules. ``machine`` is the architecture. ``table`` maps names to system call
    numbers; rules for calls that are not in the table are left out."""
    # Instructions are (code, jump if true, jump if false, operand); jumps are relative to the next instruction. Offsets
    # in struct seccomp_data: 0 number, 4 architecture, 16 arguments. Another architecture has other call numbers, so it
    # is killed.
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _ARCH[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    # The x32 ABI has call numbers of its own, marked by one bit. Refuse all of them.
    if machine == "x86_64":
        code += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    for rule in filter_rules:
        if rule.call in table:
            body = _body(rule)
            # Skip the body of the rule if the number differs.
            code += [(_EQUAL, 0, len(body), table[rule.call]), *body]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _body(rule: Rule) -> list[tuple[int, int, int, int]]:
    """Return the instructions of one rule as (code, jump if true, jump if false, value). If the rule does not refuse
    the call, the instructions load the call number again for the next rule."""
    refuse = (_RETURN, 0, 0, _ERRNO | rule.code)
    if rule.test is None:
        return [refuse]
    test, again = rule.test, (_LOAD, 0, 0, 0)
    # Arguments are 64 bits wide; the low half comes first on both (little-endian) architectures.
    load = [(_LOAD, 0, 0, 16 + 8 * test.argument), (_AND, 0, 0, test.mask)]
    if test.kind == "bits":
        return [*load, (_ANY_BIT, 0, 1, test.values[0]), refuse, again]
    count = len(test.values)
    if test.kind == "none_of":
        # A matching value jumps over the reload and the jump, to the refusal at the end.
        compare = [(_EQUAL, count - index + 1, 0, value) for index, value in enumerate(test.values)]
        return [*load, *compare, again, (_JUMP, 0, 0, 1), refuse]
    # A matching value jumps over the refusal, to the reload.
    compare = [(_EQUAL, count - index, 0, value) for index, value in enumerate(test.values)]
    return [*load, *compare, refuse, again]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_void_p))


def install(filter_rules: Sequence[Rule], network: str) -> str:
    """Install the filter and return a description of it. ``network`` is the network mode. Requires no_new_privs. Raises
    OSError."""
    load(compile_program(filter_rules, platform.machine(), numbers()))
    return f"{len(filter_rules)} rules; {_SOCKETS_IN_WORDS[network]}"


def load(code: bytes) -> None:
    """Install a BPF program as the filter of this process and of all processes that it starts. Raises OSError."""
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_ = _Program(len(code) // 8, ctypes.addressof(buffer))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(filter_))


_SOCKETS_IN_WORDS = {
    "": "no sockets",
    "none": "no sockets but unix ones inside the jail",
    "loopback": "sockets: unix, IP inside the jail",
    "full": "sockets: unix, IP inside the jail",
}
