"""The kernels of this server: their credentials, their lives, and the ``%%agent`` magic in those that run IPython.

Kernels are met where the kernel manager prepares them, because only there a kernel's environment and arguments can
still be chosen, whoever asked for it (sessions, kernels API, other extensions).
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.manager import KernelManager
from jupyter_client.multikernelmanager import MultiKernelManager
from jupyter_core.utils import ensure_async

from jupyter_ext.notebooks.kernel_credentials import Credentials

EXTENSION_ARGUMENT = "--ext=agent_kernel"
IPYKERNEL_MODULES = frozenset({"ipykernel", "ipykernel_launcher"})


class OnEnd(Protocol):
    def __call__(self, kernel: str, reason: str) -> None: ...


@dataclass(slots=True)
class Kernel:
    """``epoch`` names its present life. ``sessions`` are those it made or a person let it use; ``searches``: a person
    lets it search all of the namespace. ``own``: it has started this server for itself, so it may use what a user may.
    """

    id: str
    namespace: str
    epoch: str = field(default_factory=lambda: secrets.token_hex(8))
    sessions: set[str] = field(default_factory=set)
    searches: bool = False
    own: bool = False


class Kernels:
    """``url`` gives this server's address as a kernel on this machine reaches it, ``namespace`` that of the request
    being served, ``on_end`` hears of each life's end: restart, shutdown or death; ``on_gone`` of kernels that will have
    no other life. ``told`` are more variables for their environment."""

    def __init__(
        self,
        manager: MultiKernelManager,
        url: Callable[[], str],
        namespace: Callable[[], str],
        on_end: OnEnd,
        on_gone: Callable[[Kernel], None] = lambda kernel: None,
        *,
        told: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._manager = manager
        self._url = url
        self._namespace = namespace
        self._on_end = on_end
        self._on_gone = on_gone
        self._told = told
        self._credentials = Credentials()
        self._kernels: dict[str, Kernel] = {}
        self._prepare = manager.pre_start_kernel
        self._remove = manager.remove_kernel
        self._log = logging.getLogger(__name__)
        manager.pre_start_kernel = self._pre_start_kernel  # type: ignore[method-assign]  # no hook exists for this
        manager.remove_kernel = self._remove_kernel  # type: ignore[method-assign]  # hears of kernels that died

    def adopt(self, kernel: str, token: str) -> None:
        """A kernel that this server does not manage, and that has started it."""
        self._credentials.accept(kernel, token)
        self._kernels[kernel] = Kernel(kernel, self._namespace(), searches=True, own=True)

    def get(self, kernel: str) -> Kernel | None:
        return self._kernels.get(kernel)

    def of_token(self, token: str) -> Kernel | None:
        """The kernel whose present credential this is."""
        return self._kernels.get(self._credentials.kernel(token) or "")

    def touch(self, kernel: str, now: Any) -> None:
        """Counts as activity, so that a culler leaves the kernel alone."""
        if kernel in self._manager and hasattr(manager := self._manager.get_kernel(kernel), "last_activity"):
            manager.last_activity = now

    def busy(self) -> set[str]:
        """Kernels that execute something, as far as Jupyter has heard; one that has not been connected to is not."""
        managers = {kernel: self._manager.get_kernel(kernel) for kernel in self._manager.list_kernel_ids()}
        return {kernel for kernel, manager in managers.items() if getattr(manager, "execution_state", "") == "busy"}

    def runs_ipykernel(self, kernel: str) -> bool:
        return kernel in self._manager and runs_ipykernel(self._manager.get_kernel(kernel))

    def interpreter(self, kernel: str) -> str:
        """Of a kernel that runs IPython, as its specification says; empty if that is not known."""
        if kernel not in self._manager or not runs_ipykernel(manager := self._manager.get_kernel(kernel)):
            return ""
        first = manager.kernel_spec.argv[0] if manager.kernel_spec else ""
        # jupyter_client runs a bare name of this kind with its own interpreter.
        return first if os.path.isabs(first) else sys.executable if first.startswith("python") else ""

    def close(self) -> None:
        """Kernels that start from now on are none of ours."""
        self._manager.pre_start_kernel = self._prepare  # type: ignore[method-assign]
        self._manager.remove_kernel = self._remove  # type: ignore[method-assign]

    def _pre_start_kernel(self, kernel_name: str | None, kwargs: dict[str, Any]) -> tuple[KernelManager, str, str]:
        manager, name, kernel_id = self._prepare(kernel_name, kwargs)
        kernel = self._kernels[kernel_id] = Kernel(kernel_id, self._namespace())
        ours = runs_ipykernel(manager)
        if ours:
            kwargs["env"] = {**(kwargs.get("env") or os.environ), **self._environment(kernel_id)}
            kwargs["extra_arguments"] = [*kwargs.get("extra_arguments", ()), EXTENSION_ARGUMENT]
        self._watch(manager, kernel, credential=ours)
        return manager, name, kernel_id

    def _environment(self, kernel: str) -> dict[str, str]:
        return {
            "AGENT_KERNEL_URL": self._url(),
            "AGENT_KERNEL_ID": kernel,
            "AGENT_KERNEL_TOKEN": self._credentials.issue(kernel),
            **self._told,
        }

    def _watch(self, manager: Any, kernel: Kernel, *, credential: bool) -> None:
        restart, shutdown = manager.restart_kernel, manager.shutdown_kernel

        async def restart_kernel(*args: Any, **kwargs: Any) -> Any:
            died = "newports" in kwargs  # only the watchdog that restarts dead kernels passes it
            self._end_life(kernel, "the kernel died and was restarted" if died else "the kernel was restarted")
            if credential:
                manager.update_env(env=self._environment(kernel.id))
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
    try:
        argv = manager.kernel_spec.argv if manager.kernel_spec else []
    except NoSuchKernel:
        return False
    return not IPYKERNEL_MODULES.isdisjoint(argv)
