"""The log of several servers in PostgreSQL: five tables and two functions in the schema of the connection."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_kernel.sessions.log import log_errors
from agent_kernel.sessions.log.log_store import GRACE_S, Append, Entry, LogConflict, Stream, Tail, map_positions
from agent_kernel.sessions.log.postgresql_bus import PostgresBus
from agent_kernel.sessions.log.postgresql_connection import SETUP_LOCK, PostgresConnection, read_sql

if TYPE_CHECKING:
    import psycopg

VERSION = 1
PAGE = 5000
"""Maximum number of entries that one ``read`` returns."""
TABLES = "postgresql_tables.sql"
COMMIT_AFTER = "postgresql_commit_after.sql"
"""Files with the tables and the function that commits, and with the function ``agent_kernel_commit_after``."""
_SELECT = f"""
SELECT extract(epoch FROM clock_timestamp())::float8, e.* FROM (SELECT 1) AS always LEFT JOIN LATERAL (
    SELECT e.namespace, e.position, e.session, e.replaces, e.body FROM %s
    ORDER BY e.namespace COLLATE "C", e.position LIMIT {PAGE}
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


class PostgresLog:
    """A LogStore in the database that ``url`` names (postgresql://...). It connects at its first use, creates its
    tables if they do not exist, and connects again after the connection broke. Raises InvalidRequest for a URL that
    cannot be parsed, or if psycopg is not installed."""

    compares = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection = PostgresConnection(url, self._create_tables)
        self.name = self._connection.name

    def __repr__(self) -> str:
        return f"PostgresLog({self.name!r})"

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
        return Tail(rows[0][0], entries, len(entries) == PAGE)

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
