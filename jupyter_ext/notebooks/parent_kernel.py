"""The kernel that has started this server for itself: no Jupyter server manages it. Its credential comes in the
environment; the server ends when the kernel does, whichever way that ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import MutableMapping
from pathlib import Path

from jupyter_ext.notebooks.bindings import Notebooks, is_notebook
from jupyter_ext.notebooks.kernels import Kernels

KERNEL = "AGENT_KERNEL_ADOPTS"
TOKEN = "AGENT_KERNEL_ADOPTS_TOKEN"
LOGIN = "JUPYTER_TOKEN"
NOTEBOOK = "AGENT_KERNEL_ADOPTS_NOTEBOOK"
"""Below the contents root; empty for a kernel without a notebook."""


def adopt(
    kernels: Kernels, notebooks: Notebooks, *, has_login: bool, environment: MutableMapping[str, str] = os.environ
) -> None:
    """Nothing where the environment names no kernel. The variables are taken out, so that no program inherits them."""
    kernel, token, notebook = (environment.pop(name, "") for name in (KERNEL, TOKEN, NOTEBOOK))
    if not kernel or not token:
        return
    if has_login:  # read from there already
        environment.pop(LOGIN, None)
    kernels.adopt(kernel, token)
    if is_notebook(notebook):
        notebooks.adopted[kernel] = Path(notebook).as_posix()
    threading.Thread(target=_end_with_it, name="agent-adopted", daemon=True).start()


def _end_with_it() -> None:
    """The kernel holds the other end of our input, and nobody writes to it."""
    while sys.stdin is not None and sys.stdin.buffer.read(4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
