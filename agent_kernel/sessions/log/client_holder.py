"""Holds the client of a shared database. The client connects at the first use, and connects again after its connection
broke. This module also removes the options of agent-kernel from the URL of a database."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote

T = TypeVar("T")
ATTEMPTS = 2
"""Maximum number of times that a call is tried if its connection breaks. Everything that the logs send can safely be
repeated."""


class ClientHolder:
    """The client that ``connect`` returns, for one thread at a time. ``prepare`` is called with each new client before
    the client is used: it creates missing tables in the database, and raises an error if the database has a newer
    format. ``close`` releases a client."""

    def __init__(
        self,
        connect: Callable[[], Any],
        prepare: Callable[[Any], None],
        close: Callable[[Any], None] = lambda client: client.close(),
    ) -> None:
        self._connect, self._prepare, self._close = connect, prepare, close
        self.client: Any = None
        """The client, or None while there is none."""

    def open(self) -> Any:
        if self.client is None:
            client = self._connect()
            try:
                self._prepare(client)
            except BaseException:
                self._close(client)
                raise
            self.client = client
        return self.client

    def use(self, work: Callable[[Any], T], is_broken: Callable[[Exception], bool]) -> T:
        """Call ``work`` with the client, and again with a new client if ``is_broken`` is true for the error. Errors of
        ``work`` are raised unchanged."""
        for attempt in range(ATTEMPTS):
            try:
                return work(self.open())
            except Exception as error:
                if not is_broken(error):
                    raise
                self.close()
                if attempt + 1 == ATTEMPTS:
                    raise
        raise AssertionError("every attempt returns or raises")

    def close(self) -> None:
        """Release the client. The next use connects again."""
        client, self.client = self.client, None
        if client is not None:
            self._close(client)


# Removes agent-kernel's own options from the URL of a database. Its other options belong to the library that
# connects.


def take_option(url: str, name: str, pattern: str) -> tuple[str, str]:
    """Return the URL without the option ``name`` of its query, and the option's value (empty if it is not there). The
    rest of the URL stays as it is written. Raises ValueError if the value does not fit ``pattern``."""
    place, mark, query = url.partition("?")
    parts = query.split("&") if mark else []
    values = [unquote(part.partition("=")[2]) for part in parts if part.partition("=")[0] == name]
    if not values:
        return url, ""
    if not re.fullmatch(pattern, values[-1], re.ASCII):
        raise ValueError(name)
    rest = "&".join(part for part in parts if part.partition("=")[0] != name)
    return f"{place}?{rest}" if rest else place, values[-1]


class NamedClient:
    """Base class of the logs and buses of shared databases. ``name`` is the name for messages to people, which contains
    no password."""

    name: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
