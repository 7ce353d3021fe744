"""What hostile code tries. Each attack is one piece of code run in the jail; it ends with ``attempt(...)``, which is
'blocked' or 'ESCAPED ...'. Standard library only: also run as another user, by an interpreter without our tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent_kernel.errors import SandboxUnavailable
from agent_kernel.sandbox.jail import Plan
from agent_kernel.sandbox.pool import LinuxSandbox
from agent_kernel.sessions.model import SessionKey

SECRET = "hunter2-of-the-server"
OTHER = SessionKey("local", "other")
MINE = SessionKey("local", "mine")

PRELUDE = """
import ctypes, glob, os, signal, socket, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(act):
    try:
        got = act()
    except (OSError, LookupError, subprocess.CalledProcessError):
        return 'blocked'
    return 'ESCAPED ' + repr(got)[:200]
def refused(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), 'refused')
    return result
def read(path):
    with open(path, 'rb') as file:
        return file.read(100)
def write(path):
    with open(path, 'ab') as file:
        return file.write(b'x')
"""

ATTACKS = {
    "reads a file outside": "attempt(lambda: read({secret!r}))",
    "reads /etc/shadow": "attempt(lambda: read('/etc/shadow'))",
    "reads ssh keys": "attempt(lambda: read(os.path.join({home!r}, '.ssh', 'known_hosts')) or os.listdir({home!r}))",
    "lists the home directory": "attempt(lambda: os.listdir({home!r}))",
    "reads Jupyter's runtime directory": "attempt(lambda: read({runtime!r}))",
    "reads another session's work directory": "attempt(lambda: read({other!r}))",
    "lists other sessions' work directories": (
        "attempt(lambda: set(os.listdir({work_root!r})) - {os.path.basename(os.getcwd())} or read('/nothing'))"
    ),
    "reads the server's environment": "attempt(lambda: read('/proc/{server}/environ'))",
    "finds the secret in an environment": (
        "def look():\n"
        "    for path in glob.glob('/proc/[0-9]*/environ'):\n"
        "        try:\n"
        "            text = open(path, 'rb').read()\n"
        "        except OSError:\n"
        "            continue\n"
        "        if b'hunter2' in text: return path\n"
        "    raise LookupError\n"
        "attempt(lambda: look() if 'hunter2' not in str(dict(os.environ)) else 'in my own')"
    ),
    "reads the server's memory": "attempt(lambda: open('/proc/{server}/mem', 'rb'))",
    "writes outside": "attempt(lambda: write({secret!r}))",
    "creates a file outside": "attempt(lambda: write({outside!r} + '/new'))",
    "writes into the notebook's directory": "attempt(lambda: write({notebook!r} + '/new'))",
    "changes a file of the notebook's directory": "attempt(lambda: write({notebook!r} + '/data.csv'))",
    "deletes from the notebook's directory": "attempt(lambda: os.unlink({notebook!r} + '/data.csv'))",
    "truncates a file outside": "attempt(lambda: os.truncate({secret!r}, 0))",
    "writes into the interpreter's packages": "attempt(lambda: write(os.__file__))",
    "reads a dot file beside the notebook": "attempt(lambda: read({notebook!r} + '/.env'))",
    "reads a dot file below the notebook": "attempt(lambda: read({notebook!r} + '/sub/.secret/key'))",
    "reads a sidecar": "attempt(lambda: read({notebook!r} + '/nb.agent.json'))",
    "reads a sidecar's blobs": "attempt(lambda: read({notebook!r} + '/nb.agent/blob'))",
    "follows a link beside the notebook": "attempt(lambda: read({notebook!r} + '/link'))",
    "follows a link of its own": (
        "os.path.lexists('out') or os.symlink({secret!r}, 'out')\nattempt(lambda: read('out'))"
    ),
    "writes through a link of its own": (
        "os.path.lexists('out') or os.symlink({secret!r}, 'out')\nattempt(lambda: write('out'))"
    ),
    "hard-links a file outside": "attempt(lambda: os.link({secret!r}, 'hard'))",
    "renames a file out of the jail": "write('mine')\nattempt(lambda: os.rename('mine', {outside!r} + '/mine'))",
    "climbs out by ..": "attempt(lambda: read('../../../../../../../../..' + {secret!r}))",
    "leaves by the root of another process": "attempt(lambda: read('/proc/1/root' + {secret!r}))",
    "leaves by chroot": "attempt(lambda: os.chroot('.'))",
    "reads by a child process": "attempt(lambda: subprocess.run(['cat', {secret!r}], check=True, capture_output=True))",
    "connects by TCP": "attempt(lambda: socket.create_connection(('127.0.0.1', {tcp}), 2))",
    "connects by TCP, IPv6": "attempt(lambda: socket.create_connection(('::1', {tcp}), 2))",
    "connects by TCP in a child": (
        "code = 'import socket; socket.create_connection((\"127.0.0.1\", {tcp}), 2)'\n"
        "attempt(lambda: subprocess.run([sys.executable, '-c', code], check=True, capture_output=True))"
    ),
    "listens": "attempt(lambda: socket.create_server(('127.0.0.1', 0)))",
    "sends UDP": "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp})))",
    "opens a raw socket": "attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))",
    "opens netlink": "attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))",
    "connects to a unix socket": "attempt(lambda: socket.socket(socket.AF_UNIX).connect({unix!r}))",
    "connects to a hidden unix socket": "attempt(lambda: socket.socket(socket.AF_UNIX).connect('/.sources/0/.sock'))",
    "connects to an abstract socket": "attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + {abstract!r}))",
    "sends to a unix datagram socket": (
        "def send():\n"
        "    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "    return a.sendto(b'x', {datagram!r})\n"
        "attempt(send)"
    ),
    "kills a process of the host": "attempt(lambda: os.kill({victim}, 9))",
    "kills the server": "attempt(lambda: os.kill({server}, 0))",
    "kills its supervisor": "attempt(lambda: os.kill(os.getppid(), 9) if os.getppid() > 1 else read('/nothing'))",
    "kills everything": "attempt(lambda: os.kill(-1, 0) if {shared} else read('/nothing'))",
    "stops a process of the host": "attempt(lambda: os.kill({victim}, signal.SIGSTOP))",
    "lowers a limit of the host": "import resource\nattempt(lambda: resource.prlimit({victim}, 7, (3, 3)))",
    "traces a process": "attempt(lambda: refused(libc.ptrace(16, {victim}, 0, 0)))",
    "takes a file descriptor": "attempt(lambda: refused(libc.syscall(438, os.pidfd_open({victim}), 0, 0)))",
    "becomes root": "attempt(lambda: os.setuid(0) if os.getuid() else read('/nothing'))",
    "becomes root by sudo": "attempt(lambda: subprocess.run(['su', '-c', 'id'], check=True, capture_output=True))",
    "mounts": "attempt(lambda: refused(libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None)))",
    "makes a user namespace": "attempt(lambda: refused(libc.unshare(0x10000000)))",
    "makes one by clone": "attempt(lambda: refused(libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)))",
    "makes a device": "attempt(lambda: os.mknod('dev', 0o600 | 0o020000, os.makedev(1, 1)))",
    "uses io_uring": "attempt(lambda: refused(libc.syscall(425, 1, ctypes.create_string_buffer(256))))",
    "reads the keyring": "attempt(lambda: refused(libc.syscall(250, 0, -3, 1)))",
    "gains by a set-user-id copy": (
        "import shutil\n"
        "shutil.copy('/bin/sh', 'sh'); os.chmod('sh', 0o6755)\n"
        "attempt(lambda: subprocess.run(['./sh', '-c', 'cat /etc/shadow'], check=True, capture_output=True))"
    ),
    "runs a program from memory": (
        "fd = os.memfd_create('x'); os.write(fd, read(sys.executable) and open('/bin/cat', 'rb').read())\n"
        "path = '/proc/self/fd/%d' % fd\n"
        "attempt(lambda: subprocess.run([path, {secret!r}], check=True, capture_output=True, pass_fds=[fd]))"
    ),
}

REACHABLE = (
    "reads a file outside",
    "reads another session's work directory",
    "reads the server's environment",
    "reads a dot file beside the notebook",
    "reads a sidecar",
    "reads Jupyter's runtime directory",
    "follows a link beside the notebook",
    "writes outside",
    "writes into the notebook's directory",
    "reads by a child process",
    "connects by TCP",
    "sends UDP",
    "connects to a unix socket",
    "connects to an abstract socket",
    "kills the server",
    "makes a user namespace",
)
"""What succeeds without a jail, which shows that the attacks and their targets are real."""

UNSEEN = {
    "changes the mode of a file beside the notebook": "os.chmod({notebook!r} + '/data.csv', 0o777)",
    "changes the mode of a file outside": "os.chmod({secret!r}, 0o777)",
    "changes the time of a file outside": "os.utime({secret!r}, (1, 1))",
}
"""May seem to succeed in a jail without namespaces, but must have no effect."""


@dataclass
class Scene:
    """Things of the host that the code is not to reach, all of them real."""

    root: Path
    notebook: Path
    facts: dict[str, object]
    victim: subprocess.Popen[bytes]

    def untouched(self) -> bool:
        """True while nothing of the host has changed."""
        secret, data = self.root / "outside" / "secret", self.notebook / "data.csv"
        modes = [path.stat().st_mode & 0o777 for path in (secret, data)]
        times = [path.stat().st_mtime for path in (secret, data)]
        alive = self.victim.poll() is None and "T (" not in _state(self.victim.pid)
        whole = secret.read_text() == SECRET and data.read_text() == "a,b\n1,2\n"
        return whole and alive and modes == [0o644, 0o644] and min(times) > 1000


def _state(pid: int) -> str:
    return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("State"))


@contextmanager
def scene(root: Path) -> Iterator[Scene]:
    notebook, outside, runtime = root / "project", root / "outside", root / "project" / "runtime"
    for folder in (notebook / "sub" / ".secret", notebook / "nb.agent", outside, runtime):
        folder.mkdir(parents=True)
    files = {
        outside / "secret": SECRET, notebook / "data.csv": "a,b\n1,2\n", notebook / ".env": SECRET,
        notebook / "sub" / "more.csv": "c\n3\n", notebook / "sub" / ".secret" / "key": SECRET,
        notebook / "nb.agent.json": SECRET, notebook / "nb.agent" / "blob": SECRET, runtime / "kernel.json": SECRET,
    }  # fmt: skip
    for path, text in files.items():
        path.write_text(text)
        path.chmod(0o644)
    (notebook / "link").symlink_to(outside / "secret")
    abstract = f"agent-kernel-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as hidden,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
        subprocess.Popen(["sleep", "600"]) as victim,
    ):
        udp.bind(("127.0.0.1", 0))
        for listener, address in (
            (unix, str(outside / "sock")), (hidden, str(notebook / ".sock")), (named, "\0" + abstract),
        ):  # fmt: skip
            listener.bind(address)
            listener.listen()
        datagram.bind(str(outside / "datagram"))
        facts: dict[str, object] = {
            "secret": str(outside / "secret"), "outside": str(outside), "notebook": str(notebook),
            "runtime": str(runtime / "kernel.json"), "home": str(Path.home()), "work_root": str(root / "work"),
            "server": os.getpid(), "victim": victim.pid, "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1],
            "unix": str(outside / "sock"), "abstract": abstract, "datagram": str(outside / "datagram"),
        }  # fmt: skip
        try:
            yield Scene(root, notebook, facts, victim)
        finally:
            victim.kill()


async def attack(scene: Scene, plan: Plan) -> dict[str, str]:
    """Every attack in one session -> what it said. Raises SandboxUnavailable where the plan is not possible."""
    os.environ["AGENT_KERNEL_TEST_SECRET"] = SECRET
    sandbox = LinuxSandbox(scene.root / "work", hidden=[scene.notebook / "runtime"], plans=[plan])
    try:
        await sandbox.run(OTHER, f"open('mine', 'w').write({SECRET!r})")
        facts = scene.facts | {"other": str(sandbox.workdir(OTHER) / "mine"), "shared": plan.namespaces == "none"}
        said: dict[str, str] = {}
        for name, code in (ATTACKS | UNSEEN).items():
            filled = PRELUDE + _fill(code, facts)
            result = await sandbox.run(MINE, filled, read=[scene.notebook])
            said[name] = result.value or result.error or "nothing"
        return said
    finally:
        await sandbox.aclose()


def unjailed(scene: Scene, name: str) -> str:
    """What the attack says in a plain process."""
    other = scene.root / "work" / "other" / "mine"
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text(SECRET)
    code = PRELUDE + f"print({_fill(ATTACKS[name], scene.facts | {'other': str(other)})})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


def _fill(code: str, facts: dict[str, object]) -> str:
    for name, value in facts.items():
        code = code.replace("{" + name + "!r}", repr(value)).replace("{" + name + "}", str(value))
    return code


async def possible() -> list[Plan]:
    """The plans that this system allows this user."""
    found = []
    for plan in Plan.candidates(root=os.geteuid() == 0):
        with tempfile.TemporaryDirectory() as folder:
            sandbox = LinuxSandbox(Path(folder) / "work", plans=[plan])
            try:
                await sandbox.run(MINE, "1")
            except SandboxUnavailable:
                continue
            finally:
                await sandbox.aclose()
            found.append(plan)
    return found


def main() -> None:
    """For another user: prints {plan: {attack: what it said}} of every possible plan."""
    said = {}
    for plan in asyncio.run(possible()):
        with tempfile.TemporaryDirectory() as folder, scene(Path(folder)) as here:
            said[plan.namespaces] = asyncio.run(attack(here, plan)) | {"host untouched": str(here.untouched())}
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
