"""Logs one line for each request: its id, the caller, the route, the status and the time it took. The line contains the
name of the route and not the URL, which may contain ids or text of a person. Of a credential it contains only the
public part.

Server errors are logged at WARNING. Refused requests are logged at INFO, and so are requests that change something and
come with a long-lived API token or from one of several users. All other requests are logged at DEBUG, because a page
sends them many times a minute.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from tornado.httputil import HTTPServerRequest

from jupyter_ext.auth.callers import Caller, ScopedUser

QUERY = re.compile(r"\?[^\s'\")]+")
READS = frozenset({"GET", "HEAD", "OPTIONS"})
LEFT = 499
"""The status, as in nginx, of a request whose client closed the connection before it had the response."""


def write(
    log: logging.Logger | logging.LoggerAdapter[Any],
    request: HTTPServerRequest,
    status: int,
    *,
    route: str,
    request_id: str,
    caller: Caller | None,
) -> None:
    """Log ``request`` when its answer is complete. ``caller`` is None if the server refused the request before it
    identified the sender."""
    verb, took = request.method or "", request.request_time()
    log.log(
        level(verb, status, caller),
        "agent-kernel %s %s: %s in %.0f ms for %s, request %s",
        verb,
        route or "?",
        f"{status} (the client left)" if status == LEFT else status,
        took * 1000,
        describe_caller(caller),
        request_id,
    )


def level(verb: str, status: int, caller: Caller | None) -> int:
    if status >= 500:
        return logging.WARNING
    if status >= 400 and status != LEFT:
        return logging.INFO
    by_token = caller is not None and (caller.token is not None or isinstance(caller.user, ScopedUser))
    return logging.INFO if by_token and verb not in READS else logging.DEBUG


def describe_caller(caller: Caller | None) -> str:
    if caller is None:
        return "nobody"
    if caller.token is not None:
        return f"token {caller.token.id} ({caller.token.name})"
    if isinstance(caller.user, ScopedUser):
        return f"user {caller.user.username}"
    return f"kernel {caller.kernel.id}" if caller.kernel else "a user"


def hide_queries(record: logging.LogRecord) -> bool:
    """Remove the query from each address in a log record of tornado. This is a filter of tornado's loggers; it returns
    True, so that the record is logged. A query may contain a token, although no route accepts a token there."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            argument if isinstance(argument, int | float) else QUERY.sub("?...", str(argument))
            for argument in record.args
        )
    return True
