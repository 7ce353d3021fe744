"""The attacks of hostile code. Each is one piece of code that runs in the jail and ends with ``attempt(...)``, which is
'blocked' or 'ESCAPED ...'.

Uses the standard library only, because another user runs it too, with an interpreter that does not have our tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from agent_kernel.core.errors import SandboxUnavailable
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sandbox.jail.jail import IsolationPlan
from agent_kernel.sandbox.jail.raw_syscalls import numbers
from tests.sandbox.attacks_on_files import FILES
from tests.sandbox.attacks_on_kernel import UNCOUNTED, kernel
from tests.sandbox.attacks_on_processes import PROCESSES

SECRET = "hunter2-of-the-server"
OTHER = SessionKey("local", "other")
MINE = SessionKey("local", "mine")
WIDEST = SandboxPolicy(warm=0, profile="developer")
"""Of the profiles, the one that shows most."""

PRELUDE = (
    """
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
def barred(name, *args):
    got = libc.syscall(NUMBERS[name], *args)
    if got < 0 and ctypes.get_errno() in (1, 13, 38):
        raise OSError(ctypes.get_errno(), 'barred')
    return name, got, os.strerror(ctypes.get_errno())
def refused_number(number):
    return refused(libc.syscall(number))
def open_all():
    held = []
    try:
        while len(held) < 99_999:
            held.append(os.open('/dev/null', 0))
        return len(held)
    finally:
        for fd in held:
            os.close(fd)
def own(path):
    if os.stat(path).st_uid == os.getuid():
        raise OSError('it had no effect')
def gained(path):
    os.setxattr(path, 'security.capability', struct.pack('=IIIII', 0x02000001, 1 << 21, 0, 0, 0))
    return os.getxattr(path, 'security.capability')
def read_some(path):
    got = read(path)
    if not got or not got.split()[0].strip(b'0'):
        raise OSError('nothing in it')
    return got
def read(path):
    with open(path, 'rb') as file:
        return file.read(100)
def write(path):
    with open(path, 'ab') as file:
        return file.write(b'x')
"""
    + f"NUMBERS = {numbers() if sys.platform == 'linux' else {}!r}\n"
)
RUN_ALL = """
import ast, json
def run(code):
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    space = dict(globals())
    exec(compile(tree, 'attack', 'exec'), space)
    return repr(eval(compile(ast.Expression(last.value), 'attack', 'eval'), space)) if last else 'nothing'
def run_all(attacks):
    said = {}
    for name, code in attacks.items():
        try:
            said[name] = run(code)
        except BaseException as error:
            said[name] = type(error).__name__ + ': ' + str(error)
    print('SAID ' + json.dumps(said))
"""

ATTACKS: dict[str, str] = FILES | PROCESSES | kernel(platform.machine()) | UNCOUNTED

REACHABLE = (
    "reads a file outside", "reads another session's work directory", "reads the server's environment",
    "reads a dot file beside the notebook", "reads a sidecar", "reads Jupyter's runtime directory",
    "follows a link beside the notebook", "reads by a child process", "connects by TCP", "sends UDP",
    "connects to a unix socket", "connects to an abstract socket", "kills the server",
    "reads ssh keys", "lists the home directory", "reads Jupyter's settings", "reads the server's database",
    "reads the person's shell history", "reads credentials of clouds", "reads the log of the system",
    "reads the host's /tmp", "reads the host's shared memory", "lists a directory outside",
    "opens a directory and goes up", "leaves by the server's directory", "lists the server's descriptors",
    "reads the server's memory map", "connects to Jupyter's port", "listens", "opens a socket of netlink",
    "leaves a set-user-id file", "reads a token of a toolchain", "names a file by a handle", "joins a keyring",
    "opens past the filter's sight", "keeps memory in a file without a name", "keeps memory in a segment",
    "makes a process of the host slower", "pins a process of the host", "finds another session's process",
    "writes outside", "writes into the notebook's directory", "makes a sidecar", "writes the server's database",
    "makes a user namespace",  # last: it gives up what it could do outside
)  # fmt: skip
"""What succeeds without a jail, which shows that the attacks and their targets are real."""

UNSEEN = {
    "changes the mode of a file beside the notebook": "os.chmod({notebook!r} + '/data.csv', 0o777)",
    "changes the mode of a file outside": "os.chmod({secret!r}, 0o777)",
    "changes the time of a file outside": "os.utime({secret!r}, (1, 1))",
    "gives attributes to a file outside": "os.setxattr({secret!r}, 'user.x', b'y')",
    "leaves a file in the host's /tmp": "write('/tmp/made-' + {mark!r}); None",
    "signals a group of the host": "os.killpg({victim}, 9)",
    "signals a process of the host by input": (
        "import fcntl\n"
        "r, w = os.pipe()\n"
        "fcntl.fcntl(r, fcntl.F_SETSIG, 9); fcntl.fcntl(r, fcntl.F_SETOWN, {victim})\n"
        "fcntl.fcntl(r, fcntl.F_SETFL, fcntl.fcntl(r, fcntl.F_GETFL) | os.O_ASYNC)\n"
        "os.write(w, b'x'); None"
    ),
}
"""May seem to succeed in a jail without namespaces, but must have no effect."""
KNOWN = {"learns that a file is there": "attempt(lambda: os.stat({secret!r}).st_size)"}
"""What SECURITY.md says of a jail without namespaces: it cannot hide that. With them it does."""
AS_OTHER = f"""
import os, subprocess, sys
open('mine', 'w').write({SECRET!r})
for path in ('/tmp/of-other', '/dev/shm/of-other'):
    try: open(path, 'w').write({SECRET!r})
    except OSError: pass
process = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)', 'of-other'])
"""


@dataclass
class Scene:
    """Real files, processes and sockets of the host that the code must not reach."""

    root: Path
    notebook: Path
    facts: dict[str, object]
    victim: subprocess.Popen[bytes]
    listener: socket.socket

    def untouched(self) -> bool:
        """True while nothing of the host has changed and nothing has connected to its socket."""
        secret, data = self.root / "outside" / "secret", self.notebook / "data.csv"
        modes = [path.stat().st_mode & 0o777 for path in (secret, data)]
        times = [path.stat().st_mtime for path in (secret, data)]
        alive = self.victim.poll() is None and "T (" not in _state(self.victim.pid)
        whole = secret.read_text() == SECRET and data.read_text() == "a,b\n1,2\n"
        left = Path(f"/tmp/made-{self.facts['mark']}").exists() or os.listxattr(secret)
        called = bool(select.select([self.listener], [], [], 0)[0])
        return whole and alive and modes == [0o644, 0o644] and min(times) > 1000 and not left and not called


def _state(pid: int) -> str:
    return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("State"))


def _own_address() -> str:
    """Return the address from which this machine sends packets. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _disk() -> str:
    names = os.listdir("/sys/block") if os.path.isdir("/sys/block") else []
    found = [f"/dev/{name}" for name in sorted(names) if not name.startswith(("loop", "ram", "zram"))]
    return next((path for path in found if os.path.exists(path)), "/dev/sda")


@contextmanager
def scene(root: Path) -> Iterator[Scene]:
    """Turn ``root`` into a small host with its own home directory, which HOME refers to meanwhile."""
    notebook, outside, home, data = root / "project", root / "outside", root / "home", root / "kept"
    runtime, tools, modules = notebook / "runtime", home / ".cargo" / "bin", root / "modules"
    mark = f"agent-kernel-test-{os.getpid()}"
    tmp, shm = Path(f"/tmp/{mark}"), Path(f"/dev/shm/{mark}")
    files = {
        outside / "secret": SECRET, notebook / "data.csv": "a,b\n1,2\n", notebook / ".env": SECRET,
        notebook / "sub" / "more.csv": "c\n3\n", notebook / "sub" / ".secret" / "key": SECRET,
        notebook / "nb.agent.json": SECRET, notebook / "nb.agent" / "blob": SECRET, runtime / "kernel.json": SECRET,
        notebook / "sub" / ".env": SECRET, notebook / "sub" / ".git" / "config": SECRET,
        notebook / "sub" / "deep" / "other.agent.json": SECRET, modules / ".env": SECRET,
        modules / "inner" / "nb.agent.json": SECRET, modules / "ours.py": "answer = 42\n",
        data / "sessions.db": SECRET, home / ".ssh" / "known_hosts": SECRET, home / ".aws" / "credentials": SECRET,
        home / ".bash_history": SECRET, home / ".jupyter" / "config.json": SECRET, tools / "credentials": SECRET,
        tools / "cargo": "", tmp: SECRET, shm: SECRET,
    }  # fmt: skip
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    (notebook / "link").symlink_to(outside / "secret")
    kept, os.environ["HOME"] = os.environ.get("HOME", ""), str(home)
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as hidden,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
        subprocess.Popen(["sleep", "600"], start_new_session=True) as victim,
    ):
        udp.bind(("127.0.0.1", 0))
        for listener, address in (
            (unix, str(outside / "sock")), (hidden, str(notebook / ".sock")), (named, "\0" + mark),
        ):  # fmt: skip
            listener.bind(address)
            listener.listen()
        datagram.bind(str(outside / "datagram"))
        facts: dict[str, object] = {
            "secret": str(outside / "secret"), "outside": str(outside), "notebook": str(notebook),
            "runtime": str(runtime / "kernel.json"), "home": str(home), "work_root": str(root / "work"),
            "database": str(data / "sessions.db"), "token": str(tools / "credentials"), "tmp": str(tmp),
            "shm": str(shm), "modules": str(modules), "mark": mark, "disk": _disk(),
            "server": os.getpid(), "victim": victim.pid,
            "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1], "unix": str(outside / "sock"),
            "own": _own_address(), "hostname": socket.gethostname(), "abstract": mark,
            "datagram": str(outside / "datagram"),
        }  # fmt: skip
        try:
            yield Scene(root, notebook, facts, victim, tcp)
        finally:
            victim.kill()
            os.environ["HOME"] = kept
            for path in (tmp, shm):
                path.unlink(missing_ok=True)


async def attack(
    scene: Scene,
    plan: IsolationPlan,
    interpreter: Path | None = None,
    policy: SandboxPolicy = WIDEST,
    attacks: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Run every attack in one session. Return the result of each. Raises SandboxUnavailable if the plan is
    impossible.
    """
    os.environ["AGENT_KERNEL_TEST_SECRET"] = SECRET
    hidden = [scene.notebook / "runtime", scene.root / "kept"]
    async with aclosing(LinuxSandbox(scene.root / "work", policy, interpreter, hidden=hidden, plans=[plan])) as sandbox:
        await sandbox.run(OTHER, AS_OTHER)
        facts = scene.facts | {"other": str(sandbox.workdir(OTHER) / "mine"), "shared": plan.namespaces == "none"}
        filled = {name: fill(code, facts) for name, code in (attacks or ATTACKS | UNSEEN | KNOWN).items()}
        result = await sandbox.run(MINE, f"{PRELUDE}{RUN_ALL}run_all({filled!r})", read=[scene.notebook])
        return heard(result.stdout) or dict.fromkeys(filled, result.error or "nothing was said")


def heard(output: str) -> dict[str, str]:
    """Return the results that ``run_all`` has printed."""
    line = next((line for line in output.splitlines() if line.startswith("SAID ")), "SAID {}")
    said: dict[str, str] = json.loads(line.removeprefix("SAID "))
    return said


def escaped(said: Mapping[str, str]) -> dict[str, str]:
    """Return the attacks that were not blocked, and those that should have no effect but had one."""
    found = {name: said.get(name, "not tried") for name in ATTACKS if said.get(name) != "'blocked'"}
    unseen = {name: said.get(name, "not tried") for name in UNSEEN}
    return found | {
        name: text for name, text in unseen.items() if text not in ("nothing", "None") and "Error" not in text
    }


def unjailed(scene: Scene) -> dict[str, str]:
    """Return the results of the attacks of REACHABLE in a process without a jail."""
    other = scene.root / "work" / "other" / "mine"
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text(SECRET)
    attacks = {name: fill(ATTACKS[name], scene.facts | {"other": str(other)}) for name in REACHABLE}
    code = f"{PRELUDE}{RUN_ALL}run_all({attacks!r})"
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)", "of-other"]) as process:
        try:
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=other.parent
            )
        finally:
            process.kill()
    return heard(done.stdout)


def fill(code: str, facts: dict[str, object]) -> str:
    for name, value in facts.items():
        code = code.replace("{" + name + "!r}", repr(value)).replace("{" + name + "}", str(value))
    return code


async def possible(interpreter: Path | None = None) -> list[IsolationPlan]:
    """Return the isolation plans that this system allows this user."""
    root = os.geteuid() == 0
    found = []
    for plan in [*IsolationPlan.candidates(root=root), *([IsolationPlan("root", False)] if root else [])]:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            sandbox = LinuxSandbox(Path(folder) / "work", WIDEST, interpreter if plan.drop else None, plans=[plan])
            try:
                await sandbox.run(MINE, "1")
            except SandboxUnavailable:
                continue
            finally:
                await sandbox.aclose()
            found.append(plan)
    return found


def main() -> None:
    """Print {plan: {attack: result}} of every possible plan, for another user or in a container."""
    said = {}
    for plan in asyncio.run(possible()):
        with tempfile.TemporaryDirectory() as folder, scene(Path(folder)) as here:
            os.chmod(folder, 0o755)  # a session that is another user has to get to its work directory
            name = plan.namespaces + ", dropped" * (plan.drop and os.geteuid() == 0)
            said[name] = asyncio.run(attack(here, plan)) | {"host untouched": str(here.untouched())}
    json.dump(said, sys.stdout)


if __name__ == "__main__":
    main()
