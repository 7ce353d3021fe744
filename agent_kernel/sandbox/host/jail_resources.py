"""Holds the server's resources for one jail: its control group, and the proxy of its network."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress

from agent_kernel.core.thread_offload import run_in_own_thread
from agent_kernel.sandbox.host.cgroup import Cgroups, SessionCgroup
from agent_kernel.sandbox.host.proxy import Proxy, ProxyPolicy

EXTRA = 4
"""Number of processes and threads that a group may contain in addition to those of the session's code: the supervisor,
process 1 of the namespace, and short-lived processes."""


class JailResources:
    """The resources that the server holds for one jail. They are created before the process becomes a jail, and closed
    after it has ended. ``reach`` says where the proxy may connect; it is set if the network mode is ``full``."""

    def __init__(self, cgroups: Cgroups, reach: ProxyPolicy | None = None) -> None:
        self._cgroups = cgroups
        self._reach = reach
        self._scope = SessionCgroup({})
        self._memory_mb = 0
        self._proxy: Proxy | None = None

    def count(self, pid: int, limits: Mapping[str, int]) -> dict[str, str]:
        """Put the process into a new control group. Returns a mapping from each layer that the group enforces to a
        description of the limit; empty if this system offers no control groups."""
        if not self._cgroups.parents:
            return {}
        self._memory_mb = memory = limits["session_memory_mb"]
        self._scope = self._cgroups.scope(memory_mb=memory, procs=limits["procs"] + EXTRA)
        self._scope.add(pid)
        details = {"memory": "by a control group", "pids": f"{limits['procs']} by a control group"}
        names = {"memory": "memory", "pids": "processes"}
        return {names[name]: details[name] for name in self._scope.directories}

    async def open(self, way: socket.socket) -> None:
        """Receive the listening socket of the proxy over ``way``, if the jail has sent one, and serve it. Closes
        ``way``."""
        with way:
            way.setblocking(False)
            with suppress(BlockingIOError):
                _, fds, _, _ = socket.recv_fds(way, 1, 1)
                if fds and self._reach is not None:
                    self._proxy = Proxy(self._reach)
                    await self._proxy.serve(socket.socket(fileno=fds[0]))

    def out_of_memory(self) -> str:
        """Return a message if the kernel killed a process of the session because it used too much memory, else an empty
        string.
        """
        if not self._scope.killed_for_memory():
            return ""
        return f"its processes used more than {self._memory_mb} MB of memory together"

    def kill(self) -> None:
        """Kill the processes that are left in the group after the supervisor has ended."""
        self._scope.kill()

    async def aclose(self) -> None:
        if self._proxy is not None:
            await self._proxy.aclose()
        if not self._scope.remove():
            await run_in_own_thread(self._scope.close, "end of a control group")
