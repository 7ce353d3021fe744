"""What the server keeps up around one jail: its control group, and the proxy on its network."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress

from agent_kernel.core.thread_offload import run_in_own_thread
from agent_kernel.sandbox.host.cgroup import Cgroups, Scope
from agent_kernel.sandbox.host.proxy import Proxy, Reach

EXTRA = 4
"""Tasks of ours in the group: the supervisor, process 1 and what they need for a moment."""


class Surroundings:
    """Made before the process is a jail, closed after it has ended. ``reach``: with network ``full``."""

    def __init__(self, cgroups: Cgroups, reach: Reach | None = None) -> None:
        self._cgroups = cgroups
        self._reach = reach
        self._scope = Scope({})
        self._memory_mb = 0
        self._proxy: Proxy | None = None

    def count(self, pid: int, limits: Mapping[str, int]) -> dict[str, str]:
        """Puts the process into a group of its own: layer -> how it is kept."""
        if not self._cgroups.parents:
            return {}
        self._memory_mb = memory = limits["session_memory_mb"]
        self._scope = self._cgroups.scope(memory_mb=memory, procs=limits["procs"] + EXTRA)
        self._scope.add(pid)
        told = {"memory": "by a control group", "pids": f"{limits['procs']} by a control group"}
        names = {"memory": "memory", "pids": "processes"}
        return {names[name]: told[name] for name in self._scope.directories}

    async def open(self, way: socket.socket) -> None:
        """Serves the socket that the jail has sent, if it has one. Takes ``way``."""
        with way:
            way.setblocking(False)
            with suppress(BlockingIOError):
                _, fds, _, _ = socket.recv_fds(way, 1, 1)
                if fds and self._reach is not None:
                    self._proxy = Proxy(self._reach)
                    await self._proxy.serve(socket.socket(fileno=fds[0]))

    def out_of_memory(self) -> str:
        """Says that the session took more memory than it may have, if the kernel killed a process of it for that."""
        if not self._scope.killed_for_memory():
            return ""
        return f"its processes used more than {self._memory_mb} MB of memory together"

    def kill(self) -> None:
        """Whatever is left in the group, when the supervisor is gone."""
        self._scope.kill()

    async def aclose(self) -> None:
        if self._proxy is not None:
            await self._proxy.aclose()
        if not self._scope.remove():
            await run_in_own_thread(self._scope.close, "end of a control group")
