"""Routes that list, create and remove the summaries of a session, and report the token usage of its turns."""

from __future__ import annotations

from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.serialization import fields_to_json
from agent_kernel.sessions.usage_report import CALLS, account
from jupyter_ext.api.http.handler import AgentHandler, guard
from jupyter_ext.api.native.models import current_engine
from jupyter_ext.api.native.request_schemas import EmptyBody
from jupyter_ext.api.schemas import sessions as shapes
from jupyter_ext.api.schemas.operation import operation
from jupyter_ext.turns.turns import session_busy

LOOKED_AT = 20
"""Number of newest turns that are searched for the present size of the context."""


class CompactHandler(AgentHandler):
    @guard("read")
    @operation(shapes.Summaries, errors=(404,))
    async def get(self, session_id: str) -> None:
        """List the summaries of a session.

        Only summaries that the current branch uses are listed, the oldest first.
        """
        session = await self.services.access.session(self.caller, session_id)
        summaries = await self.services.runtime.store.summaries(session.key)
        self.reply({"summaries": [fields_to_json(summary, "key") for summary in summaries]})

    @guard("execute")
    @operation(shapes.OneSummary, body=EmptyBody, errors=(404, 409, 507))
    async def post(self, session_id: str) -> None:
        """Summarize the older turns of a session for the model.

        The engine of the session's next turn writes the summary; it is null if no turns are old enough.
        """
        self.parse(EmptyBody)
        key = (await self.services.access.session(self.caller, session_id)).key
        if running := self.services.turns.find_unfinished(key):
            raise session_busy(running.id)
        engine = self.services.runtime.engines.get(await self.services.access.engine(self.caller, key))
        engine = self.services.turns.meter(engine, key, self.caller.token.id if self.caller.token else "")
        summary = await self.services.runtime.post_turn_tasks.compact(key, engine)
        await self._notify_change(key)
        self.reply({"summary": fields_to_json(summary, "key") if summary else None})

    @guard("write")
    @operation(shapes.OneSummary, errors=(404,))
    async def delete(self, session_id: str) -> None:
        """Remove the newest summary of a session.

        The response has the removed summary; null if there was none.
        """
        key = (await self.services.access.session(self.caller, session_id)).key
        undone = await self.services.runtime.post_turn_tasks.compactor.undo(key)
        await self._notify_change(key)
        self.reply({"summary": fields_to_json(undone, "key") if undone else None})

    async def _notify_change(self, key: SessionKey) -> None:
        self.services.notifications.on_session_changed(key, "compacted")
        await self.services.sidecars.touch(key)


class UsageHandler(AgentHandler):
    @guard("read")
    @operation(shapes.Usage, errors=(404,))
    async def get(self, session_id: str) -> None:
        """Get the token usage of a session."""
        session = await self.services.access.session(self.caller, session_id)
        cost = (await account(self.services.runtime.store, [session])).to_json()
        self.reply({**cost, "context": await self._context(session.key)})

    async def _context(self, key: SessionKey) -> dict[str, int]:
        """Return the tokens of the newest turn's largest request with its answer, and the size of the model's
        context (``window``, 0 if unknown). 0 tokens if none of the newest turns reached the model."""
        window = int((await current_engine(self.services, self.caller, key))["context_length"])
        newest = reversed(await self.services.runtime.store.turns(key, LOOKED_AT))
        return {"tokens": next((used for turn in newest if (used := _context_tokens(turn))), 0), "window": window}


def _context_tokens(turn: Turn) -> int:
    """Return the number of context tokens. For turns that an older release stored without this number, use the turn's
    usage if it had one round."""
    if "context" in turn.record or CALLS in turn.record:
        return int(turn.record.get("context", 0))
    return int(turn.usage.get("prompt_tokens", 0) + turn.usage.get("completion_tokens", 0))
