"""The request that opened a connection, looked at again later: its cookies and tokens may not count any more."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_server.base.handlers import JupyterHandler
from tornado.httputil import HTTPConnection, HTTPServerRequest


class _NoConnection(HTTPConnection):
    """Nothing is answered."""

    context = None

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """It is never open."""


def seen_again(handler: JupyterHandler) -> JupyterHandler:
    """A handler of the same request, as if it came now, for whoever asks who the user is. It keeps what it is told to
    answer, such as cookies, to itself."""
    first = handler.request
    request = HTTPServerRequest(
        first.method, first.uri, headers=first.headers.copy(), host=first.host, connection=_NoConnection()
    )
    request.remote_ip, request.protocol = first.remote_ip, first.protocol
    return JupyterHandler(handler.application, request)
