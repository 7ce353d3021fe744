"""The log of several servers in PostgreSQL: five tables and two functions in the schema of the connection."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.sessions.log import log_errors
from agent_kernel.sessions.log.client_holder import ClientHolder, NamedClient, take_option
from agent_kernel.sessions.log.log_store import GRACE_S, Append, Entry, LogConflict, Stream, Tail, map_positions
from agent_kernel.sessions.log.message_bus import PAGE, BusMessage, EventCount, EventCounter, Post, SharedValue, Topic

if TYPE_CHECKING:
    import psycopg

VERSION = 1
LOG_PAGE = 5000
"""Maximum number of entries that one ``read`` returns."""
TABLES = "postgresql_tables.sql"
COMMIT_AFTER = "postgresql_commit_after.sql"
"""Names of SQL files: TABLES creates the tables and the function that commits, COMMIT_AFTER creates the function
``agent_kernel_commit_after``."""
_SELECT = f"""
SELECT extract(epoch FROM clock_timestamp())::float8, e.* FROM (SELECT 1) AS always LEFT JOIN LATERAL (
    SELECT e.namespace, e.position, e.session, e.replaces, e.body FROM %s
    ORDER BY e.namespace COLLATE "C", e.position LIMIT {LOG_PAGE}
) AS e ON true
"""
_READ = (
    _SELECT
    % """agent_kernel_namespaces AS n JOIN agent_kernel_entries AS e
    ON e.namespace = n.name AND e.position > coalesce((%(seen)s::jsonb ->> n.name)::bigint, 0)
    WHERE n.position > coalesce((%(seen)s::jsonb ->> n.name)::bigint, 0)"""
)
_READ_AMONG = (
    _SELECT
    % """unnest(%(names)s::text[], %(seen)s::bigint[]) AS n (name, position)
    JOIN agent_kernel_entries AS e ON e.namespace = n.name AND e.position > n.position"""
)
_COMMIT = "SELECT agent_kernel_commit(%s, %s::text[], %s::text[], %s::bigint[], %s::bytea[], %s::boolean[])"
_COMPARE_AND_COMMIT = _COMMIT.replace("commit(", "commit_after(%s::text[], %s::bigint[], ")
MARK_CHARS = 16
"""A notification names a topic by this number of characters at the beginning of its MD5. ``postgresql_messages.sql``
uses the same number."""
SCHEMA_FILES = {"agent_kernel_messages": "postgresql_messages.sql", "agent_kernel_counted": "postgresql_counts.sql"}
"""Maps a table to the file of SQL that creates it, together with the tables and functions that belong to it."""
_CHANNEL = "SELECT 'agent_kernel_' || md5(current_schema())"
"""Selects the name of the channel for notifications. The name depends on the schema, because all schemas of a database
share its channels."""
_DELETE_OLD_VALUES = """
DELETE FROM agent_kernel_values WHERE (namespace, name) IN (
    SELECT namespace, name FROM agent_kernel_values WHERE until <= now() LIMIT 200 FOR UPDATE SKIP LOCKED
) RETURNING 1
"""
_RECEIVE = f"""
SELECT m.namespace, m.topic, m.position, m.body
FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS a (namespace, topic, seen)
JOIN agent_kernel_messages AS m ON m.namespace = a.namespace AND m.topic = a.topic AND m.position > a.seen
WHERE m.until > now() ORDER BY m.position LIMIT {PAGE}
"""
T = TypeVar("T")
SETUP_LOCK = 0x41474B53
"""Key of the advisory lock under which one server creates the tables."""


class PostgresLog(NamedClient):
    """A LogStore in the database that ``url`` names (postgresql://...). It connects at its first use, creates its
    tables if they do not exist, and connects again after the connection broke. Raises InvalidRequest for a URL that
    cannot be parsed, or if psycopg is not installed."""

    compares = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = PostgresConnection(url, self._create_tables)
        self.name = self._connection.name

    def read(self, after: Mapping[str, int], among: Collection[str] | None = None) -> Tail:
        if among is None:
            rows = self._connection.run(_READ, {"seen": json.dumps(dict(after))})
        else:
            names = [*among]
            rows = self._connection.run(_READ_AMONG, {"names": names, "seen": [after.get(name, 0) for name in names]})
        entries = [
            Entry(namespace, position, session, replaces, bytes(body))
            for _, namespace, position, session, replaces, body in rows
            if namespace is not None
        ]
        return Tail(rows[0][0], entries, len(entries) == LOG_PAGE)

    def commit(
        self, id: str, appends: Sequence[Append], after: Mapping[str, int] | None = None
    ) -> Mapping[Stream, int]:
        columns = (
            id,
            [append.namespace for append in appends],
            [append.session for append in appends],
            [append.expect for append in appends],
            [append.body for append in appends],
            [append.replaces for append in appends],
        )
        if after:
            reached = ([*after], [*after.values()])
            ((positions,),) = self._connection.run(_COMPARE_AND_COMMIT, (*reached, *columns))
        else:
            ((positions,),) = self._connection.run(_COMMIT, columns)
        if positions is None:
            raise LogConflict
        return map_positions(appends, positions)

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        self._connection.run(
            "INSERT INTO agent_kernel_blobs VALUES (%s, %s, now(), %s) ON CONFLICT (namespace, digest)"
            " DO UPDATE SET stored = now() RETURNING 1",
            (namespace, digest, data),
        )

    def get_blob(self, namespace: str, digest: str) -> bytes | None:
        sql = "SELECT data FROM agent_kernel_blobs WHERE namespace = %s AND digest = %s"
        rows = self._connection.run(sql, (namespace, digest))
        return bytes(rows[0][0]) if rows else None

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        self._connection.run(
            "UPDATE agent_kernel_blobs SET stored = now() WHERE namespace = %s AND digest = ANY(%s) RETURNING 1",
            (namespace, list(digests)),
        )

    def drop_blobs(self, referenced: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        rows = self._connection.run(
            "DELETE FROM agent_kernel_blobs AS b WHERE stored <= now() - make_interval(secs => %s) AND NOT EXISTS"
            " (SELECT 1 FROM unnest(%s::text[], %s::text[]) AS k (namespace, digest)"
            " WHERE k.namespace = b.namespace AND k.digest = b.digest) RETURNING length(data)",
            (grace, [namespace for namespace, _ in referenced], [digest for _, digest in referenced]),
        )
        return sum(size for (size,) in rows)

    def bus(self) -> PostgresBus:
        return PostgresBus(self._url)

    def close(self) -> None:
        self._connection.close()

    def _create_tables(self, connection: psycopg.Connection[Any]) -> None:
        """Create the tables if they do not exist. Raises StoreCorrupt if they have a newer version."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (SETUP_LOCK,))
            known = connection.execute("SELECT to_regclass('agent_kernel_version') IS NOT NULL").fetchone()
            if not (known and known[0]):
                connection.execute(read_sql(TABLES).encode())
                connection.execute("INSERT INTO agent_kernel_version VALUES (%s)", (VERSION,))
            known = connection.execute("SELECT to_regproc('agent_kernel_commit_after') IS NOT NULL").fetchone()
            if not (known and known[0]):
                connection.execute(read_sql(COMMIT_AFTER).encode())
            row = connection.execute("SELECT max(version) FROM agent_kernel_version").fetchone()
        if row is None or row[0] != VERSION:
            raise log_errors.newer_format(self.name, row and row[0], VERSION, "database or schema")


# Messages between servers in PostgreSQL: three tables and two functions in the schema of the connection.
#
# LISTEN and NOTIFY only wake the receivers. The bodies are in the table, because a notification has at most 8,000
# bytes and is lost while a receiver connects again. Behind a pooler that does not forward notifications, messages
# arrive when ``wait_s`` is over.


class PostgresBus(NamedClient):
    """A MessageBus in the database that ``url`` names, with a connection for each of its two threads."""

    def __init__(self, url: str) -> None:
        self._sender = PostgresConnection(url, self._create_tables)
        self._receiver = PostgresConnection(url, self._prepare_receiver)
        self.name = self._sender.name

    def send(self, posts: Sequence[Post]) -> None:
        columns = (
            [post.topic[0] for post in posts],
            [post.topic[1] for post in posts],
            [post.body for post in posts],
            [post.keep_s for post in posts],
            [post.replaces for post in posts],
        )
        self._sender.run(
            "SELECT agent_kernel_send(%s::text[], %s::text[], %s::bytea[], %s::float8[], %s::boolean[])", columns
        )

    def receive(self, after: Mapping[Topic, int], wait_s: float) -> Sequence[BusMessage]:
        return self._receiver.use(lambda connection: self._receive(connection, after, wait_s))

    def get_value(self, namespace: str, name: str) -> SharedValue | None:
        rows = self._sender.run(
            "SELECT version, body, extract(epoch FROM now() - written)::float8 FROM agent_kernel_values"
            " WHERE namespace = %s AND name = %s AND until > now()",
            (namespace, name),
        )
        return SharedValue(rows[0][0], bytes(rows[0][1]), rows[0][2]) if rows else None

    def swap_value(self, namespace: str, name: str, expect: str, value: SharedValue | None, keep_s: float) -> bool:
        place, until = (namespace, name), "now() + make_interval(secs => %s)"
        if value is None:
            sql = "DELETE FROM agent_kernel_values WHERE namespace = %s AND name = %s AND version = %s RETURNING 1"
            changed = self._sender.run(sql, (*place, expect))
        elif expect:
            changed = self._sender.run(
                f"UPDATE agent_kernel_values SET version = %s, body = %s, written = now(), until = {until}"
                " WHERE namespace = %s AND name = %s AND version = %s AND until > now() RETURNING 1",
                (value.version, value.body, keep_s, *place, expect),
            )
        else:
            self._sender.run(_DELETE_OLD_VALUES, ())
            changed = self._sender.run(
                f"INSERT INTO agent_kernel_values VALUES (%s, %s, %s, %s, now(), {until})"
                " ON CONFLICT DO NOTHING RETURNING 1",
                (*place, value.version, value.body, keep_s),
            )
        if changed:
            return True
        known = self.get_value(*place)
        return (known.version if known else "") == (value.version if value else "")

    def count_event(self, event: str, counters: Sequence[EventCounter], window_s: float) -> Sequence[EventCount]:
        rows = self._sender.run(
            "SELECT number, wait FROM agent_kernel_count(%s::text, %s::text[], %s::text[], %s::integer[],"
            " make_interval(secs => %s))",
            (event, *_columns(counters), [counter.limit for counter in counters], window_s),
        )
        return [EventCount(number, wait) for number, wait in rows]

    def renew_events(self, counted: Sequence[tuple[str, EventCounter]], window_s: float) -> None:
        self._sender.run(
            "INSERT INTO agent_kernel_counted"
            " SELECT n, c, e, clock_timestamp(), clock_timestamp() + make_interval(secs => %s)"
            " FROM unnest(%s::text[], %s::text[], %s::text[]) AS t (n, c, e) ORDER BY n, c, e"
            " ON CONFLICT (namespace, name, event) DO UPDATE SET happened = excluded.happened, until = excluded.until"
            " RETURNING 1",
            (window_s, *_columns([counter for _, counter in counted]), [event for event, _ in counted]),
        )

    def uncount_event(self, event: str, counters: Sequence[EventCounter]) -> None:
        self._sender.run(
            "DELETE FROM agent_kernel_counted WHERE event = %s"
            " AND (namespace, name) IN (SELECT * FROM unnest(%s::text[], %s::text[])) RETURNING 1",
            (event, *_columns(counters)),
        )

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()

    def _receive(
        self, connection: psycopg.Connection[Any], after: Mapping[Topic, int], wait_s: float
    ) -> Sequence[BusMessage]:
        marks = {_mark(topic) for topic in after}
        until = time.monotonic() + wait_s
        given = ([name for name, _ in after], [topic for _, topic in after], [*after.values()])
        while True:
            rows = connection.execute(_RECEIVE, given, binary=True).fetchall()
            left = until - time.monotonic()
            if rows or left <= 0:
                return [BusMessage((name, topic), position, bytes(body)) for name, topic, position, body in rows]
            for notification in connection.notifies(timeout=left):
                if not notification.payload or not marks.isdisjoint(notification.payload.split(" ")):
                    break

    def _prepare_receiver(self, connection: psycopg.Connection[Any]) -> None:
        self._create_tables(connection)
        row = connection.execute(_CHANNEL).fetchone()
        assert row is not None
        connection.execute(f"LISTEN {row[0]}".encode())

    def _create_tables(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (SETUP_LOCK,))
            for table, sql in SCHEMA_FILES.items():
                known = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,)).fetchone()
                if not (known and known[0]):
                    connection.execute(read_sql(sql).encode())


def _columns(counters: Sequence[EventCounter]) -> tuple[list[str], list[str]]:
    return [counter.namespace for counter in counters], [counter.name for counter in counters]


def _mark(topic: Topic) -> str:
    return hashlib.md5("\n".join(topic).encode(), usedforsecurity=False).hexdigest()[:MARK_CHARS]


# A connection to PostgreSQL. It is opened at the first use, and opened again after it broke.


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
        """Call ``work`` with the connection. If the connection breaks, call it again with a new connection. Raises
        StoreError."""
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
