"""Enforces the time limits within which a server must send the next token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

from agent_kernel.core.errors import EngineError

T = TypeVar("T")


class TokenTimeouts:
    """The time limits for one request: ``first_s`` seconds until the first token, then ``between_s`` seconds from one
    token to the next. Data without a token, such as a keep-alive or an empty delta, does not restart a limit. ``host``
    is the server's name in errors."""

    def __init__(self, host: str, first_s: float, between_s: float) -> None:
        self._host = host
        self._first_s = first_s
        self._between_s = between_s
        self.restart()

    def restart(self) -> None:
        """Begin the time limit for the first token of a new request."""
        self._limit_s = self._first_s
        self._until = time.monotonic() + self._first_s

    def restart_between_tokens(self) -> None:
        """Begin the time limit for the next token."""
        self._limit_s = self._between_s
        self._until = time.monotonic() + self._between_s

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await ``awaitable`` and return its result. Raises EngineError if the current time limit passes first."""
        try:
            async with asyncio.timeout(max(0.0, self._until - time.monotonic())):
                return await awaitable
        except TimeoutError:
            raise EngineError(
                f"{self._host} sent nothing for {self._limit_s:g} seconds.",
                hint="Ask again, or raise the limits of this engine: first_token_s and between_tokens_s.",
                details={"host": self._host, "cause": "timeout"},
            ) from None
