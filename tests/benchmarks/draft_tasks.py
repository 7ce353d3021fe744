"""Run by ``test_draft.py``: the reference solutions of the notebook tasks in drafts and then in the kernel itself; and
what a fork of a kernel of some size costs, for a draft and for each of its calls. One JSON object comes out.

``python draft_tasks.py tasks``, ``python draft_tasks.py size MB`` or ``python draft_tasks.py chain MB CALLS``.
"""

from __future__ import annotations

import gc
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from agent_kernel.evaluation.task import TASK_SETS, Task, load_tasks
from agent_kernel.notebook.draft import child_process, fork_safety
from agent_kernel.notebook.draft.draft_process import DraftProcess
from agent_kernel.notebook.kernel.live_execution import LiveCode
from agent_kernel.sandbox.worker.missing_imports import missing_imports

ADDRESS = re.compile(r"0x[0-9a-f]+|Out\[\d+\]|in \d+\.\d+ s")


def prepare(shell: Any, code: str, known: set[str]) -> str:
    namespace = dict.fromkeys(known) | shell.user_ns
    return "\n".join([*missing_imports(shell.transform_cell(code), namespace), code])


def outcome(text: str) -> str:
    return ADDRESS.sub("", text)


def of_task(shell: Any, task: Task) -> dict[str, Any]:
    """Run the reference solution of a task in a draft and then in the kernel itself. Return both results."""
    shell.reset(new_session=False)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        shell.run_cell(task.setup, silent=True)
        before = names_and_files(shell)
        draft, told, known = DraftProcess.start(shell), [], set[str]()
        for code in task.solution:
            said = draft.run(prepare(shell, code, known), lambda stream, text: None, lambda shown: None, 60.0)
            known |= {*said["new"], *said["changed"]}
            told.append((outcome(said["text"]), said["status"], bool(said["refused"])))
        untouched = names_and_files(shell) == before
        holds = None
        if task.holds:
            check = draft.run(f"print(bool({task.holds}))", lambda s, t: None, lambda shown: None, 60.0)
            holds = "True" in check["text"]
        draft.end()
        live = []
        for code in task.solution:
            ran = LiveCode(shell).run(prepare(shell, code, set()), lambda s, t: None, lambda *shown: None)
            live.append((outcome(ran.text), ran.status))
        held = bool(eval(task.holds, shell.user_ns)) if task.holds else None
        os.chdir("/")
    return {
        "name": task.name,
        "kind": task.kind,
        "same": [(text, status) for text, status, _ in told] == live,
        "refused": any(refused for *_, refused in told),
        "holds": [holds, held],
        "untouched": untouched,
        "draft": told,
        "live": live,
    }


def names_and_files(shell: Any) -> tuple[list[str], list[str]]:
    return sorted(shell.user_ns), sorted(str(path) for path in Path().rglob("*"))


def of_size(shell: Any, megabytes: int) -> dict[str, Any]:
    fill(shell, megabytes)
    starts, calls, own = list[float](), list[float](), list[float]()
    for _ in range(10):
        at = time.perf_counter()
        draft = DraftProcess.start(shell)
        starts.append(time.perf_counter() - at)
        for _ in range(20):
            at = time.perf_counter()
            draft.run("len(lines)", lambda s, t: None, lambda shown: None)
            calls.append(time.perf_counter() - at)
        own.append(private_mb(draft.pid))
        draft.end()
    forks = list[float]()
    for _ in range(10):
        at = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        forks.append(time.perf_counter() - at)
    at = time.perf_counter()
    fork_safety.unsafe()
    looked = time.perf_counter() - at
    rss = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    return {
        "rss_mb": rss,
        "start_ms": statistics.median(starts) * 1e3,
        "fork_ms": statistics.median(forks) * 1e3,
        "call_ms": statistics.median(calls) * 1e3,
        "look_ms": looked * 1e3,
        "private_mb": statistics.median(own),
    }


def fill(shell: Any, megabytes: int) -> None:
    """Allocate ``megabytes`` of memory in the kernel, half of it in one array and half in small objects."""
    objects = f"lines = [str(number) * 8 for number in range({megabytes} * 3500)]"
    shell.run_cell(f"import numpy as np\narray = np.ones({megabytes} << 19, dtype='u1')\n{objects}")
    gc.collect()


def of_chain(shell: Any, megabytes: int, calls: int) -> dict[str, Any]:
    """Return the milliseconds of calls that build on each other, with and without a fork before each call, and of a
    call that fails.

    The two kinds alternate, so that other load on the machine slows both. ``cpu_ms`` of a call depends least on such
    load.
    """
    fill(shell, megabytes)
    code = "seen = [*globals().get('seen', []), sum(map(len, lines[:1000]))]\nlen(seen)"
    found: dict[str, Any] = {"rss_mb": int(private_mb(os.getpid()))}
    may_fork = child_process._may_fork
    forking = DraftProcess.start(shell)
    child_process._may_fork = lambda call: False
    plain = DraftProcess.start(shell)
    child_process._may_fork = may_fork
    times: dict[str, list[float]] = {"plain_ms": [], "call_ms": [], "failed_ms": []}
    for _ in range(calls):
        times["plain_ms"].append(call_ms(plain, code))
        times["call_ms"].append(call_ms(forking, code))
    times["failed_ms"] = [call_ms(forking, "seen.append(0)\n1 / 0") for _ in range(5)]
    for name, draft in (("plain_cpu_ms", plain), ("cpu_ms", forking)):
        found[name] = cpu_ms(draft, code, calls)
    last = forking.run("len(seen)", lambda s, t: None, lambda shown: None)
    found |= {name: statistics.median(values) for name, values in times.items()}
    found |= {f"all_{name}": sum(times[name]) for name in ("plain_ms", "call_ms")}
    found |= {"seen": last["text"], "private_mb": private_mb(forking.pid)}
    plain.end()
    forking.end()
    return found


def cpu_ms(draft: DraftProcess, code: str, calls: int) -> float:
    """Return the processor time of one call in milliseconds: that of the draft and of its forks that have ended."""

    def used() -> int:
        words = Path(f"/proc/{draft.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, words[11:15]))

    before = used()
    for _ in range(calls):
        call_ms(draft, code)
    return (used() - before) / os.sysconf("SC_CLK_TCK") / calls * 1e3


def call_ms(draft: DraftProcess, code: str) -> float:
    at = time.perf_counter()
    draft.run(code, lambda s, t: None, lambda shown: None)
    return (time.perf_counter() - at) * 1e3


def private_mb(pid: int) -> float:
    """Return the memory in MiB that a process does not share with another one."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_"))
    return kib / 1024


def main() -> None:
    shell: Any = InteractiveShell.instance()
    if sys.argv[1] == "size":
        print("\n" + json.dumps(of_size(shell, int(sys.argv[2]))))
    elif sys.argv[1] == "chain":
        print("\n" + json.dumps(of_chain(shell, int(sys.argv[2]), int(sys.argv[3]))))
    else:
        tasks = load_tasks(TASK_SETS / "notebook.toml")
        found = [of_task(shell, task) for task in tasks if task.solution and not task.is_chat]
        print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
