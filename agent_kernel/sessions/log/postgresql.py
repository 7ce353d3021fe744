"""The log of several servers in PostgreSQL: five tables and one function in the schema of the connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.sessions.log.log_store import GRACE_S, Append, Entry, LogConflict, Stream, Tail

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
VERSION = 1
PAGE = 5000
"""Maximum number of entries that one ``read`` returns."""
ATTEMPTS = 2
"""How often a statement is sent if the connection breaks. All statements of this module can safely be repeated."""
_SETUP_LOCK = 0x41474B53
"""Key of the advisory lock under which one server creates the tables."""
_SCHEMA = """
CREATE TABLE agent_kernel_version (version integer NOT NULL);
CREATE TABLE agent_kernel_namespaces (name text PRIMARY KEY, position bigint NOT NULL);
CREATE TABLE agent_kernel_entries (
    namespace text NOT NULL,
    position bigint NOT NULL,
    session text NOT NULL,
    replaces boolean NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (namespace, position)
);
CREATE INDEX agent_kernel_streams ON agent_kernel_entries (namespace, session, position);
CREATE TABLE agent_kernel_commits (id text PRIMARY KEY, positions bigint[] NOT NULL, time timestamptz NOT NULL);
CREATE INDEX agent_kernel_commits_by_time ON agent_kernel_commits (time);
CREATE TABLE agent_kernel_blobs (
    namespace text NOT NULL,
    digest text NOT NULL,
    stored timestamptz NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (namespace, digest)
);
-- The row of a namespace is locked until the commit, so its positions become visible in their order. The result is NULL
-- when a stream has a later entry than the writer expects. Ids are kept for a day.
CREATE FUNCTION agent_kernel_commit(
    given text, names text[], sessions text[], expected bigint[], bodies bytea[], replacing boolean[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    place bigint;
    places bigint[] := '{}';
BEGIN
    INSERT INTO agent_kernel_namespaces SELECT DISTINCT name, 0 FROM unnest(names) AS name ORDER BY name
    ON CONFLICT DO NOTHING;
    PERFORM 1 FROM agent_kernel_namespaces WHERE name = ANY (names) ORDER BY name FOR UPDATE;
    SELECT positions INTO places FROM agent_kernel_commits WHERE id = given;
    IF FOUND THEN RETURN places; END IF;
    places := '{}';
    FOR i IN 1 .. cardinality(names) LOOP
        SELECT coalesce(max(position), 0) INTO place FROM agent_kernel_entries
        WHERE namespace = names[i] AND session = sessions[i];
        IF place <> expected[i] THEN RETURN NULL; END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(names) LOOP
        place := 0;
        IF bodies[i] IS NOT NULL THEN
            UPDATE agent_kernel_namespaces SET position = position + 1 WHERE name = names[i]
            RETURNING position INTO place;
            IF replacing[i] THEN
                DELETE FROM agent_kernel_entries WHERE namespace = names[i] AND session = sessions[i];
                DELETE FROM agent_kernel_commits WHERE time < now() - interval '1 day';
            END IF;
            INSERT INTO agent_kernel_entries VALUES (names[i], place, sessions[i], replacing[i], bodies[i]);
        END IF;
        places := places || place;
    END LOOP;
    INSERT INTO agent_kernel_commits VALUES (given, places, now());
    RETURN places;
END $$;
"""
_READ = f"""
SELECT extract(epoch FROM clock_timestamp())::float8, e.* FROM (SELECT 1) AS always LEFT JOIN LATERAL (
    SELECT e.namespace, e.position, e.session, e.replaces, e.body
    FROM agent_kernel_namespaces AS n JOIN agent_kernel_entries AS e
    ON e.namespace = n.name AND e.position > coalesce((%(seen)s::jsonb ->> n.name)::bigint, 0)
    WHERE n.position > coalesce((%(seen)s::jsonb ->> n.name)::bigint, 0)
    ORDER BY e.namespace COLLATE "C", e.position LIMIT {PAGE}
) AS e ON true
"""


class PostgresLog:
    """A LogStore in the database that ``url`` names (postgresql://...). It connects at its first use, creates its
    tables if they do not exist, and connects again after the connection broke. Raises InvalidRequest for a URL that
    cannot be parsed, or if psycopg is not installed."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise InvalidRequest(
                "The store postgresql: needs psycopg.", hint="Install it: pip install 'agent-kernel[postgres]'."
            ) from None
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
        self.name = f"The PostgreSQL store {parts.get('dbname', '')} at {parts.get('host', 'this machine')}"
        self._connection: psycopg.Connection[Any] | None = None

    def __repr__(self) -> str:
        return f"PostgresLog({self.name!r})"

    def read(self, after: Mapping[str, int]) -> Tail:
        rows = self._run(_READ, {"seen": json.dumps(dict(after))})
        entries = [
            Entry(namespace, position, session, replaces, bytes(body))
            for _, namespace, position, session, replaces, body in rows
            if namespace is not None
        ]
        return Tail(rows[0][0], entries, len(entries) == PAGE)

    def commit(self, id: str, appends: Sequence[Append]) -> Mapping[Stream, int]:
        columns = (
            [one.namespace for one in appends],
            [one.session for one in appends],
            [one.expect for one in appends],
            [one.body for one in appends],
            [one.replaces for one in appends],
        )
        sql = "SELECT agent_kernel_commit(%s, %s::text[], %s::text[], %s::bigint[], %s::bytea[], %s::boolean[])"
        ((positions,),) = self._run(sql, (id, *columns))
        if positions is None:
            raise LogConflict
        return {
            (one.namespace, one.session): position
            for one, position in zip(appends, positions, strict=True)
            if one.body is not None
        }

    def put_blob(self, namespace: str, digest: str, data: bytes) -> None:
        self._run(
            "INSERT INTO agent_kernel_blobs VALUES (%s, %s, now(), %s) ON CONFLICT (namespace, digest)"
            " DO UPDATE SET stored = now() RETURNING 1",
            (namespace, digest, data),
        )

    def get_blob(self, namespace: str, digest: str) -> bytes | None:
        sql = "SELECT data FROM agent_kernel_blobs WHERE namespace = %s AND digest = %s"
        rows = self._run(sql, (namespace, digest))
        return bytes(rows[0][0]) if rows else None

    def touch_blobs(self, namespace: str, digests: Collection[str]) -> None:
        self._run(
            "UPDATE agent_kernel_blobs SET stored = now() WHERE namespace = %s AND digest = ANY(%s) RETURNING 1",
            (namespace, list(digests)),
        )

    def drop_blobs(self, named: Collection[tuple[str, str]], grace: float = GRACE_S) -> int:
        rows = self._run(
            "DELETE FROM agent_kernel_blobs AS b WHERE stored <= now() - make_interval(secs => %s) AND NOT EXISTS"
            " (SELECT 1 FROM unnest(%s::text[], %s::text[]) AS k (namespace, digest)"
            " WHERE k.namespace = b.namespace AND k.digest = b.digest) RETURNING length(data)",
            (grace, [namespace for namespace, _ in named], [digest for _, digest in named]),
        )
        return sum(size for (size,) in rows)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _run(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Run one statement, on a new connection if the old one is broken. Raises StoreError."""
        return self._retry(lambda connection: connection.execute(sql, parameters, binary=True).fetchall())

    def _retry(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        for attempt in range(ATTEMPTS):
            try:
                return work(self._open())
            except self._psycopg.Error as error:
                broken = self._connection is None or self._connection.broken
                if broken:
                    self.close()
                if attempt + 1 == ATTEMPTS or not broken:
                    raise self._to_store_error(error) from None
        raise AssertionError("every attempt returns or raises")

    def _open(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            connection = self._psycopg.connect(
                self._url, autocommit=True, connect_timeout=10, application_name="agent-kernel"
            )
            try:
                self._create_tables(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _create_tables(self, connection: psycopg.Connection[Any]) -> None:
        """Create the tables if they do not exist. Raises StoreCorrupt if they have a newer version."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))
            known = connection.execute("SELECT to_regclass('agent_kernel_version') IS NOT NULL").fetchone()
            if not (known and known[0]):
                connection.execute(_SCHEMA.encode())
                connection.execute("INSERT INTO agent_kernel_version VALUES (%s)", (VERSION,))
                return
            row = connection.execute("SELECT max(version) FROM agent_kernel_version").fetchone()
        if row is None or row[0] != VERSION:
            raise StoreCorrupt(
                f"{self.name} was written by a newer agent-kernel (format {row and row[0]}, this one knows {VERSION}).",
                hint="Nothing was changed. Upgrade agent-kernel, or name another database or schema.",
            )

    def _to_store_error(self, error: psycopg.Error) -> StoreError:
        # Only the first line: the others quote the statement and its values.
        cause = next(iter(str(error).strip().splitlines()), type(error).__name__)
        return StoreError(
            f"{self.name} cannot be used: {cause}",
            hint="Check that the database runs and can be reached. The store works again as soon as it does.",
        )
