"""Defines the interface of a sandbox: code of a session runs in it, isolated from the user's files and kernel.
Implementations do not inherit from the protocol. The values that they exchange with callers are in ``protocols.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from agent_kernel.core.protocols import RunResult, Variable, VariableInfo, Work
from agent_kernel.core.session import SessionKey


class Sandbox(Protocol):
    """Runs code of a session in isolation from the user's files and kernel."""

    async def run(
        self,
        session: SessionKey,
        work: Work | str,
        *,
        on_output: Callable[[str, str], None] = lambda stream, text: None,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
    ) -> RunResult:
        """Run ``work``; a string is python code with the default limits.

        ``on_output(stream, text)`` is called with output while the code runs. ``read`` and ``write`` are directories
        and files that the session may use in addition to its work directory; when they change, the session's process is
        restarted. Cancelling the task interrupts the run. Raises SandboxUnavailable.
        """

    async def reset(self, session: SessionKey) -> None:
        """Delete the variables of the session; its files stay."""

    async def take(self, session: SessionKey, name: str) -> Variable:
        """Return a copy of a variable as json, npy or arrow, at most 64 MiB; never as pickle.

        Waits for a run in progress. Raises NotFound, and InvalidRequest for a value that cannot be copied.
        """

    async def variables(self, session: SessionKey) -> Sequence[VariableInfo]:
        """Return the variables of the session, ordered by name; empty if no python process runs for it."""

    def lost(self, session: SessionKey) -> str:
        """Return why the variables of the session no longer exist, until code runs again; empty if they exist."""

    def has_run(self, session: SessionKey) -> bool:
        """Return whether code of the session has run in this sandbox since its variables were last deleted on
        request."""

    def workdir(self, session: SessionKey) -> Path:
        """Return the directory in which the session's code writes; it may not exist yet."""

    async def report(self) -> Mapping[str, Any]:
        """Return the isolation layers of this machine: name -> {required, active, detail}."""

    async def close(self, session: SessionKey, *, remove: bool = False) -> None:
        """End the processes of the session; ``remove`` also deletes its work directory."""

    async def aclose(self) -> None: ...
