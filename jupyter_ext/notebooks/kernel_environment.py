"""What the server tells its kernels through environment variables: its address, and settings that the magic follows."""

from __future__ import annotations

import os
from collections.abc import Iterable

from jupyter_server.serverapp import ServerApp

from agent_kernel.core.settings import Settings

ANY_ADDRESS = frozenset({"", "*", "0.0.0.0", "::", "localhost", "127.0.0.1"})


def server_url(server: ServerApp) -> str:
    """Return the address at which a process on this machine reaches the server, ending in ``/``."""
    scheme = "https" if server.certfile else "http"
    address = "127.0.0.1" if server.ip in ANY_ADDRESS else server.ip
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{server.port}{server.base_url}"


def kernel_environment(settings: Settings, server_directories: Iterable[str]) -> dict[str, str]:
    """Return the variables that the magic of a kernel reads: where python runs, and which paths drafts must not see.

    Drafts see neither the data directory of the settings nor ``server_directories``.
    """
    hidden = [str(settings.data_dir), *server_directories]
    environment = {
        "AGENT_KERNEL_PYTHON_IN": settings.python_in,
        "AGENT_KERNEL_HIDDEN": os.pathsep.join(map(os.path.abspath, hidden)),
    }
    if settings.mode:
        environment["AGENT_KERNEL_MODE"] = settings.mode
        environment["AGENT_KERNEL_REPLAY_MISSING"] = settings.replay_missing
    return environment
