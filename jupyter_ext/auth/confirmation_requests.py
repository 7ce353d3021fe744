"""Requests of a kernel that a person has to confirm in the browser. They ask for permission to use a session of another
notebook, to send a session to a URL, to search all sessions, or to trust a folder."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agent_kernel.core.errors import Conflict, NotFound
from agent_kernel.core.session import SessionKey

EXPIRES_S = 300.0
MAX_WAITING = 100

BindState: TypeAlias = Literal["waiting", "confirmed", "denied", "expired"]


@dataclass(slots=True)
class BindRequest:
    """A kernel's request that a person has to confirm.

    If ``folder`` is set, the kernel asks to trust it; if ``search`` is true, to search all sessions of the namespace.
    In both cases only the namespace of ``key`` is used. Else, if ``engine`` is set, the kernel asks to send the session
    to that URL; else to bind the session to ``place``, which is a notebook's path or ``kernel:ID``.
    """

    id: str
    kernel: str
    key: SessionKey
    place: str
    until: float
    engine: str = ""
    search: bool = False
    folder: str = ""
    """A directory to trust."""
    digest: str = ""
    """The hash of the folder's ``.mcp.json`` as the page showed it."""
    decided: Literal["confirmed", "denied"] | None = None


class BindRequests:
    """The requests that wait for a person. They are kept in memory only: a restart of the server makes the kernels'
    credentials invalid, and so their requests.

    ``url`` returns the address at which a person's browser reaches the server, ending in ``/``.
    """

    def __init__(
        self, url: Callable[[], str], *, expires_s: float = EXPIRES_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url
        self.expires_s = expires_s
        self._clock = clock
        self._binds: dict[str, BindRequest] = {}

    def add(
        self, kernel: str, key: SessionKey, place: str, engine: str = "", *, search: bool = False, folder: str = ""
    ) -> BindRequest:
        until = self._clock() + self.expires_s
        bind = BindRequest(secrets.token_urlsafe(16), kernel, key, place, until, engine, search, folder)
        self._binds[bind.id] = bind
        while len(self._binds) > MAX_WAITING:
            self._binds.pop(next(iter(self._binds)))
        return bind

    def pending(self, bind: BindRequest) -> dict[str, Any]:
        """Return the answer to the kernel that made the request: its id, the page on which a person confirms it, and
        for how many seconds it waits."""
        url = f"{self._url()}agent/v1/binds/{bind.id}/confirm"
        return {"pending": bind.id, "url": url, "expires_s": self.expires_s}

    def get(self, bind: str) -> BindRequest:
        """Return a request. Raises NotFound."""
        request = self._binds.get(bind)
        if request is None:
            raise NotFound("There is no request for confirmation with this id.")
        return request

    def state(self, bind: BindRequest) -> BindState:
        if bind.decided:
            return bind.decided
        return "expired" if self._clock() > bind.until else "waiting"

    def decide(self, bind: BindRequest, decision: Literal["confirmed", "denied"]) -> None:
        """Record the decision. Raises Conflict if the request is not waiting any more."""
        if self.state(bind) != "waiting":
            raise Conflict(f"This request is already {self.state(bind)}.")
        bind.decided = decision
