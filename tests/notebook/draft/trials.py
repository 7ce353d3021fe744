"""Runs programs as trials in the drafts of a kernel, in a separate process.

``python trials.py`` reads JSON ``{setup, codes, prompt, turns, names, trial_s, trials_s, describe_s, memory_mb, live}``
and prints ``{described, turns, live, before, after, ended}``. ``described`` is what the draft says of the data that
``prompt`` names, after each of ``codes``, which run first and stay in the draft. ``turns`` is {outcomes, seconds,
private_mb} of each list of programs, ``live`` are the values of expressions in the kernel afterwards. ``before`` and
``after`` count the descendants, open files and temporary directories of this process after the first turn and after the
last; ``ended`` is how many more there are once the draft has ended. ``private_mb`` is the memory of the draft's
processes that they do not share with the kernel.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from agent_kernel.notebook.draft import draft, jail

PREFIX = "agent-draft-"


def main() -> None:
    asked = json.loads(sys.stdin.read())
    shell: Any = InteractiveShell.instance()
    shell.run_cell(asked["setup"], silent=True)
    draft.TRIAL_S = asked.get("trial_s", draft.TRIAL_S)
    draft.TRIALS_S = asked.get("trials_s", draft.TRIALS_S)
    draft.DESCRIBE_S = asked.get("describe_s", 60.0)
    jail.MEMORY_MB = asked.get("memory_mb", jail.MEMORY_MB)
    drafts, turns, before = draft.Drafts(shell), list[dict[str, Any]](), dict[str, int]()
    described: list[str] = []
    for code in asked.get("codes", []):
        drafts.run("t1", code, lambda stream, text: None, lambda *shown: None)
        described.append(drafts.describe_data(asked["prompt"], {}))
    for programs in asked["turns"]:
        started = time.monotonic()
        outcomes = drafts.try_programs(programs, asked.get("names", []))
        seconds = time.monotonic() - started
        private = sum(map(private_mb, descendants(os.getpid())))
        told = [outcome.to_json() for outcome in outcomes]
        turns.append({"outcomes": told, "seconds": seconds, "private_mb": private})
        before = before or count_resources()
    after = count_resources()
    live = [repr(eval(expression, shell.user_ns)) for expression in asked.get("live", [])]
    drafts.close()
    ended = {name: count - before.get(name, 0) for name, count in count_resources().items()}
    found = {"described": described, "turns": turns, "live": live, "before": before, "after": after, "ended": ended}
    print("\n" + json.dumps(found))


def count_resources() -> dict[str, int]:
    own = [path for path in os.listdir(tempfile.gettempdir()) if path.startswith(f"{PREFIX}{os.getpid()}-")]
    return {
        "processes": len(descendants(os.getpid())),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "directories": len(own),
    }


def descendants(pid: int) -> list[int]:
    """Return all processes below ``pid``, including those that have ended and were not reaped."""
    try:
        text = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:
        return []
    children = [int(child) for child in text.split()]
    return children + [below for child in children for below in descendants(child)]


def private_mb(pid: int) -> float:
    """Return the private dirty memory of a process in MiB; 0 if the process has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_Dirty")) / 1024


if __name__ == "__main__":
    main()
