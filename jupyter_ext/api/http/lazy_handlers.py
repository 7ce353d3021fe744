"""Handlers that are imported by their first request: a server that is started pays for none of them."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.web import Application, RequestHandler


@functools.cache
def loaded(name: str) -> type[Any]:
    """The class that ``package.module:Class`` names."""
    module, _, attribute = name.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), attribute)
    return found


@functools.cache
def deferred(name: str, *, streams_body: bool = True) -> type[RequestHandler]:
    """A class for tornado's rules whose instances are of the class that ``name`` names. ``streams_body``: that one
    takes bodies as they come, which tornado wants to know before there is an instance."""

    class Deferred(RequestHandler):
        _stream_request_body = streams_body

        def __new__(cls, application: Application, request: HTTPServerRequest, **known: Any) -> Any:
            return loaded(name)(application, request, **known)

    return Deferred
