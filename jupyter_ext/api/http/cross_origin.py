"""Sets the headers that state which requests the pages of other origins may send (CORS), and lists the
methods of a handler."""

from __future__ import annotations

import re
from typing import Any

from jupyter_server.auth.decorator import allow_unauthenticated
from jupyter_server.base.handlers import APIHandler

EXPOSED = "X-Request-ID, ETag, Retry-After, Content-Disposition"
"""Headers of answers that a page of an allowed origin may read."""
HEADER_NAMES = re.compile(r"[\w-]{1,64}(?: ?, ?[\w-]{1,64}){0,63}", re.ASCII)
GUARD = "__guard__"
"""The attribute that ``guard`` sets on a method: the action, and whether kernels may call it."""
VERBS = ("get", "post", "put", "patch", "delete")


class CrossOriginHandler(APIHandler):
    """Answers the preflight requests of browsers, and sets the CORS headers of all other answers."""

    @allow_unauthenticated
    def options(self, *args: Any, **kwargs: Any) -> None:
        super().options(*args, **kwargs)
        requested = self.request.headers.get("Access-Control-Request-Headers", "")
        if HEADER_NAMES.fullmatch(requested) and "Access-Control-Allow-Headers" not in self.settings.get("headers", {}):
            self.set_header("Access-Control-Allow-Headers", requested)  # another header says which origins are allowed
        self.set_header("Allow", allow_header(type(self)))
        self.set_header("Access-Control-Allow-Methods", allow_header(type(self)))
        self.set_status(204)

    def set_cors_headers(self) -> None:
        """Set the CORS headers only for an origin that the server's configuration allows. Jupyter's own method would
        also set them for every page that sends a token."""
        if not (self.allow_origin or self.allow_origin_pat):
            return
        super().set_cors_headers()
        if self.allow_origin_pat and not self.allow_origin:
            self.set_header("Vary", "Origin")
        if "Access-Control-Allow-Origin" in self._headers:
            self.set_header("Access-Control-Expose-Headers", EXPOSED)


# Makes the ``Allow`` header, which lists the HTTP methods that a handler implements.


def list_verbs(handler: type[Any]) -> list[str]:
    return [verb for verb in VERBS if hasattr(getattr(handler, verb, None), GUARD)]


def allow_header(handler: type[Any]) -> str:
    """Return the value of the ``Allow`` header. A handler that answers GET also answers HEAD."""
    verbs = [verb.upper() for verb in list_verbs(handler)]
    return ", ".join([*verbs, *(["HEAD"] if "GET" in verbs else []), "OPTIONS"])
