"""Creates the HTTP server of a Jupyter server that binds its sockets itself."""

from __future__ import annotations

import errno
import logging
import math
import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from jupyter_server.serverapp import ServerApp
from tornado.httpserver import HTTPServer

LOG_EVERY_S = 60.0
log = logging.getLogger(__name__)


class Listener:
    """A listening socket. While the process has no file descriptor left, it closes new connections at once. Otherwise
    tornado would try again without a pause, and log a traceback each time.

    Accepting a connection needs a descriptor, also to close it, so one is kept in reserve.
    """

    def __init__(self, listening: socket.socket) -> None:
        self._socket = listening
        self._reserve = os.open(os.devnull, os.O_RDONLY)
        self._logged = -math.inf

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._release()
        self._socket.close()

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            return self._socket.accept()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        self._release()
        with suppress(OSError):
            self._socket.accept()[0].close()
        with suppress(OSError):  # another thread may have taken the descriptor
            self._reserve = os.open(os.devnull, os.O_RDONLY)
        if time.monotonic() - self._logged > LOG_EVERY_S:
            self._logged = time.monotonic()
            log.warning("new connections are refused: this process has no file descriptor left (ulimit -n)")
        raise BlockingIOError  # tornado then stops accepting until the next event of the socket

    def _release(self) -> None:
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1


class ListeningServer(HTTPServer):
    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        # tornado uses only three methods of a listening socket, and Listener has these.
        super().add_sockets(cast("list[socket.socket]", [Listener(listening) for listening in sockets]))


def create_http_server(app: ServerApp) -> HTTPServer:
    """Return the HTTP server that ``app`` configures. It listens nowhere yet."""
    return ListeningServer(
        app.web_app,
        ssl_options=app.ssl_options,
        xheaders=app.trust_xheaders,
        max_body_size=app.max_body_size,
        max_buffer_size=app.max_buffer_size,
    )
