"""Turns that go on when their cell is over: followed by a thread, shown in that cell's output.

They run nothing in the kernel. What they ask waits (``PendingApprovals``); the kernel's end ends them on the server.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.kernel.cell_identity import parent
from agent_kernel.notebook.kernel.short_errors import AgentError, AgentInterrupted, line_of
from agent_kernel.notebook.turn.cell_turn import CellTurn
from agent_kernel.notebook.turn.pending_approvals import PendingApprovals

NO_KERNEL = "--background needs a notebook: a terminal has one place for words, and you are typing there."
BEGUN = "Asked in the background: this output grows while your kernel is free. %agent stop ends it."


class CellPublisher:
    """Publishes outputs of the request that runs now, also when it is over: ``shell.display_pub`` goes by whatever runs
    at the moment. From any thread. Raises AgentError outside of a kernel."""

    def __init__(self, shell: Any) -> None:
        kernel: Any = getattr(shell, "kernel", None)
        if kernel is None:
            raise AgentError(NO_KERNEL)
        self._kernel = kernel
        self._parent = parent(shell)
        self._topic = shell.display_pub.topic

    def publish(
        self,
        data: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        *,
        transient: Mapping[str, Any] | None = None,
        update: bool = False,
    ) -> None:
        content = {"data": dict(data), "metadata": dict(metadata or {}), "transient": dict(transient or {})}
        kind = "update_display_data" if update else "display_data"
        self._kernel.session.send(self._kernel.iopub_socket, kind, content, parent=self._parent, ident=self._topic)


class BackgroundTurns:
    """The turns of this kernel that go on; ``waiting`` is what they ask."""

    def __init__(self) -> None:
        self.waiting = PendingApprovals()
        self._turns: dict[str, threading.Thread] = {}

    @property
    def running(self) -> list[str]:
        return [turn for turn, thread in list(self._turns.items()) if thread.is_alive()]

    def follow(self, id: str, turn: CellTurn, screen: Screen) -> None:
        """Returns at once."""
        screen.status(BEGUN)
        thread = threading.Thread(target=self._follow, args=(turn, screen), name=f"agent-turn-{id}", daemon=True)
        self._turns = {known: one for known, one in self._turns.items() if one.is_alive()} | {id: thread}
        thread.start()

    def _follow(self, turn: CellTurn, screen: Screen) -> None:
        """To its end. Nobody is there to whom an error could be raised, so it is shown."""
        try:
            end = turn.follow()
            told = str(end.error.get("message", "")) if end.error else ""
            if end.state != "committed":
                screen.line(told or f"The turn was {end.state}{f': {end.reason}' if end.reason else ''}.")
        except AgentInterrupted:
            raise AssertionError("an interrupt reaches the main thread only") from None
        except AgentKernelError as error:
            with contextlib.suppress(Exception):  # a kernel that ends has no place to show it
                screen.line(str(line_of(error)))
        finally:
            self.waiting.forget(turn.calls)
