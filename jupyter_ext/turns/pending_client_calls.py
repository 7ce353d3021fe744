"""Remembers the tool calls that a client has to run, and the sessions that wait for the results.

A client that names no session sends each result with the id of its call. The id identifies the session, even before
there is any answer text by which the conversation could be found.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from agent_kernel.core.messages import Message
from agent_kernel.core.session import SessionKey
from agent_kernel.tools.base.caller_tools import AWAITED

MOST = 2_000


class PendingClientCalls:
    """The newest MOST calls that wait for a client's result, in memory. ``scope`` is the value that
    ``sessions.conversation_match.scope`` computes for the conversation."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, str, str], SessionKey] = OrderedDict()

    def add(self, key: SessionKey, scope: str, messages: Iterable[Message]) -> None:
        """Add the calls of these messages that still wait for a result."""
        for said in messages:
            if said.role == "tool" and said.call_id and said.text == AWAITED:
                name = (key.namespace, scope, said.call_id)
                self._sessions[name] = key
                self._sessions.move_to_end(name)
        while len(self._sessions) > MOST:
            self._sessions.popitem(last=False)

    def find(self, namespace: str, scope: str, messages: Sequence[Message]) -> SessionKey | None:
        """Return the session whose calls are answered by the results at the end of these messages."""
        for said in reversed(messages):
            if said.role == "assistant":
                return None
            if said.role == "tool" and (key := self._sessions.get((namespace, scope, said.call_id or ""))):
                return key
        return None
