"""A FAKE of Supabase's API: it calls the function on a real PostgreSQL, in the role of the request's key.

PostgREST itself is not available as a package for tests. Its own limits and its schema cache are therefore not tested;
the function, its permissions and the client are real.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg

from agent_kernel.sessions.log.supabase import project_sql
from tests.sessions.log.servers import Postgres

SECRET, ANON = "sb_secret_of-the-project", "sb_publishable_for-web-pages"
ROLES = {SECRET: "service_role", ANON: "anon"}


class FakeSupabase:
    """The fake server. ``fresh`` returns the URL of a log in a new schema, created by the committed SQL."""

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres
        self._local = threading.local()
        for role, may in (("anon", ""), ("authenticated", ""), ("service_role", "BYPASSRLS")):
            postgres.run(f"CREATE ROLE {role} NOLOGIN {may}")
        self.requests = 0
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 1 << 16  # head and body in one packet: the client would acknowledge the first one late

            def do_POST(self) -> None:
                given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = fake.answer(self.path, self.headers, given)
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def finish(self) -> None:
                super().finish()
                fake.leave()

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def fresh(self, key: str = SECRET) -> str:
        url = self.postgres.fresh()
        schema = url.rpartition("%3D")[2]
        with psycopg.connect(url, autocommit=True) as database:
            database.execute(project_sql().encode())
            database.execute(f"GRANT USAGE ON SCHEMA {schema} TO anon, authenticated, service_role".encode())
        return f"supabase://{key}@127.0.0.1:{self.port}?schema={schema}"

    def answer(self, path: str, headers: Any, given: dict[str, Any]) -> tuple[int, Any]:
        self.requests += 1
        if headers["apikey"] not in ROLES or headers["Authorization"] != f"Bearer {headers['apikey']}":
            return 401, {"message": "Invalid API key"}
        if path != "/rest/v1/rpc/agent_kernel_log":
            return 404, _to_error("PGRST202", "Could not find the function in the schema cache")
        schema = headers.get("Content-Profile", "public")
        database = self._connect()
        try:
            with database.transaction():
                database.execute(f"SET LOCAL search_path TO {schema}".encode())
                database.execute(f"SET LOCAL ROLE {ROLES[headers['apikey']]}".encode())
                row = database.execute(
                    "SELECT agent_kernel_log(%s, %s::jsonb)", (given["operation"], json.dumps(given["given"]))
                ).fetchone()
        except psycopg.Error as error:
            return 400, _to_error(error.sqlstate, str(error).splitlines()[0])
        assert row is not None
        return 200, row[0]

    def _connect(self) -> psycopg.Connection[Any]:
        """Return the database connection of this thread, which serves one client connection."""
        if not hasattr(self._local, "database"):
            self._local.database = psycopg.connect(self.postgres.url, autocommit=True)
        database: psycopg.Connection[Any] = self._local.database
        return database

    def leave(self) -> None:
        """Close the database connection of this thread, because the client has disconnected."""
        if hasattr(self._local, "database"):
            self._local.database.close()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _to_error(code: str | None, message: str) -> dict[str, Any]:
    return {"code": code, "message": message, "details": None, "hint": None}
