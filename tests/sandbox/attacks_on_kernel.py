"""Attacks of hostile code on the system calls and devices of the kernel, and on /proc and /sys.

``barred`` counts a call as blocked only if it was refused with EPERM, EACCES or ENOSYS: an error about its arguments
means that the call was reached. ``attacks.PRELUDE`` fills in the numbers.
"""

from __future__ import annotations


def _call(name: str, *arguments: object) -> str:
    return f"attempt(lambda: barred({name!r}{''.join(f', {argument}' for argument in arguments)}))"


_BUFFER = "ctypes.create_string_buffer(256)"
_CALLS: dict[str, str] = {
    "loads a bpf program": _call("bpf", 5, _BUFFER, 120),
    "makes a bpf map": _call("bpf", 0, "struct.pack('=5I', 1, 4, 4, 1, 0)", 20),
    "counts what the kernel does": _call("perf_event_open", _BUFFER, 0, -1, -1, 0),
    "handles page faults": _call("userfaultfd", 0),
    "adds a key": _call("add_key", "b'user'", "b'x'", "b'y'", 1, -3),
    "asks for a key": _call("request_key", "b'user'", "b'x'", 0, -3),
    "joins a keyring": _call("keyctl", 1, 0),
    "reads the keyring": _call("keyctl", 0, -3, 1),
    "replaces the kernel": _call("kexec_load", 0, 0, 0, 0),
    "replaces the kernel by a file": _call("kexec_file_load", 0, 0, 0, "b''", 0),
    "loads a module": _call("init_module", "b'x'", 1, "b''"),
    "loads a module by a file": _call("finit_module", 0, "b''", 0),
    "removes a module": _call("delete_module", "b'x'", 0),
    "reads another process's memory": _call(
        "process_vm_readv", "{server}", "ctypes.create_string_buffer(16)", 0, 0, 0, 0
    ),
    "writes another process's memory": _call(
        "process_vm_writev", "{server}", "ctypes.create_string_buffer(16)", 0, 0, 0, 0
    ),
    "advises another process's memory": _call("process_madvise", 0, 0, 0, 0, 0),
    "compares processes": _call("kcmp", "{server}", "{server}", 0, 0, 0),
    "traces a process": _call("ptrace", 16, "{victim}", 0, 0),
    "lets itself be traced": _call("ptrace", 0, 0, 0, 0),
    "takes a file descriptor": _call("pidfd_getfd", 0, 0, 0),
    "enters a namespace": _call("setns", 0, 0),
    "makes a user namespace": _call("unshare", 0x10000000),
    "makes a mount namespace": _call("unshare", 0x20000),
    "makes a network namespace": _call("unshare", 0x40000000),
    "makes a user namespace by clone": _call("clone", "0x10000000 | 17", 0, 0, 0, 0),
    "makes a process namespace by clone": _call("clone", "0x20000000 | 17", 0, 0, 0, 0),
    "makes a namespace by clone3": _call(
        "clone3", "struct.pack('=11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)", 88
    ),
    "mounts": _call("mount", "b'tmpfs'", "b'/tmp'", "b'tmpfs'", 0, 0),
    "mounts what is there already": _call("mount", "b'/'", "b'/tmp'", "b''", 4096, 0),
    "unmounts": _call("umount2", "b'/proc'", 2),
    "changes the root": _call("pivot_root", "b'.'", "b'.'"),
    "leaves by chroot": _call("chroot", "b'.'"),
    "clones a mount": _call("open_tree", -100, "b'/'", 1),
    "moves a mount": _call("move_mount", -100, "b'/tmp'", -100, "b'/tmp'", 0),
    "opens a file system": _call("fsopen", "b'tmpfs'", 0),
    "configures a file system": _call("fsconfig", 0, 0, 0, 0, 0),
    "mounts a file system that it opened": _call("fsmount", 0, 0, 0),
    "picks a mount": _call("fspick", -100, "b'/tmp'", 0),
    "changes a mount": _call("mount_setattr", -100, "b'/'", 0, "struct.pack('=QQQQ', 0, 1, 0, 0)", 32),
    "names a file by a handle": _call("name_to_handle_at", -100, "b'/usr'", _BUFFER, _BUFFER, 0),
    "opens a file by a handle": _call("open_by_handle_at", -100, "struct.pack('=II', 8, 1) + bytes(8)", 0),
    "opens past the filter's sight": _call("openat2", -100, "b'.'", "struct.pack('=QQQ', 0, 0, 0)", 24),
    "swaps": _call("swapon", "b'/x'", 0),
    "ends swapping": _call("swapoff", "b'/x'"),
    "restarts the machine": _call("reboot", 0, 0, 0, 0),
    "names the machine": _call("sethostname", "b'x'", 1),
    "names the domain": _call("setdomainname", "b'x'", 1),
    "reads the kernel's messages": _call("syslog", 3, _BUFFER, 256),
    "sets the clock": _call("clock_settime", 0, "struct.pack('=QQ', 1, 0)"),
    "sets the time of day": _call("settimeofday", "struct.pack('=QQ', 1, 0)", 0),
    "tunes the clock": _call("adjtimex", _BUFFER),
    "accounts for processes": _call("acct", 0),
    "changes quotas": _call("quotactl", 0, 0, 0, 0),
    "watches all files": _call("fanotify_init", 0, 0),
    "moves another process's pages": _call("move_pages", "{server}", 0, 0, 0, 0, 0),
    "migrates another process's pages": _call("migrate_pages", "{server}", 8, 0, 0),
    "hides memory from the kernel": _call("memfd_secret", 0),
    "uses io_uring": _call("io_uring_setup", 1, _BUFFER),
    "enters an io_uring": _call("io_uring_enter", 0, 0, 0, 0, 0, 0),
    "registers with an io_uring": _call("io_uring_register", 0, 0, 0, 0),
    "hangs the terminal up": _call("vhangup"),
    "types into a terminal": _call("ioctl", 0, 0x5412, "b'x'"),
    "signals a process by a queue": _call("rt_sigqueueinfo", "{victim}", 9, _BUFFER),
}
UNCOUNTED = {
    "keeps memory in a file without a name": _call("memfd_create", "b'x'", 0),
    "keeps memory in a segment": _call("shmget", 0, 4096, 0o1600),
    "keeps memory in a queue": _call("msgget", 0, 0o1600),
}
"""Blocked only where no control group counts that memory."""
_X86 = {
    "uses ports": _call("ioperm", 0x80, 1, 1),
    "uses all ports": _call("iopl", 3),
    "changes its descriptor table": _call("modify_ldt", 0, _BUFFER, 256),
    "calls by another ABI": "attempt(lambda: refused_number(0x40000000 | 39))",
}
_FAMILIES = {
    "IPX": 4, "AppleTalk": 5, "X.25": 9, "PF_KEY": 15, "netlink": 16, "packets": 17, "RDS": 21, "LLC": 26, "CAN": 29,
    "TIPC": 30, "Bluetooth": 31, "phones": 35, "the kernel's ciphers": 38, "NFC": 39, "the hypervisor": 40, "XDP": 44,
}  # fmt: skip
_SOCKETS = {
    f"opens a socket of {name}": f"attempt(lambda: socket.socket({family}, socket.SOCK_RAW if {family} in (15, 16, 17) "
    f"else socket.SOCK_DGRAM))"
    for name, family in _FAMILIES.items()
} | {"sends raw packets": "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))"}
_WRITTEN = {
    "sets what runs when a program crashes": "/proc/sys/kernel/core_pattern",
    "presses the system's keys": "/proc/sysrq-trigger",
    "sets what loads modules": "/proc/sys/kernel/modprobe",
    "allows itself namespaces": "/proc/sys/user/max_user_namespaces",
    "makes cgroups release": "/sys/fs/cgroup/release_agent",
    "changes its cgroup": "/sys/fs/cgroup/cgroup.procs",
    "writes to the helper of hotplug": "/sys/kernel/uevent_helper",
    "changes the interpreter through /proc": "/proc/self/exe",
    "writes to memory": "/dev/mem",
    "writes to the kernel's log": "/dev/kmsg",
    "writes to the first disk": "{disk}",
}
_READ = {
    "reads the kernel's memory": "/proc/kcore",
    "reads where the kernel is": "/proc/kallsyms",
    "reads the first process's environment": "/proc/1/environ",
    "reads the first process's memory": "/proc/1/mem",
    "reads the server's memory map": "/proc/{server}/maps",
    "reads the server's command line": "/proc/{server}/cmdline",
    "reads the server's descriptors": "/proc/{server}/fd/0",
    "reads the kernel's trace": "/sys/kernel/tracing/trace",
    "reads the debug file system": "/sys/kernel/debug/sched/debug",
    "reads the firmware": "/sys/firmware/dmi/tables/DMI",
    "uses the hypervisor": "/dev/kvm",
    "makes network devices": "/dev/net/tun",
    "mounts in user space": "/dev/fuse",
    "opens its terminal": "/dev/tty",
    "reads the first disk": "{disk}",
}
KERNEL: dict[str, str] = {
    **_CALLS,
    **_SOCKETS,
    # Opening is enough to know, and harms nothing where it works.
    **{name: f"attempt(lambda: os.open({path!r}, os.O_WRONLY))" for name, path in _WRITTEN.items()},
    **{name: f"attempt(lambda: read_some({path!r}))" for name, path in _READ.items()},
    "lists the server's descriptors": "attempt(lambda: os.listdir('/proc/{server}/fd'))",
    "leaves by the server's root": "attempt(lambda: read('/proc/{server}/root' + {secret!r}))",
    "leaves by the server's directory": "attempt(lambda: os.listdir('/proc/{server}/cwd'))",
    "leaves by its supervisor's root": "attempt(lambda: read('/proc/%d/root%s' % (os.getppid(), {secret!r})))",
    "escapes the memory killer": "attempt(lambda: open('/proc/self/oom_score_adj', 'w').write('-1000'))",
    "changes who it is": "attempt(lambda: os.write(os.open('/proc/self/uid_map', os.O_WRONLY), b'0 0 1'))",
    "makes a cgroup": "attempt(lambda: os.mkdir('/sys/fs/cgroup/escape'))",
}


def kernel(machine: str) -> dict[str, str]:
    return KERNEL | (_X86 if machine == "x86_64" else {})
