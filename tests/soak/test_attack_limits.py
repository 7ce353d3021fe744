"""Runs code that takes all memory, processes or disk space it can get, in every kind of jail without a control group:
the session ends or is refused, the machine keeps working, and nothing remains.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_kernel.core.protocols import Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.cgroup import Cgroups
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.sandbox.jail.jail import IsolationPlan
from tests.processes import descendants, survivors
from tests.soak.conftest import Soak

SMALL = SandboxPolicy(warm=0, memory_mb=1024, session_memory_mb=300, procs=30, file_mb=20)
MOST_MB = 1500
"""What the machine may miss meanwhile: the limit, what is taken until the next look, and others' noise."""
GREEDY = {
    "forks as fast as it can": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "forks and waits": (
        "import os, time\nwhile True:\n    try:\n        if os.fork() == 0: time.sleep(60)\n    except OSError: pass"
    ),
    "forks away from its parent": (
        "import os\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n"
        "        elif os.fork(): os._exit(0)\n    except OSError: pass"
    ),
    "starts threads": (
        "import threading, time\nwhile True:\n"
        "    try: threading.Thread(target=time.sleep, args=(60,)).start()\n    except RuntimeError: pass"
    ),
    "takes memory in children": (
        "import os, time\nfor _ in range(25):\n    try:\n        if os.fork() == 0:\n"
        "            held = bytearray(os.urandom(1 << 20) * 300); time.sleep(60)\n"
        "    except (OSError, MemoryError): pass\n"
        "time.sleep(60)"
    ),
    "takes shared memory": (
        "import mmap, time\nheld = []\nwhile True:\n    try:\n        one = mmap.mmap(-1, 32 << 20); held.append(one)\n"
        "        for at in range(0, 32 << 20, 4096): one[at] = 1\n    except OSError: time.sleep(60)"
    ),
    "keeps memory in sockets": (
        "import socket, time\nheld = []\nwhile True:\n"
        "    try:\n        a, b = socket.socketpair(); held.append((a, b))\n"
        "        a.setblocking(False)\n        while True: a.send(bytes(60_000))\n"
        "    except BlockingIOError: pass\n    except OSError: time.sleep(60)"
    ),
    "keeps memory in pipes": (
        "import fcntl, os, time\nheld = []\nwhile True:\n    try:\n        r, w = os.pipe(); held.append((r, w))\n"
        "        fcntl.fcntl(w, 1031, 1 << 20); os.write(w, bytes(1 << 16))\n    except OSError: time.sleep(60)"
    ),
    "fills /dev/shm and /tmp": (
        "import time\nfor place in ('/dev/shm', '/tmp', '/var/tmp'):\n    for n in range(50):\n        try:\n"
        "            open(f'{place}/{n}', 'wb').write(bytes(10 << 20))\n        except OSError: pass\ntime.sleep(60)"
    ),
    "writes files that are too large": (
        "import time\nfor n in range(5):\n    try:\n        with open(f'{n}', 'wb') as file:\n"
        "            while True: file.write(bytes(1 << 20)); file.flush()\n    except OSError: pass\n"
        "import os\nmax(os.path.getsize(name) for name in '01234') >> 20"
    ),
}


def available_mb() -> int:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) >> 10


@contextmanager
def most_missing() -> Iterator[list[int]]:
    """Measure by how much the machine's available memory fell at the worst moment, in MB."""
    before, most, ended = available_mb(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most[0] = max(most[0], before - available_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        ended.set()
        watcher.join()


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
@pytest.mark.soak(0.05)
async def test_attack_limits(soak: Soak, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cgroups, "detect", Cgroups)
    plans = [plan for plan in IsolationPlan.candidates(root=os.geteuid() == 0) if plan != IsolationPlan("none", True)]
    boxes = {plan.namespaces: LinuxSandbox(tmp_path / plan.namespaces, SMALL, plans=[plan]) for plan in plans}
    turns = [(kind, name) for kind in boxes for name in GREEDY]
    soak.random.shuffle(turns)
    try:
        while soak.running:
            for kind, name in turns if soak.seconds > 60 else turns[:6]:
                await be_greedy(boxes[kind], name)
                soak.counts[f"times in a jail with {kind} namespaces"] += 1
    finally:
        for sandbox in boxes.values():
            await sandbox.aclose()
    assert await survivors(descendants(os.getpid()), 20) == []


async def be_greedy(sandbox: LinuxSandbox, name: str) -> None:
    if not (await sandbox.report())["limits"]["active"]:
        return
    session = SessionKey("local", name)
    with most_missing() as most:
        result = await sandbox.run(session, Work(GREEDY[name], timeout_s=4))
    assert most[0] < MOST_MB, (name, most)
    assert result.value is None or int(result.value) <= SMALL.file_mb
    # What was left may have no memory even for this: then it is ended, and the next run has a new process.
    said = [(await sandbox.run(session, Work("1 + 1", timeout_s=30))).value for _ in range(3)]
    assert said[-1] == "2", (name, said)
    await sandbox.close(session, remove=True)
