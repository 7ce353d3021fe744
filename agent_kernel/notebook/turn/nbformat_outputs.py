"""Creates the nbformat outputs of a turn from its events if no kernel displays it (see ``CellTurn.show``).

Uses the rendering of an agent cell, but needs no user and no kernel, and runs no code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from agent_kernel.core.events import Event
from agent_kernel.notebook.display.render import TurnSummary
from agent_kernel.notebook.display.screen import CellScreen
from agent_kernel.notebook.draft.apply_draft import DraftApplier
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.variable_fingerprints import VariableTracker
from agent_kernel.notebook.server_client import ServerClient
from agent_kernel.notebook.turn.cell_turn import CellTurn, CellTurnContext
from agent_kernel.notebook.turn.client_tool_registry import ClientTools
from agent_kernel.notebook.turn.session_permissions import Consent

Output = dict[str, Any]


class _Cell:
    """Collects the outputs of one cell. Publishing a known display id again replaces its output."""

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
        """Return None: displaying a finished turn runs no calls."""


def render_outputs(events: Iterable[Event], summary: TurnSummary, server: str) -> list[Output]:
    """Return the nbformat outputs of a turn from all its events, including media. Links to files are relative to the
    URL ``server``."""
    cell = _Cell()
    drafts = SimpleNamespace(prepared=lambda code: code)
    around = CellTurnContext(
        server=cast(ServerClient, SimpleNamespace(url=server)),
        screen=CellScreen(cell),
        person=cast(Person, None),  # a finished turn asks nobody
        consent=cast(Consent, None),
        abilities=cast(ClientTools, _NoAbilities()),
        touched=cast(VariableTracker, SimpleNamespace(ran=None)),
        keep=cast(DraftApplier, SimpleNamespace(drafts=drafts)),
    )
    CellTurn(around, summary).show(events)
    return cell.outputs
