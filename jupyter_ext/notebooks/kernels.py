"""Registers the kernels of this server, gives each one a credential, notices its restarts and its end, and loads the
``%%agent`` magic in those that run IPython.

Sessions, the kernels API and other extensions all start kernels. The kernel manager's ``pre_start_kernel`` is the only
step that they share and where the environment and the arguments of a kernel can be set, so this module wraps it. A
manager of kernels behind a gateway has no such step: there ``start_kernel`` is wrapped.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import KernelManager
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_core.utils import ensure_async
from jupyter_server.gateway.managers import GatewayKernelManager, GatewayMappingKernelManager

EXTENSION_ARGUMENT = "--ext=agent_kernel"
GATEWAY_PREFIX = "KERNEL_"
"""Gateways pass variables with this prefix on to kernels, and drop others."""
IPYKERNEL_MODULES = frozenset({"ipykernel", "ipykernel_launcher"})


@dataclass(slots=True)
class Kernel:
    """A kernel of this server, and its access rights.

    ``epoch`` identifies the kernel's present process. ``sessions`` are the ids of the sessions that the kernel created,
    or that a person let the kernel use. ``may_search``: a person allowed the kernel to search the whole namespace.
    ``starts_server``: the kernel started this server for itself, so it may do everything that a user may do.
    ``is_remote``: a gateway runs the kernel."""

    id: str
    namespace: str
    epoch: str = field(default_factory=lambda: secrets.token_hex(8))
    sessions: set[str] = field(default_factory=set)
    may_search: bool = False
    starts_server: bool = False
    is_remote: bool = False


class Kernels:
    """The kernels of one server. Each kernel that runs IPython is started with a credential and the magic.

    ``url`` returns the URL at which kernels on this machine reach this server, ``remote_url`` the one for kernels that
    a gateway runs. ``namespace`` returns the namespace of the current request. ``on_end`` is called with the kernel's
    id and the reason at each restart, shutdown or death of a kernel, ``on_gone`` with the id when a kernel has ended
    for good. ``extra_env`` are additional environment variables for kernels.
    """

    def __init__(
        self,
        manager: MultiKernelManager,
        url: Callable[[], str],
        namespace: Callable[[], str],
        on_end: Callable[[str, str], None],
        on_gone: Callable[[Kernel], None] = lambda kernel: None,
        *,
        extra_env: Mapping[str, str] = MappingProxyType({}),
        remote_url: Callable[[], str],
    ) -> None:
        self._manager = manager
        self._url = url
        self._remote_url = remote_url
        self._namespace = namespace
        self._on_end = on_end
        self._on_gone = on_gone
        self._extra_env = extra_env
        self._credentials = KernelCredentials()
        self._kernels: dict[str, Kernel] = {}
        self._prepare = manager.pre_start_kernel
        self._start: Callable[..., Any] = manager.start_kernel
        self._remove = manager.remove_kernel
        self._log = logging.getLogger(__name__)
        manager.pre_start_kernel = self._pre_start_kernel  # type: ignore[method-assign]  # no hook exists for this
        manager.remove_kernel = self._remove_kernel  # type: ignore[method-assign]  # also called for kernels that died
        if isinstance(manager, GatewayMappingKernelManager):
            manager.start_kernel = self._start_remote_kernel  # type: ignore[method-assign]  # the only step that it has

    def add_unmanaged(self, kernel: str, token: str) -> None:
        """Register a kernel that no Jupyter server manages and that has started this server."""
        self._credentials.accept(kernel, token)
        self._kernels[kernel] = Kernel(kernel, self._namespace(), may_search=True, starts_server=True)

    def get(self, kernel: str) -> Kernel | None:
        return self._kernels.get(kernel)

    def find_by_token(self, token: str) -> Kernel | None:
        """Return the kernel whose current credential is ``token``, or None."""
        kernel = self._kernels.get(self._credentials.kernel(token) or "")
        if kernel is not None and kernel.is_remote and kernel.id not in self._manager:
            self._forget(kernel.id, "the gateway ended the kernel")  # no event of the kernel's manager reports this
            return None
        return kernel

    def touch(self, kernel: str, now: Any) -> None:
        """Record that the kernel was active at the time ``now``, so that a culler does not shut it down as idle."""
        if kernel in self._manager and hasattr(manager := self._manager.get_kernel(kernel), "last_activity"):
            manager.last_activity = now

    def busy_ids(self) -> set[str]:
        """Return the ids of the kernels that execute code as far as Jupyter knows. Kernels to which no client has
        connected are missing."""
        managers = {kernel: self._manager.get_kernel(kernel) for kernel in self._manager.list_kernel_ids()}
        return {kernel for kernel, manager in managers.items() if getattr(manager, "execution_state", "") == "busy"}

    def runs_ipykernel(self, kernel: str) -> bool:
        return kernel in self._manager and runs_ipykernel(self._manager.get_kernel(kernel))

    def interpreter(self, kernel: str) -> str:
        """Return the Python interpreter of a kernel that runs IPython, from its kernel spec; empty if it is not
        known."""
        if kernel not in self._manager or not runs_ipykernel(manager := self._manager.get_kernel(kernel)):
            return ""
        first = manager.kernel_spec.argv[0] if manager.kernel_spec else ""
        # If the kernel spec names the interpreter without a path, jupyter_client runs its own interpreter.
        return first if os.path.isabs(first) else sys.executable if first.startswith("python") else ""

    def close(self) -> None:
        """Undo the changes to the kernel manager. Kernels that start later get no credential and are not registered."""
        self._manager.pre_start_kernel = self._prepare  # type: ignore[method-assign]
        self._manager.remove_kernel = self._remove  # type: ignore[method-assign]
        self._manager.start_kernel = self._start  # type: ignore[method-assign]

    def _pre_start_kernel(self, kernel_name: str | None, kwargs: dict[str, Any]) -> tuple[KernelManager, str, str]:
        manager, name, kernel_id = self._prepare(kernel_name, kwargs)
        kernel = self._kernels[kernel_id] = Kernel(kernel_id, self._namespace())
        ours = runs_ipykernel(manager)
        if ours:
            kwargs["env"] = {**(kwargs.get("env") or os.environ), **self._environment(kernel_id)}
            kwargs["extra_arguments"] = [*kwargs.get("extra_arguments", ()), EXTENSION_ARGUMENT]

        def renew() -> None:
            if ours:
                manager.update_env(env=self._environment(kernel_id))

        self._watch(manager, kernel, renew)
        return manager, name, kernel_id

    async def _start_remote_kernel(self, *, kernel_id: str | None = None, **kwargs: Any) -> str:
        """Start a kernel through the gateway, with a credential in variables that gateways pass on. The magic is loaded
        there by the kernel spec, or by the user. A kernel that runs already gets no credential.

        The gateway gives a restarted kernel the same variables, so its credential is valid until the kernel ends.
        """
        if kernel_id is not None:
            return str(await self._start(kernel_id=kernel_id, **kwargs))
        namespace, token = self._namespace(), secrets.token_urlsafe(32)
        environment = {"AGENT_KERNEL_URL": self._remote_url(), "AGENT_KERNEL_TOKEN": token, **self._extra_env}
        remote = {f"{GATEWAY_PREFIX}{name}": value for name, value in environment.items()}
        started = str(await self._start(**{**kwargs, "env": {**(kwargs.get("env") or {}), **remote}}))
        kernel = self._kernels[started] = Kernel(started, namespace, is_remote=True)
        self._credentials.accept(started, token)
        self._watch(self._manager.get_kernel(started), kernel, lambda: self._credentials.accept(started, token))
        return started

    def _environment(self, kernel: str) -> dict[str, str]:
        return {
            "AGENT_KERNEL_URL": self._url(),
            "AGENT_KERNEL_ID": kernel,
            "AGENT_KERNEL_TOKEN": self._credentials.issue(kernel),
            **self._extra_env,
        }

    def _watch(self, manager: Any, kernel: Kernel, renew: Callable[[], None]) -> None:
        """Notice restarts and the shutdown of a kernel. ``renew`` is called before a restart and gives the next process
        a valid credential."""
        restart, shutdown = manager.restart_kernel, manager.shutdown_kernel

        async def restart_kernel(*args: Any, **kwargs: Any) -> Any:
            died = "newports" in kwargs  # only the watchdog, which restarts dead kernels, passes this argument
            self._end_life(kernel, "the kernel died and was restarted" if died else "the kernel was restarted")
            renew()
            return await ensure_async(restart(*args, **kwargs))

        async def shutdown_kernel(now: bool = False, restart: bool = False) -> Any:
            self._forget(kernel.id, "the kernel was shut down")
            return await ensure_async(shutdown(now=now, restart=restart))

        manager.restart_kernel = restart_kernel
        manager.shutdown_kernel = shutdown_kernel

    def _remove_kernel(self, kernel_id: str) -> Any:
        self._forget(kernel_id, "the kernel died")
        return self._remove(kernel_id)

    def _end_life(self, kernel: Kernel, reason: str) -> None:
        self._credentials.revoke(kernel.id)
        kernel.epoch = secrets.token_hex(8)
        self._on_end(kernel.id, reason)

    def _forget(self, kernel_id: str, reason: str) -> None:
        if kernel := self._kernels.pop(kernel_id, None):
            self._end_life(kernel, reason)
            self._on_gone(kernel)


def runs_ipykernel(manager: KernelManager) -> bool:
    """Return whether the kernel is a process of this server that runs IPython; False for a kernel behind a gateway."""
    if isinstance(manager, GatewayKernelManager):
        return False
    try:
        argv = manager.kernel_spec.argv if manager.kernel_spec else []
    except NoSuchKernel:
        return False
    return not IPYKERNEL_MODULES.isdisjoint(argv)


class KernelCredentials:
    """Issues and checks the credential of each kernel. Only that kernel knows it, and it is valid until the kernel
    restarts or ends. SHA-256 hashes of the tokens are stored, never the tokens."""

    def __init__(self) -> None:
        self._kernels: dict[str, str] = {}
        self._hashes: dict[str, str] = {}

    def issue(self, kernel: str) -> str:
        """Return a new token for the kernel and revoke its earlier one."""
        token = secrets.token_urlsafe(32)
        self.accept(kernel, token)
        return token

    def accept(self, kernel: str, token: str) -> None:
        """Register a token that the kernel has chosen."""
        self.revoke(kernel)
        self._hashes[kernel] = _hash(token)
        self._kernels[_hash(token)] = kernel

    def kernel(self, token: str) -> str | None:
        """Return the id of the kernel to which the token belongs; None if the token is not valid."""
        return self._kernels.get(_hash(token))

    def revoke(self, kernel: str) -> None:
        self._kernels.pop(self._hashes.pop(kernel, ""), None)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
