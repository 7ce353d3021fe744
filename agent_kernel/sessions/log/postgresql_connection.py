"""A connection to PostgreSQL that is opened at the first use, and again after it broke."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.sessions.log import log_errors

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
ATTEMPTS = 2
"""How often a statement is sent if the connection breaks. All statements of this package can safely be repeated."""
SETUP_LOCK = 0x41474B53
"""Key of the advisory lock under which one server creates the tables."""


class PostgresConnection:
    """A connection for one thread at a time. ``prepare`` is called with each new connection, before it is used.
    ``name`` is shown to people. Raises InvalidRequest for a URL that cannot be parsed, or if psycopg is not installed.
    """

    def __init__(self, url: str, prepare: Callable[[psycopg.Connection[Any]], None]) -> None:
        try:
            import psycopg
        except ImportError:
            raise log_errors.missing_package("postgresql", "psycopg", "postgres") from None
        self._psycopg = psycopg
        try:
            parts = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # The library's message quotes parts of the URL, perhaps of its password.
            raise InvalidRequest(
                "The URL of the PostgreSQL store cannot be read.",
                hint="Use postgresql://USER@HOST:PORT/DATABASE, with %-escapes for special characters.",
            ) from None
        self._url = url
        self._prepare = prepare
        self.name = f"The PostgreSQL store {parts.get('dbname', '')} at {parts.get('host', 'this machine')}"
        self._connection: psycopg.Connection[Any] | None = None

    def run(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement, on a new connection if the old one is broken, and return its rows. Raises StoreError."""
        return self.use(lambda connection: connection.execute(sql, parameters, binary=True).fetchall())

    def use(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Call ``work`` with the connection, and again with a new one if it broke. Raises StoreError."""
        for attempt in range(ATTEMPTS):
            try:
                return work(self._open())
            except self._psycopg.Error as error:
                broken = self._connection is None or self._connection.broken
                if broken:
                    self.close()
                if attempt + 1 == ATTEMPTS or not broken:
                    raise log_errors.unusable(self.name, log_errors.first_line(error)) from None
        raise AssertionError("every attempt returns or raises")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            connection = self._psycopg.connect(
                self._url, autocommit=True, connect_timeout=10, application_name="agent-kernel"
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection
