"""What the cell of a turn would show of it: for a page that opens a notebook whose turn ended with nobody there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_kernel.errors import Conflict
from agent_kernel.events import Event
from agent_kernel.sessions.model import Turn
from agent_kernel.sessions.private import is_private
from jupyter_ext.archive import replay
from jupyter_ext.handlers.base import AgentHandler, guarded
from jupyter_ext.openapi.operation import SESSION, operation
from jupyter_ext.openapi.turns import Outputs


class TurnOutputsHandler(AgentHandler):
    @guarded("read")
    @operation("What the cell of a turn would show.", Outputs, query=(SESSION,), errors=(404, 409))
    async def get(self, turn_id: str) -> None:
        """Outputs as in a notebook's file. Conflict while the turn runs, here or at another server."""
        turn = await self.app.access.stored_turn(self.caller, turn_id, self.get_argument("session", None))
        if turn.state == "open":
            raise Conflict("This turn is still running.", hint="Follow it, or ask again when it has ended.")
        store = self.app.runtime.store
        events = [event async for event in replay(store, turn, 0, media=True, whole=True)]
        outputs = await asyncio.to_thread(_outputs, turn, events, self.app.url())
        self.reply({"turn": turn.id, "session": turn.key.id, "outputs": outputs})


def _outputs(turn: Turn, events: Sequence[Event], url: str) -> list[dict[str, Any]]:
    from agent_kernel.notebook.left_outputs import outputs_of
    from agent_kernel.notebook.render import Summary

    summary = Summary(turn.id, turn.key.id, cell=turn.cell, private=is_private(turn.key.id))
    return outputs_of(events, summary, url)
