"""Finds agent cells whose outputs a person has cleared, and removes the tool outputs of these cells from the session.

Jupyter does not notify a server when outputs are cleared, so this is detected when the notebook is saved. A cell counts
as cleared if it has neither outputs nor an execution count, the session has turns of the cell that ran tools, and none
of these turns still runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.core.wire.agent_cells import is_agent_cell
from jupyter_ext.notebooks.sidecar_writer import Sidecars

REPLACEMENT = "[The person has cleared this output.]"
"""The text that the model reads in place of a cleared tool output."""
MAX_CELLS = 5000
MAX_NOTEBOOKS = 200


class ClearedOutputs:
    def __init__(self, store: SessionStore, sidecars: Sidecars) -> None:
        self._store = store
        self._sidecars = sidecars
        self._bare: dict[tuple[str, str], tuple[str, ...]] = {}
        """Maps (namespace, path of a notebook) to the ids of the agent cells that had no outputs when the notebook was
        last saved."""

    def on_saving(self, namespace: str, path: str, content: Any) -> None:
        """Record the cells without outputs of a notebook that is about to be saved."""
        self._bare.pop((namespace, path), None)
        if bare := bare_cells(content):
            self._bare[namespace, path] = bare
        while len(self._bare) > MAX_NOTEBOOKS:
            self._bare.pop(next(iter(self._bare)))

    async def find_cells(self, key: SessionKey, path: str) -> list[str]:
        """Return the cleared cells of a notebook whose tool outputs the session still holds."""
        bare = self._bare.get((key.namespace, path.strip("/")), ())
        if not bare:
            return []
        turns, items = await self._store.everything(key)
        ran = {item.turn for item in items if item.message.role == "tool" and item.message.text != REPLACEMENT}
        running = {turn.cell for turn in turns if turn.state == "open"}
        holding = {turn.cell for turn in turns if turn.id in ran}
        return [cell for cell in bare if cell in holding - running]

    async def clear(self, key: SessionKey, cells: Collection[str]) -> int:
        """Remove the tool outputs of the cells from the session, on all branches, and from its sidecar and the
        sidecar's backup. Return the number of outputs removed. The model's text about them stays. Raises
        SessionBusy."""
        turns = [turn.id for cell in dict.fromkeys(cells) for turn in await self._store.of_cell(key, cell)]
        changed = await self._store.clear_outputs(key, turns, REPLACEMENT)
        if changed:
            await self._sidecars.touch(key, forget=True)
        return changed


def bare_cells(content: Any) -> tuple[str, ...]:
    """Return the ids of the agent cells that have neither outputs nor an execution count. ``content`` is a notebook
    as a client sent it and may be malformed."""
    cells = content.get("cells") if isinstance(content, Mapping) else None
    if not isinstance(cells, list):
        return ()
    return tuple(str(cell["id"]) for cell in cells[:MAX_CELLS] if isinstance(cell, Mapping) and _is_bare(cell))


def _is_bare(cell: Mapping[str, Any]) -> bool:
    source = cell.get("source")
    text = "".join(map(str, source[:1])) if isinstance(source, list) else source
    of_agent = cell.get("cell_type") == "code" and isinstance(text, str) and is_agent_cell(text, cell.get("metadata"))
    return of_agent and bool(cell.get("id")) and cell.get("outputs") == [] and cell.get("execution_count") is None
