"""Compares the version of the package in this kernel with that of its server. They differ if the kernel has an
environment of its own, and only one of the two was updated."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping

from agent_kernel.core.version import __version__

VARIABLE = "AGENT_KERNEL_VERSION"
"""The environment variable in which a server gives its version to its kernels."""


def version_notice(environment: Mapping[str, str] = os.environ, own: str = __version__) -> str:
    """Return what the user is told if this kernel and its server have different versions; "" if the first two numbers
    are the same, or if the server did not say its version."""
    server = environment.get(VARIABLE, "")
    if not server or _series(server) == _series(own):
        return ""
    name = "agent-kernel" if importlib.util.find_spec("jupyter_ext") else "agent-kernel-magic"
    return (
        f"This kernel has agent-kernel {own}, and its server has {server}. Some of %%agent may not work. To install "
        f"the server's version here: {sys.executable} -m pip install '{name}=={server}'. Then restart the kernel."
    )


def _series(version: str) -> list[str]:
    return version.split(".")[:2]
