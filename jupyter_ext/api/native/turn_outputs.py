"""The route that returns the cell outputs of a turn, for a page that opens a notebook after the turn ended without a
reader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_kernel.core.errors import Conflict
from agent_kernel.core.events import Event
from agent_kernel.core.session import Turn
from agent_kernel.sessions.store.private_store import is_private
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.schemas.operation import SESSION, operation
from jupyter_ext.api.schemas.turns import Outputs
from jupyter_ext.turns.stored_events import replay


class TurnOutputsHandler(AgentHandler):
    @guard("read")
    @operation(Outputs, query=(SESSION,), errors=(404, 409))
    async def get(self, turn_id: str) -> None:
        """Get the cell outputs of a turn.

        The outputs have the format of notebook files. The status is 409 while the turn runs on any server.
        """
        turn = await self.services.access.stored_turn(self.caller, turn_id, self.get_argument("session", None))
        if turn.state == "open":
            raise Conflict("This turn is still running.", hint="Follow its events, or ask again when it has ended.")
        store = self.services.runtime.store
        events = [event async for event in replay(store, turn, 0, media=True, whole=True)]
        outputs = await asyncio.to_thread(_outputs, turn, events, self.services.url())
        self.reply({"turn": turn.id, "session": turn.key.id, "outputs": outputs})


def _outputs(turn: Turn, events: Sequence[Event], url: str) -> list[dict[str, Any]]:
    # These modules are imported here, because they load IPython, which takes a tenth of a second and which few servers
    # need.
    from agent_kernel.notebook.display.render import TurnSummary
    from agent_kernel.notebook.turn.nbformat_outputs import render_outputs

    summary = TurnSummary(turn.id, turn.key.id, cell=turn.cell, private=is_private(turn.key.id))
    return render_outputs(events, summary, url)
