"""The route ``sessions/{id}/meanwhile``: what happened in a session while its user had no page open."""

from __future__ import annotations

from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.schemas.operation import KERNEL, Count, Parameter, operation
from jupyter_ext.api.schemas.sessions import Meanwhile


class MeanwhileHandler(AgentHandler):
    @guard("read")
    @operation(
        Meanwhile,
        query=(Parameter("since", "Only what happened after this time (seconds since the epoch).", Count), KERNEL),
        errors=(404,),
    )
    async def get(self, session_id: str) -> None:
        """Summarize what happened in a session while no page was open.

        The query parameter ``kernel`` is the id of the notebook's current kernel. If it is given, the response says
        whether variables were lost.
        """
        session = await self.services.access.session(self.caller, session_id)
        kernel = self.services.access.kernel(self.caller, self.get_argument("kernel", ""))
        self.reply(await self.services.away_summary.since(session.key, float(self.number("since") or 0), kernel))
