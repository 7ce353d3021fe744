"""What is known of the program that a kernel's user sits in front of."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

CONSOLES = ("jupyter-console", "jupyter_console")


@functools.cache
def is_jupyter_console() -> bool:
    """Whether ``jupyter console`` started this kernel. No message of the protocol names the front end, so this reads
    the command of the parent process; False where it cannot be read."""
    return any(name in _command_of(os.getppid()) for name in CONSOLES)


def _command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:  # no Linux
        pass
    try:
        done = subprocess.run(
            ("ps", "-o", "command=", "-p", str(process)), capture_output=True, text=True, timeout=5.0, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
