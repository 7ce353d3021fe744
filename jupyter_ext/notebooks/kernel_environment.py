"""Computes the environment variables that the server sets for its kernels: its address, and settings that the magic
follows."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterable, Mapping

from jupyter_server.serverapp import ServerApp

from agent_kernel.core.settings import Settings
from agent_kernel.core.version import __version__

ANY_ADDRESS = frozenset({"", "*", "0.0.0.0", "::", "localhost", "127.0.0.1"})


def server_url(server: ServerApp) -> str:
    """Return the address at which a process on this machine reaches the server, ending in ``/``."""
    scheme = "https" if server.certfile else "http"
    address = "127.0.0.1" if server.ip in ANY_ADDRESS else server.ip
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{server.port}{server.base_url}"


def page_url(server: ServerApp, env: Mapping[str, str] = os.environ) -> str:
    """Return the address at which a person's browser reaches the server, ending in ``/``.

    This is the public address that JupyterHub or the setting ServerApp.custom_display_url states. If a hub runs the
    server and states no address, only a path is returned, which the browser completes with the address of the page that
    it shows. Without a hub and the setting, ``server_url`` is returned.
    """
    if stated := env.get("JUPYTERHUB_PUBLIC_URL"):
        return f"{stated.rstrip('/')}/"
    if env.get("JUPYTERHUB_SERVICE_PREFIX"):
        return str(server.base_url)
    displayed = urllib.parse.urlsplit(server.custom_display_url)
    if displayed.scheme and displayed.netloc:
        return f"{displayed.scheme}://{displayed.netloc}{server.base_url}"
    return server_url(server)


def remote_url(server: ServerApp) -> str:
    """Return the address at which a process on another machine reaches the server, ending in ``/``.

    If ``page_url`` returns a complete URL, this is the address. If it returns only a path, the address is that of
    ``server_url``.
    """
    stated = page_url(server)
    return stated if "://" in stated else server_url(server)


def kernel_environment(settings: Settings, server_directories: Iterable[str]) -> dict[str, str]:
    """Return the variables that the magic of a kernel reads: the server's version, where python runs, and which paths
    drafts must not see.

    Drafts see neither the data directory of the settings nor ``server_directories``.
    """
    hidden = [str(settings.data_dir), *server_directories]
    environment = {
        "AGENT_KERNEL_VERSION": __version__,
        "AGENT_KERNEL_PYTHON_IN": settings.python_in,
        "AGENT_KERNEL_HIDDEN": os.pathsep.join(map(os.path.abspath, hidden)),
    }
    if settings.mode:
        environment["AGENT_KERNEL_MODE"] = settings.mode
        environment["AGENT_KERNEL_REPLAY_MISSING"] = settings.replay_missing
    return environment
