"""Messages between servers in PostgreSQL: three tables and two functions in the schema of the connection.

LISTEN and NOTIFY only wake the receivers. The bodies are in the table, because a notification has at most 8,000 bytes
and is lost while a receiver connects again. Behind a pooler that does not forward notifications, messages arrive when
``wait_s`` is over.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_kernel.sessions.log.message_bus import (
    PAGE,
    BusMessage,
    EventCount,
    EventCounter,
    Post,
    SharedValue,
    Topic,
)
from agent_kernel.sessions.log.postgresql_connection import SETUP_LOCK, PostgresConnection, read_sql

if TYPE_CHECKING:
    import psycopg

MARK_CHARS = 16
"""Length of the part of a topic's MD5 by which a notification names it, as in ``postgresql_messages.sql``."""
SCHEMA_FILES = {"agent_kernel_messages": "postgresql_messages.sql", "agent_kernel_counted": "postgresql_counts.sql"}
"""Maps a table to the file of SQL that creates it, together with the tables and functions that belong to it."""
_CHANNEL = "SELECT 'agent_kernel_' || md5(current_schema())"
"""Channels belong to a database, so the name of the channel depends on the schema."""
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


class PostgresBus:
    """A MessageBus in the database that ``url`` names, with a connection for each of its two threads."""

    def __init__(self, url: str) -> None:
        self._sender = PostgresConnection(url, self._create_tables)
        self._receiver = PostgresConnection(url, self._prepare_receiver)
        self.name = self._sender.name

    def __repr__(self) -> str:
        return f"PostgresBus({self.name!r})"

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
