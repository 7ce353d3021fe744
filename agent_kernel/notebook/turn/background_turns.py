"""Follows turns that continue after their cell has finished. For each such turn, a thread updates the output of the
cell.

Background turns run no code in the kernel. Their approval requests wait in ``PendingApprovals``. When the kernel ends,
the server ends these turns.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.core.wire.turn_end import describe_end
from agent_kernel.notebook.display.screen import Screen
from agent_kernel.notebook.kernel.cell_identity import parent_request
from agent_kernel.notebook.kernel.one_line_errors import AgentError, AgentInterrupted, to_short_error
from agent_kernel.notebook.turn.cell_turn import CellTurn
from agent_kernel.notebook.turn.pending_approvals import PendingApprovals

log = logging.getLogger(__name__)
NO_KERNEL = "--background needs a notebook: in a terminal, output would appear while you type."
BEGUN = "Running in the background: this output grows while your kernel is free. %agent stop stops it."


class CellPublisher:
    """Publishes outputs of the cell that runs when this object is created, even after that cell has finished.
    ``shell.display_pub`` would attach them to the cell that runs at the time of the output. Any thread may call it.
    Creating it raises AgentError outside a kernel."""

    def __init__(self, shell: Any) -> None:
        kernel: Any = getattr(shell, "kernel", None)
        if kernel is None:
            raise AgentError(NO_KERNEL)
        self._kernel = kernel
        self._parent = parent_request(shell)
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
    """The background turns of this kernel that have not ended. ``waiting`` collects their approval requests."""

    def __init__(self) -> None:
        self.waiting = PendingApprovals()
        self._turns: dict[str, threading.Thread] = {}

    @property
    def running(self) -> list[str]:
        return [turn for turn, thread in list(self._turns.items()) if thread.is_alive()]

    def follow(self, id: str, turn: CellTurn, screen: Screen) -> None:
        """Start following ``turn`` in a thread and return at once."""
        screen.status(BEGUN)
        thread = threading.Thread(target=self._follow, args=(turn, screen), name=f"agent-turn-{id}", daemon=True)
        self._turns = {
            known: other_thread for known, other_thread in self._turns.items() if other_thread.is_alive()
        } | {id: thread}
        thread.start()

    def _follow(self, turn: CellTurn, screen: Screen) -> None:
        """Follow the turn to its end. Errors are displayed, because this thread has no caller that could catch them."""
        try:
            end = turn.follow()
            message = str(end.error.get("message", "")) if end.error else ""
            if end.state != "committed":
                screen.line(message or describe_end(end.state, end.reason))
        except AgentInterrupted:
            raise AssertionError("an interrupt reaches the main thread only") from None
        except AgentKernelError as error:
            try:
                screen.line(str(to_short_error(error)))
            except Exception:  # a kernel that is shutting down has closed its sockets, in whatever order
                log.exception("the error of a background turn could not be displayed: %s", error)
        finally:
            self.waiting.forget(turn.calls)
