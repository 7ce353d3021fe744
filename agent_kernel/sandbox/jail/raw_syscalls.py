"""Calls system calls by name, through ctypes, that the standard library does not wrap (x86_64 and aarch64).

Runs inside the jailed process; standard library only. The numbers come from the kernel's tables
(``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h``).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from typing import Any

_BOTH = {
    "openat2": 437, "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
    "quotactl_fd": 443, "memfd_secret": 447, "landlock_create_ruleset": 444, "landlock_add_rule": 445,
    "landlock_restrict_self": 446, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466, "open_tree_attr": 467,
}  # fmt: skip
_X86_64 = {
    "open": 2, "creat": 85, "mknod": 133, "openat": 257, "mknodat": 259, "ioctl": 16, "fcntl": 72, "shmget": 29,
    "shmat": 30, "shmctl": 31, "socket": 41, "connect": 42, "socketpair": 53, "clone": 56, "kill": 62, "semget": 64,
    "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "truncate": 76, "chmod": 90,
    "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101, "syslog": 103, "setpgid": 109, "setsid": 112,
    "capset": 126, "rt_sigqueueinfo": 129, "utime": 132, "setpriority": 141, "sched_setparam": 142,
    "sched_setscheduler": 144, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159, "chroot": 161,
    "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
    "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176,
    "quotactl": 179, "nfsservctl": 180, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197,
    "lremovexattr": 198, "fremovexattr": 199, "tkill": 200, "sched_setaffinity": 203, "lookup_dcookie": 212,
    "semtimedop": 220, "clock_settime": 227, "tgkill": 234, "utimes": 235, "mq_open": 240, "mq_unlink": 241,
    "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "ioprio_set": 251, "migrate_pages": 256,
    "fchownat": 260, "futimesat": 261, "fchmodat": 268, "unshare": 272, "move_pages": 279, "utimensat": 280,
    "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
    "kcmp": 312, "finit_module": 313, "sched_setattr": 314, "kexec_file_load": 320, "memfd_create": 319, "bpf": 321,
    "userfaultfd": 323,
}  # fmt: skip
_AARCH64 = {
    "mknodat": 33, "openat": 56, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15,
    "fremovexattr": 16, "lookup_dcookie": 18, "ioctl": 29, "fcntl": 25, "ioprio_set": 30, "umount2": 39, "mount": 40,
    "pivot_root": 41, "nfsservctl": 42, "truncate": 45, "chroot": 51, "fchmod": 52, "fchmodat": 53, "fchownat": 54,
    "fchown": 55, "vhangup": 58, "quotactl": 60, "utimensat": 88, "acct": 89, "capset": 91, "unshare": 97,
    "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117,
    "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "kill": 129, "tkill": 130,
    "tgkill": 131, "rt_sigqueueinfo": 138, "setpgid": 154, "setsid": 157, "setpriority": 140, "reboot": 142,
    "sethostname": 161, "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "mq_open": 180, "mq_unlink": 181,
    "msgget": 186, "msgctl": 187, "msgrcv": 188, "msgsnd": 189, "semget": 190, "semctl": 191, "semtimedop": 192,
    "semop": 193, "shmget": 194, "shmctl": 195, "shmat": 196, "socket": 198, "socketpair": 199, "connect": 203,
    "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224, "swapoff": 225,
    "migrate_pages": 238, "move_pages": 239, "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "prlimit64": 261,
    "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
    "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "sched_setattr": 274,
    "memfd_create": 279, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
}  # fmt: skip
_TABLES = {"x86_64": _X86_64 | _BOTH, "aarch64": _AARCH64 | _BOTH}

libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def numbers() -> dict[str, int]:
    """Return the numbers of system calls on this machine by name. Raises OSError on an architecture without a table."""
    try:
        return _TABLES[platform.machine()]
    except KeyError:
        raise OSError(errno.ENOSYS, f"no system call table for {platform.machine()}") from None


def check_result(result: int, function_name: str) -> int:
    """Return ``result``, the result of a C function that sets errno. If it signals an error, raise OSError;
    ``function_name`` names the function in the message."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function_name}: {os.strerror(code)}")
    return result


def syscall(name: str, *args: Any) -> int:
    """Call the system call ``name``. Integers are passed as C longs. Raises OSError."""
    assert libc is not None
    longs = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return check_result(int(libc.syscall(ctypes.c_long(numbers()[name]), *longs)), name)


def prctl(option: int, *args: int) -> int:
    """Call prctl with up to four arguments. Raises OSError."""
    assert libc is not None
    values = [ctypes.c_ulong(arg) for arg in (*args, 0, 0, 0, 0)[:4]]
    return check_result(int(libc.prctl(ctypes.c_int(option), *values)), f"prctl {option}")
