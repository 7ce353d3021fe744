"""Remembers the conversations of Anthropic's message threads. A client that continues a thread sends the id of the last
answer and only its new messages.

Threads are stored in memory. If a thread no longer exists, Anthropic's clients send the whole conversation again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from agent_kernel.core.session import SessionKey
from jupyter_ext.api.anthropic.request import TextBlock, ToolBody
from jupyter_ext.services import Services

IDLE_S = 30 * 60.0
MOST = 1_000
MOST_CHARS = 64 << 20
"""Maximum characters of the instructions and tools of all threads together."""


@dataclass(frozen=True, slots=True)
class MessageThread:
    """A conversation that a client can continue with the id of an answer.

    ``turn`` is the id of the turn that gave the answer. ``system`` and ``tools`` are those of the thread's first
    request, because clients do not send them again. ``chars`` is the length of both in characters.
    """

    key: SessionKey
    turn: str
    system: str | list[TextBlock] | None = None
    tools: list[ToolBody] | None = None
    chars: int = 0
    used: float = field(default_factory=time.monotonic)


class MessageThreads:
    """Maps the ids of answers to threads, for each namespace. The oldest threads are removed first."""

    def __init__(self, *, most_chars: int = MOST_CHARS, clock: Callable[[], float] = time.monotonic) -> None:
        self._threads: OrderedDict[tuple[str, str], MessageThread] = OrderedDict()
        self._chars = 0
        self._most_chars = most_chars
        self._clock = clock

    def keep(self, message: str, thread: MessageThread) -> None:
        name = (thread.key.namespace, message)
        if before := self._threads.pop(name, None):  # the client repeated the request with its idempotency key
            self._chars -= before.chars
        self._threads[name] = thread
        self._chars += thread.chars
        oldest = self._clock() - IDLE_S
        while len(self._threads) > MOST or self._chars > self._most_chars or self._oldest.used < oldest:
            _, gone = self._threads.popitem(last=False)
            self._chars -= gone.chars
            if not self._threads:
                return

    def get(self, namespace: str, message: str) -> MessageThread | None:
        thread = self._threads.get((namespace, message))
        return thread if thread is not None and thread.used >= self._clock() - IDLE_S else None

    @property
    def _oldest(self) -> MessageThread:
        return next(iter(self._threads.values()))


def threads_of(services: Services) -> MessageThreads:
    """Return the message threads of a server."""
    return services.on_demand.get(MessageThreads, MessageThreads)
