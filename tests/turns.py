"""Shared parts of tests of turns: a scripted agent on a memory store, and a task that is cancelled at its
n-th await.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from typing import Any

from agent_kernel.core.events import Event, EventBody, TextDelta
from agent_kernel.core.messages import Message
from agent_kernel.core.protocols import Tool, ToolContext, ToolOutput, ToolSpec
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent

KEY = SessionKey("local", "s1")
SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


class Recorder:
    """A tool that applies ``answer`` to its code and records what it ran."""

    def __init__(self, answer: Callable[[str], str] = str.upper, *, kind: str = "python.sandbox", shared: bool = True):
        self.spec = ToolSpec("python", "Runs code.", SCHEMA, kind=kind, where="sandbox", shared_state=shared)
        self.ran: list[str] = []
        self._answer = answer

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        await asyncio.sleep(0)
        self.ran.append(arguments["code"])
        return ToolOutput(self._answer(arguments["code"]))


def agent(
    script: Sequence[Mapping[str, Any]],
    tools: Sequence[Tool] = (),
    *,
    store: SessionStore | None = None,
    key: SessionKey = KEY,
    **options: Any,
) -> tuple[Agent, SessionStore, ScriptedEngine]:
    store = store or MemoryStore()
    engine = ScriptedEngine(script)
    gate = options.pop("gate", Gate(Approvals(), answers=frozenset("*")))
    return Agent(store, engine, key, tools, gate=gate, **options), store, engine


async def stored(store: SessionStore, key: SessionKey = KEY) -> list[Message]:
    return [item.message for item in await store.latest(key)]


def text_of(events: Iterable[Event]) -> str:
    """Return the text that the model has written in the events."""
    return "".join(event.body.text for event in events if isinstance(event.body, TextDelta))


def types(bodies: Sequence[EventBody]) -> list[str]:
    return [body.type for body in bodies]


class CancelledAt:
    """``run`` awaits a coroutine and cancels the task it runs in when the coroutine suspends for the n-th time (from
    1).
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], n: int) -> None:
        self._coroutine = coroutine
        self._n = n
        self.suspensions = 0

    async def run(self) -> Any:
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        thrown: BaseException | None = None
        value: Any = None
        while True:
            try:
                yielded = steps.throw(thrown) if thrown else steps.send(value)
            except StopIteration as end:
                return end.value
            self.suspensions += 1
            if self.suspensions == self._n:
                task = asyncio.current_task()
                assert task is not None
                task.cancel("now")
            thrown = None
            try:
                value = yield yielded
            except BaseException as error:  # noqa: BLE001  whatever is thrown in goes on to the coroutine
                thrown = error
