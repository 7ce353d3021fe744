"""Log one line for each request: its id, the caller, the route, the status and the time it took. The line never
contains an address with ids or words of a person, and of a credential only its public part.

Changes with a lasting token and refused requests are logged at INFO, server errors at WARNING, and everything else,
which a page requests many times a minute, at DEBUG.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from jupyter_ext.auth.callers import Caller

if TYPE_CHECKING:
    from jupyter_ext.api.http.handler import AgentHandler

READS = frozenset({"GET", "HEAD", "OPTIONS"})
LEFT = 499
"""As in nginx: the client closed the connection before it had the response."""


def tell(handler: AgentHandler, status: int) -> None:
    caller: Caller | None = getattr(handler, "caller", None)
    verb, took = handler.request.method or "", handler.request.request_time()
    handler.log.log(
        level(verb, status, caller),
        "agent-kernel %s %s: %s in %.0f ms for %s, request %s",
        verb,
        handler.route or "?",
        f"{status} (the client left)" if status == LEFT else status,
        took * 1000,
        who(caller),
        handler.request_id,
    )


def level(verb: str, status: int, caller: Caller | None) -> int:
    if status >= 500:
        return logging.WARNING
    if status >= 400 and status != LEFT:
        return logging.INFO
    return logging.INFO if caller is not None and caller.token and verb not in READS else logging.DEBUG


def who(caller: Caller | None) -> str:
    if caller is None:
        return "nobody"
    if caller.token is not None:
        return f"token {caller.token.id} ({caller.token.name})"
    return f"kernel {caller.kernel.id}" if caller.kernel else "a user"
