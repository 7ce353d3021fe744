"""Implements ``%agent replay NAME.agent.json``, which runs ``agent-kernel replay`` in its own process and prints its
output in this cell.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from agent_kernel.notebook.display.terminal_escape import printable
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.command_arguments import split_words

SUFFIXES = (".agent.json", ".ipynb")
STOP_S = 5.0


def names_a_file(line: str) -> bool:
    return any(word.endswith(SUFFIXES) for word in line.split())


def replay(arguments: str) -> None:
    """Run the command and print its output. Raises AgentError if the command fails or a stored answer could not be
    confirmed, so that Run All stops at this cell. An interrupt ends the process."""
    words = [os.path.expanduser(word) for word in split_words(arguments)]  # harmless for words that are not paths
    missing = [word for word in words if word.endswith(SUFFIXES) and not Path(word).is_file()]
    if missing:
        file = Path(missing[0]).absolute()
        raise AgentError(f"{file} does not exist. Give the path of a NAME.agent.json or of a notebook.")
    command = [sys.executable, "-m", "agent_kernel", "replay", *words]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # only `_end` passes Ctrl-C on, so it arrives once
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stdout.write(printable(line))
                sys.stdout.flush()
            code = process.wait()
        except BaseException:  # also on Ctrl-C: the process runs in a session of its own
            _end(process)
            raise
    if code:
        raise AgentError(
            "some stored answers could not be confirmed; the lines above say which, and why."
            if code == 1
            else f"agent-kernel replay ended with the exit code {code}; its messages are above."
        )


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt the process, so that it stops the code that it runs in the sandbox, then kill its process group."""
    try:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
