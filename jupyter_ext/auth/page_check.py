"""Checks the page from which a request comes: whether pages of its origin may send requests here, and whether the
server would still accept the cookies and tokens of a connection that the page opened earlier."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from jupyter_server.base.handlers import JupyterHandler
from tornado.httputil import HTTPConnection, HTTPServerRequest
from tornado.web import HTTPError

from agent_kernel.core.errors import Forbidden
from jupyter_ext.auth import request_token

PROOF = "Send it as X-XSRFToken, or send a token: Authorization: Bearer TOKEN."


class _NullConnection(HTTPConnection):
    """A stand-in for the connection of a copied request. Nothing is sent through it."""

    context = None

    def set_close_callback(self, callback: Callable[[], None] | None) -> None:
        """Do nothing: this connection is never open."""


def page_may_call(handler: JupyterHandler) -> bool:
    """Return False for a page of another origin that neither ``allow_origin`` nor ``allow_origin_pat`` of the server
    allows.

    Jupyter itself accepts every page that has a token; here a leaked token is of no use to other sites. Programs send
    no origin and are not affected.
    """
    origin, host = handler.get_origin(), handler.request.headers.get("Host", "").lower()
    if origin is None or handler.allow_origin == "*" or (host and urlsplit(origin.lower()).netloc == host):
        return True
    if handler.allow_origin:
        return origin == handler.allow_origin
    return bool(handler.allow_origin_pat and re.fullmatch(handler.allow_origin_pat, origin))


def check_page(handler: JupyterHandler, refusal: Exception | None) -> None:
    """Refuse a request from a page that may not call, or from a logged-in page without its XSRF token. ``refusal`` is
    Jupyter's error for not accepting a known user, or None. Raises Forbidden, Unauthenticated, and any other
    ``refusal``."""
    if not page_may_call(handler):
        raise Forbidden(
            "Pages of other origins may not call this server.",
            hint="An operator can allow an origin with c.ServerApp.allow_origin.",
        )
    if isinstance(refusal, HTTPError) and refusal.status_code == 403:
        if request_token.has_token_header(handler.request.headers):
            raise request_token.unauthenticated_error(handler.request.headers)
        raise Forbidden("A request of a logged-in page needs the server's XSRF token.", hint=PROOF)
    if refusal is not None:
        raise refusal


def repeat_handler(handler: JupyterHandler) -> JupyterHandler:
    """Return a handler for a copy of the request, with which the user can be authenticated again as if the request
    arrived now. The response of that handler, including its cookies, is discarded."""
    first = handler.request
    request = HTTPServerRequest(
        first.method, first.uri, headers=first.headers.copy(), host=first.host, connection=_NullConnection()
    )
    request_token.drop_from_address(request)
    request.remote_ip, request.protocol = first.remote_ip, first.protocol
    return JupyterHandler(handler.application, request)
