"""A connection to PostgreSQL. It is opened at the first use, and opened again after it broke."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.sessions.log import log_errors
from agent_kernel.sessions.log.client_holder import ClientHolder
from agent_kernel.sessions.log.url_options import take_option

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
SETUP_LOCK = 0x41474B53
"""Key of the advisory lock under which one server creates the tables."""


class PostgresConnection:
    """A connection for one thread at a time. ``prepare`` is called with each new connection, before it is used.
    ``name`` is the name for messages to people. ``schema`` in the URL's query names the schema of the tables, which is
    created if it does not exist; without it, the first schema of the connection's search_path is used. Raises
    InvalidRequest for a URL that cannot be parsed, or if psycopg is not installed."""

    def __init__(self, url: str, prepare: Callable[[psycopg.Connection[Any]], None]) -> None:
        try:
            import psycopg
        except ImportError:
            raise log_errors.missing_package("postgresql", "psycopg", "postgres") from None
        self._psycopg = psycopg
        try:
            self._url, self._schema = take_option(url, "schema", r"\w{1,63}")
            parts = psycopg.conninfo.conninfo_to_dict(self._url)
        except (ValueError, psycopg.ProgrammingError):
            # The library's message quotes parts of the URL, which may include the password.
            raise InvalidRequest(
                "The URL of the PostgreSQL store cannot be read.",
                hint="Use postgresql://USER@HOST:PORT/DATABASE, with %-escapes for special characters; the query may"
                " have schema=NAME and libpq's options.",
            ) from None
        self.name = f"The PostgreSQL store {parts.get('dbname', '')} at {parts.get('host', 'this machine')}"
        self._connection = ClientHolder(self._connect, prepare)

    def run(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement, on a new connection if the old one is broken, and return its rows. Raises StoreError."""
        return self.use(lambda connection: connection.execute(sql, parameters, binary=True).fetchall())

    def use(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Call ``work`` with the connection, and again with a new one if it broke. Raises StoreError."""
        try:
            return self._connection.use(work, self._is_broken)
        except self._psycopg.Error as error:
            raise log_errors.unusable(self.name, log_errors.first_line(error)) from None

    def close(self) -> None:
        self._connection.close()

    def _is_broken(self, error: Exception) -> bool:
        connection = self._connection.client
        return isinstance(error, self._psycopg.Error) and (connection is None or connection.broken)

    def _connect(self) -> psycopg.Connection[Any]:
        connection = self._psycopg.connect(
            self._url, autocommit=True, connect_timeout=10, application_name="agent-kernel"
        )
        if self._schema:
            try:
                self._enter_schema(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _enter_schema(self, connection: psycopg.Connection[Any]) -> None:
        name = self._psycopg.sql.Identifier(self._schema)
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (SETUP_LOCK,))
            # CREATE SCHEMA IF NOT EXISTS requires the right to create schemas even if the schema exists.
            known = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (self._schema,)).fetchone()
            if known is None:
                connection.execute(self._psycopg.sql.SQL("CREATE SCHEMA {}").format(name))
        connection.execute(self._psycopg.sql.SQL("SET search_path = {}").format(name))


def read_sql(name: str) -> str:
    """Return the text of an SQL file of this folder."""
    return files("agent_kernel.sessions.log").joinpath(name).read_text("utf-8")
