"""Creates the nbformat outputs of a turn from its events, for turns that no kernel displays. (A kernel displays a turn
with ``CellTurn.show``.)

The outputs look like those of an agent cell. No user and no kernel is needed, and no code runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from agent_kernel.core.events import Event
from agent_kernel.notebook.display.render import TurnSummary
from agent_kernel.notebook.display.screen import CellScreen
from agent_kernel.notebook.server_client import ServerClient
from agent_kernel.notebook.turn.cell_turn import CellTurn, CellTurnContext
from agent_kernel.notebook.turn.kernel_parts import KernelParts

Output = dict[str, Any]


class _Cell:
    """Collects the outputs of one cell. An output that is published with a display id that was used before replaces the
    earlier output."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self._by_id: dict[str, Output] = {}

    def publish(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], *, transient: Mapping[str, Any], update: bool
    ) -> None:
        id = str(transient.get("display_id", ""))
        output = {"output_type": "display_data", "data": dict(data), "metadata": dict(metadata)}
        if id and id in self._by_id:
            self._by_id[id].update(output)
            return
        if not update:
            self.outputs.append(output)
            self._by_id[id] = output


def render_outputs(events: Iterable[Event], summary: TurnSummary, server: str) -> list[Output]:
    """Return the nbformat outputs of a turn from all its events, including media. Links to files are relative to the
    URL ``server``."""
    cell = _Cell()
    # A finished turn asks nobody and runs nothing. Its code is displayed as it was stored.
    parts = SimpleNamespace(
        tools=SimpleNamespace(find=lambda name: None), drafts=SimpleNamespace(prepare_code=lambda code: code)
    )
    around = CellTurnContext(
        cast(ServerClient, SimpleNamespace(url=server)), CellScreen(cell), cast(KernelParts, parts)
    )
    CellTurn(around, summary).show(events)
    return cell.outputs
