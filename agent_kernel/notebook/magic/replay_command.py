"""``%agent replay NAME.agent.json``: the command of that name, in a process of its own, its lines in this cell."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from agent_kernel.notebook.display.terminal_escape import printable
from agent_kernel.notebook.kernel.short_errors import AgentError

SUFFIXES = (".agent.json", ".ipynb")
STOP_S = 5.0


def names_a_file(rest: str) -> bool:
    return any(word.endswith(SUFFIXES) for word in rest.split())


def replay(rest: str) -> None:
    """Prints what it prints. Raises AgentError when it can not do it, or when an answer does not hold any more, so that
    Run All stops there; an interrupt ends it."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise AgentError(f"{rest!r} can not be read: {error}.") from None
    words = [os.path.expanduser(word) for word in words]  # a word need not be a path
    missing = [word for word in words if word.endswith(SUFFIXES) and not Path(word).is_file()]
    if missing:
        raise AgentError(f"{Path(missing[0]).absolute()} is not there.")
    command = [sys.executable, "-m", "agent_kernel", "replay", *words]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # a Ctrl-C of the terminal comes once, from here
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stdout.write(printable(line))
                sys.stdout.flush()
            code = process.wait()
        except BaseException:
            _end(process)
            raise
    if code:
        raise AgentError(
            "some of these answers do not hold any more." if code == 1 else f"replay ended with {code}; see above."
        )


def _end(process: subprocess.Popen[str]) -> None:
    """Asked first, so that it ends what it began in the sandbox; then with all of its group."""
    try:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
