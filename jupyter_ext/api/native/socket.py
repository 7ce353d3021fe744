"""The route ``agent/v1/socket``: one WebSocket connection for each page.

The connection carries the events of turns, with the same numbers as the other routes, and notifications about the
sessions and kernels that the page watches. Only users may open it; the code of a notebook uses the other routes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated, Any, Literal

from jupyter_core.utils import ensure_async
from jupyter_server.auth.identity import User
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WS_PING_INTERVAL, WebSocketMixin
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from agent_kernel.core.errors import AgentKernelError, Forbidden, InvalidRequest, TurnNotFound
from jupyter_ext.api.http.handler import Action, AgentHandler, guard
from jupyter_ext.api.http.json_body import validation_message
from jupyter_ext.api.http.token_check import token_check
from jupyter_ext.api.native.request_schemas import Id, Name
from jupyter_ext.api.schemas.operation import operation
from jupyter_ext.auth.callers import ScopedUser, namespace_of
from jupyter_ext.auth.page_check import repeat_handler
from jupyter_ext.push.notifications import WatchTarget
from jupyter_ext.push.page_connection import PageConnection
from jupyter_ext.push.page_outbox import Outbox, PageGone
from jupyter_ext.push.watch_snapshot import WatchSnapshot, read_watch_state
from jupyter_ext.turns.stored_events import replay

MAX_MESSAGE = 64 << 10
"""Maximum bytes of one message that a page sends."""
LOOK_AGAIN_S = 60.0
"""Seconds between two checks whether the user of an open connection may still read."""
LOOK_AGAIN_SHARED_S = 2.0
"""Seconds between two checks, as in LOOK_AGAIN_S, on a server that several users share. The checks are more frequent
there because they cost little: the identity provider remembers its answers for a time."""
NOT_ALLOWED = 4003
"""The close code for a page whose user may not read any more."""
TRY_AGAIN = 1013
VERSIONS = {"7", "8", "13"}


class PageMessage(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Follow(PageMessage):
    do: Literal["follow"]
    turn: Id
    session: Annotated[str, Field(max_length=512)] = ""
    after: Annotated[int, Field(ge=0)] = 0
    number: Annotated[int, Field(ge=0)] = 0


class Unfollow(PageMessage):
    do: Literal["unfollow"]
    turn: Id


class Watch(PageMessage):
    """A message of the page: watch, or no longer watch, a session or a kernel."""

    do: Literal["watch", "unwatch"]
    session: Annotated[str, Field(max_length=512)] = ""
    kernel: Annotated[str, Field(max_length=512)] = ""


class Serve(PageMessage):
    do: Literal["serve"]
    kernel: Id
    tools: Annotated[list[Name], Field(max_length=100)]


class Unserve(PageMessage):
    do: Literal["unserve"]
    kernel: Id


class Ping(PageMessage):
    do: Literal["ping"]


PAGE_MESSAGES: TypeAdapter[Any] = TypeAdapter(
    Annotated[Follow | Unfollow | Watch | Serve | Unserve | Ping, Field(discriminator="do")]
)


class SocketHandler(WebSocketMixin, WebSocketHandler, AgentHandler):  # type: ignore[misc]  # neither stream is used
    """The server's end of the WebSocket connection of one page.

    A message is answered before the next one is read, so a page that does not read the answers delays only itself. An
    error is sent to the page and leaves the connection open.
    """

    page: PageConnection
    _looking: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        return MAX_MESSAGE

    @property
    def ping_interval(self) -> float:
        """Seconds between two pings, from Jupyter's setting in milliseconds; 0 for none. tornado sends the pings and
        closes the connection of a page that does not answer one in time.

        Jupyter's own pings are not used: they need a timeout that is longer than the interval, which tornado refuses
        with a warning; with the same value for both they close each connection before the first ping.
        """
        return float(self.settings.get("ws_ping_interval", WS_PING_INTERVAL)) / 1000

    @property
    def ping_timeout(self) -> None:
        """None: tornado's default."""
        return None

    def get_compression_options(self) -> dict[str, Any] | None:
        """Return None: events are small and must be sent without delay."""
        return None

    _stream_request_body = False
    """A handshake has no body, and the bytes that follow it are not HTTP."""

    async def prepare(self) -> None:  # type: ignore[override]  # as APIHandler itself does
        """Authenticate without reading a body: a handshake has none."""
        self.begin()
        await self.identify(lambda: JupyterHandler.prepare(self, _redirect_to_login=False))

    @guard("read", kernels=False)
    @operation(status=101)
    async def get(self, *args: str) -> None:
        """Open a WebSocket: events of turns, and notifications about watched sessions and kernels."""
        self._check_handshake()
        await WebSocketHandler.get(self, *args)

    def open(self, *args: str) -> None:
        WebSocketHandler.open(self, *args)  # WebSocketMixin.open would start Jupyter's pings
        self._note(self.get_status())
        self.page = PageConnection(Outbox(self._write, self.close))
        self.services.pages.add(self.page, self.close)
        self._looking = asyncio.create_task(self._look_again(), name="may this page still read")
        self._looking.add_done_callback(self._on_check_done)

    async def on_message(self, message: str | bytes) -> None:
        about: dict[str, str] = {}
        try:
            request = _parse_message(message)
            about = {name: value for name, value in request.model_dump().items() if isinstance(value, str) and value}
            await self._obey(request, about)
        except PageGone:
            return
        except AgentKernelError as error:
            await self._refuse(error, about)

    def on_close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self.services.pages.remove(self.page)

    def _check_handshake(self) -> None:
        """Refuse an invalid handshake with an error of this API instead of tornado's. Raises InvalidRequest."""
        headers = self.request.headers
        connection = {word.strip().lower() for word in headers.get("Connection", "").split(",")}
        if headers.get("Upgrade", "").lower() != "websocket" or "upgrade" not in connection:
            raise InvalidRequest(
                "This URL accepts only WebSocket connections.", hint="A proxy has to forward the Upgrade header."
            )
        if headers.get("Sec-WebSocket-Version") not in VERSIONS or "Sec-WebSocket-Key" not in headers:
            raise InvalidRequest("This is not a WebSocket handshake of version 13.")

    async def _obey(self, message: PageMessage, about: dict[str, str]) -> None:
        match message:
            case Follow():
                await self._follow(message, about)
            case Unfollow():
                self.page.unfollow(message.turn)
            case Watch():
                await self._watch(message)
            case Serve():
                await self._serve(message)
            case Unserve():
                self.page.drop(("serve", message.kernel))
            case _:
                await self.page.outbox.send({"type": "pong"})

    async def _follow(self, message: Follow, about: dict[str, str]) -> None:
        services = self.services
        try:
            live = await services.access.turn(self.caller, message.turn)
            events = live.log.follow(message.after)
        except TurnNotFound:
            try:
                stored = await services.access.stored_turn(self.caller, message.turn, message.session or None)
            except TurnNotFound:
                self.page.unfollow(message.turn)
                await self.page.outbox.send({"type": "unknown.turn", "turn": message.turn})
                return
            events = replay(services.runtime.store, stored, message.after, whole=True)
        self.page.follow(message.turn, events, about, message.number)

    async def _watch(self, message: Watch) -> None:
        if bool(message.session) == bool(message.kernel):
            raise InvalidRequest("The message must name either a session or a kernel to watch.")
        kind, id = ("session", message.session) if message.session else ("kernel", message.kernel)
        if message.do == "unwatch":
            self.page.drop((kind, id))
            return
        if kind == "kernel":
            self.services.access.kernel(self.caller, id)
        target = WatchTarget(self.caller.namespace, kind, id)
        services, page, standing = self.services, self.page, WatchSnapshot(self.page.outbox.send_now)
        with contextlib.ExitStack() as undone:
            page.hold((kind, id), lambda: services.notifications.watch(target, page, standing.notify))
            undone.callback(page.drop, (kind, id))
            state = await read_watch_state(target, services.runtime, services.turns, services.notebooks)
            for state_message in state:
                await page.outbox.send(state_message)
            standing.release(state)
            undone.pop_all()

    async def _serve(self, message: Serve) -> None:
        self.services.access.kernel(self.caller, message.kernel)
        if not await self._is_still_allowed(("read",)):
            self._send_away()
            return
        if not await self._is_still_allowed(("read", "execute")):
            raise Forbidden("You may not run agents on this server, so this page cannot run their tool calls.")
        namespace, serving = self.caller.namespace, self.services.page_tools
        self.page.hold(("serve", message.kernel), lambda: serving.add(namespace, message.kernel, message.tools))

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AGAIN_SHARED_S if isinstance(self.caller.user, ScopedUser) else LOOK_AGAIN_S)
            if not await self._is_still_allowed(("read",)):
                self._send_away()
                return

    def _on_check_done(self, looking: asyncio.Task[None]) -> None:
        """Disconnect the page if the task that checks its access has failed. The page then reconnects, and its access
        is checked again."""
        if not looking.cancelled() and (error := looking.exception()) is not None:
            self.log.error("could not check whether a page may still read events", exc_info=error)
            self.close(TRY_AGAIN, "The server could not check whether you may still read.")

    def _send_away(self) -> None:
        self.close(NOT_ALLOWED, "You may not read agents on this server any more.")

    async def _is_still_allowed(self, actions: tuple[Action, ...]) -> bool:
        """Return whether the user of the connection may still use it. With a token: whether the token is valid.
        Otherwise: whether the server would now accept the same handshake for the same user with all of ``actions``.
        """
        if (is_token_valid := token_check(self)) is not None:
            return await is_token_valid()
        looked = repeat_handler(self)
        user = await ensure_async(self.identity_provider.get_user(looked))
        configured = self.services.runtime.settings.namespace
        if not isinstance(user, User) or namespace_of(configured, user) != self.caller.namespace:
            return False
        looked.current_user = user
        for action in actions:
            if not await ensure_async(self.authorizer.is_authorized(looked, user, action, self.auth_resource)):
                return False
        return True

    async def _write(self, text: str) -> None:
        try:
            await self.write_message(text)
        except WebSocketClosedError:
            raise PageGone from None

    async def _refuse(self, error: AgentKernelError, about: dict[str, str]) -> None:
        try:
            await self.page.outbox.send({"type": "error", "error": error.to_json(), "about": about})
        except PageGone:
            return


def _parse_message(message: str | bytes) -> PageMessage:
    """Parse a message of the page. Raises InvalidRequest."""
    if isinstance(message, bytes):
        raise InvalidRequest("Messages are JSON text, not bytes.")
    try:
        request: PageMessage = PAGE_MESSAGES.validate_json(message)
    except ValidationError as error:
        raise InvalidRequest(validation_message(error)) from error
    return request
