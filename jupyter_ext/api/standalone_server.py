"""A Jupyter server with this extension and nothing else: no notebooks, kernels, contents or terminals.

It serves ``agent/v1``, the same routes at the paths where clients of other APIs expect them (``routes.MOUNT``), and for
people the panel as a web page at its root, with the login. It uses Jupyter's login, settings and logging.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_server.serverapp import ServerApp
from tornado.netutil import bind_sockets
from traitlets import default
from traitlets.config import Config

from agent_kernel.core.errors import InvalidRequest, ServerStopping
from jupyter_ext.api import routes
from jupyter_ext.api.http import request_log
from jupyter_ext.api.http.http_server import create_http_server
from jupyter_ext.api.unknown_route import UnknownHandler
from jupyter_ext.api.webapp.login import LoginHandler
from jupyter_ext.api.webapp.page import CODE, LINK_SETTING, TOKEN_PLACE_SETTING
from jupyter_ext.auth.serve_identity import LoginLink, ServeIdentityProvider, cookie_secret
from jupyter_ext.services import SETTING, Services

ANSWERED_S = 2.0
"""Seconds to wait for responses in progress after all turns have ended."""
FORCED = 130
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class HeadlessServer(ServerApp):
    """A Jupyter server that loads only this extension.

    ``sockets`` are bound listening sockets. ``token_place`` is where the login page says that the token is; empty if it
    does not say so. ``check`` is called before the server starts; if it raises an error, the server does not start.
    ``announce`` is called once, when the server accepts requests. Its second argument is the query that logs in one
    browser at the web page: empty if people log in there in another way, None if there is no web page. ``waits`` is
    called with the number of running turns when the server is asked to stop; the turns then have ``drain_s`` seconds to
    end by themselves.
    """

    default_services = ()  # type: ignore[assignment]  # fewer than all of them
    _cookie_secret_file = ""
    link: LoginLink | None = None

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        config: Mapping[str, Mapping[str, Any]],
        token: str,
        *,
        token_place: str,
        check: Callable[[Services], None],
        announce: Callable[[Services, str | None], None],
        waits: Callable[[int], None],
        drain_s: float,
    ) -> None:
        super().__init__(config=Config(config))
        self._token = token
        self._token_place = token_place
        self._sockets = list(sockets)
        self._check = check
        self._announce = announce
        self._waits = waits
        self._drain_s = drain_s
        self._asked = 0
        self._hurry = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._sandbox_test: asyncio.Future[Any] | None = None

    def run(self) -> int:
        """Run until a signal and return the exit status. Raises AgentKernelError if the extension cannot start."""
        self.initialize(argv=[], find_extensions=False)
        self.start_ioloop()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # the process ends now in any case, and has saved everything
        if self._failure is not None:
            raise self._failure
        return 0

    @property
    def services(self) -> Services:
        services: Services = self.web_app.settings[SETTING]
        return services

    def migrate_config(self) -> None:
        """Do nothing: the migration writes to the home directory, which may not exist."""

    def init_server_extensions(self) -> None:
        """Load only this extension, whatever the person's own Jupyter configuration enables."""
        self.jpserver_extensions = {"jupyter_ext": True}
        super().init_server_extensions()

    @default("identity_provider_class")
    def _login(self) -> type[ServeIdentityProvider]:
        return ServeIdentityProvider

    def init_configurables(self) -> None:
        """Set the token directly. A token in the configuration would be written to the log."""
        super().init_configurables()
        self.identity_provider.token = self._token
        if isinstance(self.identity_provider, ServeIdentityProvider):
            self.identity_provider.login_handler_class = LoginHandler
            self.link = LoginLink()

    @property
    def has_page(self) -> bool:
        """Whether people can log in, and so use the web page. With --hub they cannot: no cookie is read there."""
        return bool(self.identity_provider.get_handlers())

    def init_webapp(self) -> None:
        self.cookie_secret = cookie_secret(self._token)
        super().init_webapp()

    def load_server_extensions(self) -> None:
        """Remove all routes that neither belong to this extension nor are needed to log in, so that requests to their
        paths get this API's error.
        """
        super().load_server_extensions()
        login = [pattern for pattern, *_ in self.identity_provider.get_handlers()]
        base = self.base_url.rstrip("/")
        others = "|".join([*login, "/static/.*"])
        nothing = (rf"(?!{base}(?:{others})$).*", UnknownHandler, {"route": "unknown"})
        page = routes.page(self.base_url) if self.has_page else []
        web_app: Any = self.web_app
        web_app.settings[LINK_SETTING] = self.link
        web_app.settings[TOKEN_PLACE_SETTING] = self._token_place
        web_app.add_handlers(".*$", [*page, *routes.mount(self.base_url), nothing])

    def init_httpserver(self) -> None:
        """Use the sockets that are already bound."""
        for name in ("tornado.general", "tornado.application"):  # these log refused requests, and uncaught errors
            logging.getLogger(name).addFilter(request_log.hide_queries)
        self._http_server = create_http_server(self)

    def init_signal(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    async def _post_start(self) -> None:
        """Accept requests only after the extension has started."""
        try:
            extensions: Any = self.extension_manager
            self._check(self.services)
            # The first report on the health, or the first call, needs the result. The test runs in other processes.
            self._sandbox_test = asyncio.ensure_future(self.services.runtime.sandbox.report())
            await extensions.start_all_extensions()
        except BaseException as error:  # noqa: BLE001  raised again by the method that runs the loop
            self._failure = error
            self._ending = asyncio.ensure_future(self._stop())
            return
        self.http_server.add_sockets(self._sockets)
        query = f"?{CODE}={self.link.code}" if self.link else ""
        self._announce(self.services, query if self.has_page else None)

    def _on_signal(self, number: int, frame: object) -> None:
        """Handle a signal: the first one stops the server after its running turns have ended, the second one without
        waiting for turns, and the third one ends the process at once."""
        self._asked += 1
        if self._asked > 2:
            os._exit(FORCED)
        self.io_loop.add_callback_from_signal(self._request_stop)

    def _request_stop(self) -> None:
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        else:
            self._hurry.set()

    async def _end(self) -> None:
        """Stop accepting connections and turns, wait for running turns or cancel them, and close the connections
        after their responses were sent."""
        try:
            turns = self.services.turns
            self.http_server.stop()
            turns.stop_accepting(ServerStopping("This server is stopping.", hint="Ask again in a moment."))
            if turns.running and self._drain_s > 0:
                self._waits(len(turns.running))
                ended = asyncio.ensure_future(turns.wait_until_idle())
                hurry = asyncio.ensure_future(self._hurry.wait())
                await asyncio.wait([ended, hurry], timeout=self._drain_s, return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
                hurry.cancel()
            await turns.aclose()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWERED_S):
                    await self.services.requests.wait_until_idle()
        finally:
            await self._stop()

    def write_server_info_file(self) -> None:
        """Do nothing: programs that look for Jupyter servers expect notebooks and kernels."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets that are bound to the address; an empty ``host`` means every address of this machine.
    Raises InvalidRequest if the address cannot be used."""
    where = f"{host or 'every address'}, port {port}"
    try:
        return bind_sockets(port, host or None)
    except OSError as error:
        raise InvalidRequest(
            f"The server cannot listen at {where}: {error.strerror or error}.",
            hint="Choose another --port or --host, or stop the program that listens there.",
        ) from error
