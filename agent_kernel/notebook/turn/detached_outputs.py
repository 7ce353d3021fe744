"""The outputs that a turn would have left below its cell, made from its events where no kernel shows it. The cell's own
rendering, without a person, a kernel or code that runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from agent_kernel.core.events import Event
from agent_kernel.notebook.display.render import TurnSummary
from agent_kernel.notebook.display.screen import CellScreen
from agent_kernel.notebook.turn.cell_turn import CellTurn, CellTurnContext

Output = dict[str, Any]


class _Cell:
    """Outputs of one cell, as a notebook's file has them; what is shown again under an id takes its place."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self._by_id: dict[str, Output] = {}

    def publish(
        self, data: Mapping[str, Any], metadata: Mapping[str, Any], *, transient: Mapping[str, Any], update: bool
    ) -> None:
        id = str(transient.get("display_id", ""))
        shown = {"output_type": "display_data", "data": dict(data), "metadata": dict(metadata)}
        if id and id in self._by_id:
            self._by_id[id].update(shown)
            return
        if not update:
            self.outputs.append(shown)
            self._by_id[id] = shown


@dataclass(frozen=True, slots=True)
class _NoAbilities:
    def find(self, name: str) -> None:
        """Nothing runs here."""


def outputs_of(events: Iterable[Event], summary: TurnSummary, server: str) -> list[Output]:
    """nbformat's outputs of a turn from all its events, media with data. ``server`` is the URL that links to files are
    relative to."""
    cell = _Cell()
    drafts = SimpleNamespace(prepared=lambda code: code)
    around = SimpleNamespace(
        server=SimpleNamespace(url=server),
        screen=CellScreen(cell),
        abilities=_NoAbilities(),
        touched=SimpleNamespace(ran=None),
        keep=SimpleNamespace(drafts=drafts),
        waiting=None,
    )
    CellTurn(cast(CellTurnContext, around), summary).show(events)
    return cell.outputs
