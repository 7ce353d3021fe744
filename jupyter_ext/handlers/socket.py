"""``agent/v1/socket``: one connection per page. Events of turns with the numbers they have everywhere, and what happens
in the sessions and kernels that the page watches. For users; a notebook's code has the other routes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from agent_kernel.errors import AgentKernelError, QuotaExceeded, TurnNotFound
from jupyter_ext.archive import replay
from jupyter_ext.callers import Caller, namespace_of
from jupyter_ext.handlers.base import words
from jupyter_ext.handlers.bodies import Id, Name
from jupyter_ext.news import Target, opened

if TYPE_CHECKING:
    from jupyter_ext.app import AgentKernel

MAX_MESSAGE = 64 << 10
MAX_FOLLOWED = 200
"""Turns and targets of one page."""


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Follow(Asked):
    do: Literal["follow"]
    turn: Id
    session: Annotated[str, Field(max_length=512)] = ""
    after: Annotated[int, Field(ge=0)] = 0


class Unfollow(Asked):
    do: Literal["unfollow"]
    turn: Id


class Watch(Asked):
    """Of a session or a kernel."""

    do: Literal["watch", "unwatch"]
    session: Annotated[str, Field(max_length=512)] = ""
    kernel: Annotated[str, Field(max_length=512)] = ""


class Serve(Asked):
    do: Literal["serve"]
    kernel: Id
    tools: Annotated[list[Name], Field(max_length=100)]


class Unserve(Asked):
    do: Literal["unserve"]
    kernel: Id


class Ping(Asked):
    do: Literal["ping"]


ASKED: TypeAdapter[Any] = TypeAdapter(
    Annotated[Follow | Unfollow | Watch | Serve | Unserve | Ping, Field(discriminator="do")]
)


class SocketHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    auth_resource = "agent"
    caller: Caller

    @property
    def app(self) -> AgentKernel:
        app: AgentKernel = self.settings["agent_kernel"]
        return app

    def get_compression_options(self) -> dict[str, Any] | None:
        """None: events are small and have to be on their way at once."""
        return None

    @property
    def max_message_size(self) -> int:
        return MAX_MESSAGE

    @ws_authenticated
    async def get(self, *args: str) -> None:
        user = self.current_user
        if not await ensure_async(self.authorizer.is_authorized(self, user, "read", self.auth_resource)):
            raise HTTPError(403)
        self.caller = Caller(namespace_of(self.app.runtime.settings.namespace, user), user=user)
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[tuple[str, str], Callable[[], None]] = {}
        await super().get(*args)

    async def on_message(self, message: str | bytes) -> None:
        try:
            asked = ASKED.validate_json(message)
        except ValidationError as error:
            self._refuse("invalid_request", words(error))
            return
        try:
            await self._obey(asked)
        except AgentKernelError as error:
            self._refuse(error.code, str(error))

    def on_close(self) -> None:
        for task in self._followed.values():
            task.cancel()
        for end in self._ends.values():
            end()
        self._followed, self._ends = {}, {}

    async def _obey(self, asked: Asked) -> None:
        match asked:
            case Follow():
                self._unfollow(asked.turn)
                self._room()
                task = asyncio.create_task(self._follow(asked), name=f"page follows {asked.turn}")
                self._followed[asked.turn] = task
            case Unfollow():
                self._unfollow(asked.turn)
            case Watch(do="watch"):
                await self._watch(asked)
            case Watch():
                self._end("session" if asked.session else "kernel", asked.session or asked.kernel)
            case Serve():
                self.app.access.kernel(self.caller, asked.kernel)
                self._end("serve", asked.kernel)
                self._room()
                serving = self.app.serving.add(self.caller.namespace, asked.kernel, asked.tools)
                self._ends["serve", asked.kernel] = serving
            case Unserve():
                self._end("serve", asked.kernel)
            case _:
                self._say({"type": "pong"})

    async def _watch(self, asked: Watch) -> None:
        kind, id = ("session", asked.session) if asked.session else ("kernel", asked.kernel)
        if kind == "kernel":
            self.app.access.kernel(self.caller, id)
        self._end(kind, id)
        self._room()
        self._ends[kind, id] = self.app.news.watch(Target(self.caller.namespace, kind, id), self._say)
        for turn in self.app.turns.running:
            place = turn.order.key.id if kind == "session" else turn.order.kernel
            if place == id and turn.order.key.namespace == self.caller.namespace:
                self._say(opened(turn))

    async def _follow(self, asked: Follow) -> None:
        app = self.app
        try:
            live = await app.access.turn(self.caller, asked.turn)
            events = live.log.follow(asked.after)
        except TurnNotFound:
            try:
                stored = await app.access.stored_turn(self.caller, asked.turn, asked.session or None)
            except TurnNotFound:
                self._say({"type": "unknown.turn", "turn": asked.turn})
                return
            events = replay(app.runtime.store, stored, asked.after, media=False)
        with contextlib.suppress(WebSocketClosedError):
            async with contextlib.aclosing(events):  # type: ignore[type-var]  # both are async generators
                async for event in events:
                    await self.write_message(json.dumps(event.to_json(), ensure_ascii=False))

    def _say(self, said: Mapping[str, Any]) -> None:
        with contextlib.suppress(WebSocketClosedError):
            self.write_message(json.dumps(said, ensure_ascii=False))

    def _refuse(self, code: str, message: str) -> None:
        self._say({"type": "error", "error": {"code": code, "message": message}})

    def _unfollow(self, turn: str) -> None:
        if task := self._followed.pop(turn, None):
            task.cancel()

    def _end(self, kind: str, id: str) -> None:
        if end := self._ends.pop((kind, id), None):
            end()

    def _room(self) -> None:
        """Raises QuotaExceeded."""
        self._followed = {turn: task for turn, task in self._followed.items() if not task.done()}
        if len(self._followed) + len(self._ends) >= MAX_FOLLOWED:
            raise QuotaExceeded(f"One page follows at most {MAX_FOLLOWED} turns and sessions at once.")
