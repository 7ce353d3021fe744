"""Reads, for ``agent-kernel serve --hub``, the environment variables with which a JupyterHub describes one of its
services.
"""

from __future__ import annotations

import argparse
import importlib.util
import urllib.parse
from collections.abc import MutableMapping
from dataclasses import dataclass

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.settings import Settings

LOGIN = "jupyter_ext.auth.hub_identity.HubIdentityProvider"
NEEDED = ("JUPYTERHUB_API_URL", "JUPYTERHUB_SERVICE_NAME", "JUPYTERHUB_SERVICE_PREFIX", "JUPYTERHUB_SERVICE_URL")
OWN_TOKEN = "JUPYTERHUB_API_TOKEN"


@dataclass(frozen=True, slots=True)
class HubService:
    """The address at which a service of a hub listens, and the path below which all its routes are."""

    host: str
    port: int
    prefix: str


def read_hub_service(environment: MutableMapping[str, str]) -> HubService:
    """Return the service that the environment describes.

    The service's own token is removed from the environment, so that no subprocess inherits it: the server uses only the
    tokens of its users. Raises InvalidRequest.
    """
    environment.pop(OWN_TOKEN, None)
    if missing := [name for name in NEEDED if not environment.get(name)]:
        raise InvalidRequest(
            (
                "--hub needs the environment variables that JupyterHub sets for "
                f"a service; {', '.join(missing)} is not set."
            ),
            hint="Let the hub start this command (c.JupyterHub.services), or set the variables where it runs.",
        )
    url = environment["JUPYTERHUB_SERVICE_URL"]
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urllib.parse.urlsplit(""), None
    if not parts.hostname or not port:
        raise InvalidRequest(
            f"JUPYTERHUB_SERVICE_URL is {url!r}, which lacks a host or a port.",
            hint='Give the service a URL such as "http://127.0.0.1:10101" in c.JupyterHub.services.',
        )
    if importlib.util.find_spec("jupyterhub") is None:
        raise InvalidRequest("--hub needs jupyterhub.", hint="Install it: pip install 'agent-kernel[hub]'.")
    return HubService(parts.hostname, port, environment["JUPYTERHUB_SERVICE_PREFIX"])


def apply_to_options(args: argparse.Namespace, service: HubService) -> None:
    """Set the options so that the server listens at the address of ``service``. Raises InvalidRequest for options that
    contradict ``--hub``.
    """
    for option in ("token_file", "base_url", "namespace"):
        if getattr(args, option, None):
            raise InvalidRequest(
                f"--hub cannot be combined with --{option.replace('_', '-')}: the hub decides who a request comes from "
                "and where the service is, and each user has a namespace."
            )
    args.base_url = service.prefix
    args.host = service.host if args.host is None else args.host
    args.port = service.port if args.port is None else args.port


def check_settings(settings: Settings) -> None:
    """Raise InvalidRequest for settings under which the users of a hub could see each other's data."""
    if settings.namespace:
        raise InvalidRequest(
            "The setting namespace would give all users of the hub the same conversations.",
            hint="Remove this setting: with --hub, each user has a namespace.",
        )
    if settings.sandbox == "off":
        raise InvalidRequest(
            "With the setting sandbox = off, code that a user's turn runs could read the conversations of all users.",
            hint="Remove this setting: with --hub, code runs in the sandbox or not at all.",
        )
