"""Detects whether the front end of this kernel is ``jupyter console``."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

CONSOLES = ("jupyter-console", "jupyter_console")


@functools.cache
def is_jupyter_console() -> bool:
    """Return True if ``jupyter console`` started this kernel, and False if that cannot be determined. No message of the
    protocol names the front end, so this reads the command line of the parent process.
    """
    return any(name in _command_of(os.getppid()) for name in CONSOLES)


def _command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    except OSError:  # this system is not Linux, or the process has ended
        pass
    try:
        done = subprocess.run(
            ("ps", "-o", "command=", "-p", str(process)), capture_output=True, text=True, timeout=5.0, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
