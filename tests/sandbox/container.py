"""Runs a command as a hub's pod does: without CAP_SYS_ADMIN, under the default seccomp profile of Docker and
containerd, and as an ordinary user if one is given. Only root can run it, because it gives up rights.

``python container.py [--user UID] COMMAND ...``. The profile refuses what ``REFUSED`` lists to a container with the
default capabilities. Source: ``profiles/seccomp/default.json`` of moby, 2023 and later, which allows Landlock.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
import sys

from agent_kernel.sandbox.jail import seccomp
from agent_kernel.sandbox.jail.raw_syscalls import numbers, prctl, syscall
from agent_kernel.sandbox.jail.seccomp import Condition, Rule

CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
"""chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod,
audit_write, setfcap."""
REFUSED = (
    *("acct", "add_key", "bpf", "clock_settime", "delete_module", "fanotify_init", "finit_module", "fsconfig"),
    *("fsmount", "fsopen", "fspick", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm"),
    *("iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "migrate_pages", "mount"),
    *("mount_setattr", "move_mount", "move_pages", "name_to_handle_at", "nfsservctl", "open_by_handle_at", "open_tree"),
    *("perf_event_open", "pidfd_getfd", "pivot_root", "process_madvise", "quotactl", "quotactl_fd", "reboot"),
    *("request_key", "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog", "umount2"),
    *("unshare", "userfaultfd", "vhangup"),
)
NAMESPACES = 0x7E020000
DROP_FROM_BOUNDING_SET, SET_SECCOMP, FILTER, NO_NEW_PRIVILEGES = 24, 22, 2, 38


def profile() -> list[Rule]:
    rules = [Rule(name) for name in REFUSED] + [Rule("clone3", errno.ENOSYS)]
    return [*rules, Rule("clone", test=Condition(0, "bits", (NAMESPACES,)))]


def enter(user: int | None) -> None:
    """Apply the restrictions of a container to this process. Raises OSError."""
    seccomp.load(seccomp.compile_program(profile(), platform.machine(), numbers()))
    for capability in set(range(41)) - set(CAPABILITIES):
        prctl(DROP_FROM_BOUNDING_SET, capability)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        prctl(NO_NEW_PRIVILEGES, 1)
        return
    kept = sum(1 << capability for capability in CAPABILITIES)
    syscall("capset", struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0))


def main() -> None:
    words = sys.argv[1:]
    user = int(words[1]) if words[0] == "--user" else None
    enter(user)
    command = words[2:] if user is not None else words
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
