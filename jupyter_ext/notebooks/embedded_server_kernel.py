"""Registers the kernel that started this server for itself. No Jupyter server manages that kernel. Its credential comes
in the environment, and the server stops when the kernel ends for any reason."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from jupyter_ext.notebooks.bindings import Notebooks, is_notebook
from jupyter_ext.notebooks.kernels import Kernels

KERNEL = "AGENT_KERNEL_ADOPTS"
TOKEN = "AGENT_KERNEL_ADOPTS_TOKEN"
LOGIN = "JUPYTER_TOKEN"
NOTEBOOK = "AGENT_KERNEL_ADOPTS_NOTEBOOK"
"""The notebook's path below the contents root; empty for a kernel without a notebook."""


def adopt(kernels: Kernels, notebooks: Notebooks, *, has_login: bool) -> None:
    """Register the kernel that started this server, if the environment variables name one. The variables are removed,
    so that child processes do not inherit them."""
    kernel, token, notebook = (os.environ.pop(name, "") for name in (KERNEL, TOKEN, NOTEBOOK))
    if not kernel or not token:
        return
    if has_login:  # the settings were read from these variables already
        os.environ.pop(LOGIN, None)
    kernels.add_unmanaged(kernel, token)
    if is_notebook(notebook):
        notebooks.unmanaged[kernel] = Path(notebook).as_posix()
    threading.Thread(target=_stop_with_parent, name="agent-adopted", daemon=True).start()


def _stop_with_parent() -> None:
    """Wait for the end of standard input, then stop the server. The kernel holds the other end of the pipe and writes
    nothing, so the input ends when the kernel ends."""
    while sys.stdin is not None and sys.stdin.buffer.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
