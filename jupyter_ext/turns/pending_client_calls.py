"""Calls that clients run, and the sessions that wait for their results: a client that names no session brings these
under the ids it was given, also before there is any answer by which the conversation could be found."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from agent_kernel.core.messages import Message
from agent_kernel.core.session import SessionKey
from agent_kernel.tools.base.caller_tools import AWAITED

MOST = 2_000


class HandedOver:
    """In memory, the newest MOST calls; ``scope`` is as in ``sessions.matching``."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, str, str], SessionKey] = OrderedDict()

    def keep(self, key: SessionKey, scope: str, messages: Iterable[Message]) -> None:
        """The calls of these messages whose results are awaited."""
        for said in messages:
            if said.role == "tool" and said.call_id and said.text == AWAITED:
                name = (key.namespace, scope, said.call_id)
                self._sessions[name] = key
                self._sessions.move_to_end(name)
        while len(self._sessions) > MOST:
            self._sessions.popitem(last=False)

    def find(self, namespace: str, scope: str, messages: Sequence[Message]) -> SessionKey | None:
        """The session whose calls the last results of these messages answer."""
        for said in reversed(messages):
            if said.role == "assistant":
                return None
            if said.role == "tool" and (key := self._sessions.get((namespace, scope, said.call_id or ""))):
                return key
        return None
