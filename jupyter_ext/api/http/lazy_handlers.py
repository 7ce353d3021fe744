"""Imports each handler at its first request, so that the start of a server does not wait for the import."""

from __future__ import annotations

import functools
import pkgutil
from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.web import Application, RequestHandler


@functools.cache
def load_class(name: str) -> type[Any]:
    """Return the class that ``package.module:Class`` names."""
    loaded: type[Any] = pkgutil.resolve_name(name)
    return loaded


@functools.cache
def defer_handler(name: str, *, streams_body: bool = True) -> type[RequestHandler]:
    """Return a handler class for tornado's URL rules. For each request it creates an instance of the class that
    ``name`` names, which is imported at the first request. ``streams_body``: the named class reads bodies as they
    arrive. tornado needs to know this before there is an instance."""

    class Deferred(RequestHandler):
        _stream_request_body = streams_body

        def __new__(cls, application: Application, request: HTTPServerRequest, **known: Any) -> Any:
            return load_class(name)(application, request, **known)

    return Deferred
