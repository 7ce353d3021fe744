"""Requests of a kernel that a person has to confirm in the browser: to use a session that is not its notebook's, to
send its own to a URL, to search all of them, or to trust its folder."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agent_kernel.core.errors import Conflict, NotFound
from agent_kernel.core.session import SessionKey

EXPIRES_S = 300.0
MAX_WAITING = 100

BindState: TypeAlias = Literal["waiting", "confirmed", "denied", "expired"]


@dataclass(slots=True)
class Bind:
    """``engine`` is the URL that the session shall go to; empty: the session shall be that of ``place``. ``search``: of
    ``key`` only the namespace counts, all sessions of which are to be searched."""

    id: str
    kernel: str
    key: SessionKey
    place: str
    until: float
    engine: str = ""
    search: bool = False
    folder: str = ""
    """A directory to trust; of ``key`` only the namespace counts."""
    digest: str = ""
    """Of its ``.mcp.json`` as the page showed it."""
    decided: Literal["confirmed", "denied"] | None = None


class Binds:
    """Waiting requests, kept in memory: a restart of the server ends the kernels' credentials too."""

    def __init__(self, *, expires_s: float = EXPIRES_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.expires_s = expires_s
        self._clock = clock
        self._binds: dict[str, Bind] = {}

    def ask(
        self, kernel: str, key: SessionKey, place: str, engine: str = "", *, search: bool = False, folder: str = ""
    ) -> Bind:
        until = self._clock() + self.expires_s
        bind = Bind(secrets.token_urlsafe(16), kernel, key, place, until, engine, search, folder)
        self._binds[bind.id] = bind
        while len(self._binds) > MAX_WAITING:
            self._binds.pop(next(iter(self._binds)))
        return bind

    def get(self, bind: str) -> Bind:
        """Raises NotFound."""
        found = self._binds.get(bind)
        if found is None:
            raise NotFound("There is no such request.")
        return found

    def state(self, bind: Bind) -> BindState:
        if bind.decided:
            return bind.decided
        return "expired" if self._clock() > bind.until else "waiting"

    def decide(self, bind: Bind, decision: Literal["confirmed", "denied"]) -> None:
        """Once. Raises Conflict."""
        if self.state(bind) != "waiting":
            raise Conflict(f"This request is {self.state(bind)} already.")
        bind.decided = decision
