"""An IPython kernel in its own process that runs pieces of code in a draft and prints their results.

``python driver.py`` reads JSON ``{setup, codes, live, timeout_s, hang_s, memory_mb, stop_at}`` and prints ``{unsafe,
ran, live, left, processes}``. ``ran`` is [status, text, printed output, seconds] of each code, all in one draft for as
long as it lives. Code that begins with TRIAL runs as a trial; its entry also has the values of its variables.
``processes`` is the number of processes of the draft before it ends, ``live`` are the values of expressions in the
kernel afterwards, and ``left`` is what should have been removed. Code that prints ``stop_at`` is stopped as by an
interrupt that set only the flag.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from agent_kernel.notebook.draft import fork_safety, hang_detector, jail
from agent_kernel.notebook.draft.draft_process import DraftEnded, DraftProcess

TRIAL = "# try\n"


def ran(draft: DraftProcess, code: str, timeout_s: float, stop_at: str) -> list[Any]:
    printed: list[str] = []
    started = time.monotonic()

    def stopped() -> bool:
        return bool(stop_at) and stop_at in "".join(printed)

    try:
        told = draft.run(
            code,
            lambda stream, text: printed.append(text),
            lambda shown: None,
            timeout_s,
            stopped=stopped,
            trial={"names": ["made"]} if code.startswith(TRIAL) else None,
        )
    except KeyboardInterrupt:
        return ["interrupted", "", "".join(printed), time.monotonic() - started]
    except DraftEnded as error:
        return ["ended", str(error), "".join(printed), time.monotonic() - started]
    facts = [told["status"], told["text"], "".join(printed), time.monotonic() - started]
    return [*facts, told["contents"]] if code.startswith(TRIAL) else facts


def main() -> None:
    asked = json.loads(sys.stdin.read())
    shell: Any = InteractiveShell.instance()
    shell.run_cell(asked["setup"])
    unsafe = fork_safety.unsafe()
    hang_detector.HANG_S = asked.get("hang_s", hang_detector.HANG_S)
    jail.MEMORY_MB = asked.get("memory_mb", jail.MEMORY_MB)
    draft, results = None, []
    for code in asked["codes"]:
        if draft is None or not draft.pid:
            draft = DraftProcess.start(shell)
        results.append(
            ran(draft, code.replace("PARENT", str(os.getpid())), asked.get("timeout_s", 20.0), asked.get("stop_at", ""))
        )
    directory = draft.directory if draft else ""
    processes = len(below(os.getpid()))
    if draft is not None:
        draft.end()
    left = [str(path) for path in Path(directory).parent.glob(Path(directory).name)] if directory else []
    left += [name for name in os.listdir("/proc") if name.isdigit() and parent_of(name) == os.getpid()]
    live = [repr(eval(expression, shell.user_ns)) for expression in asked["live"]]
    print("\n" + json.dumps({"unsafe": unsafe, "ran": results, "live": live, "left": left, "processes": processes}))


def below(pid: int) -> list[int]:
    """Return all descendants of a process that have not ended."""
    children = [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(name) == pid]
    living = [child for child in children if lives(child)]
    return living + [found for child in children for found in below(child)]


def lives(pid: int) -> bool:
    """Return False for a zombie, and for a process that has ended since it was listed."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def parent_of(pid: str) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


if __name__ == "__main__":
    main()
