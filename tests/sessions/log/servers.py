"""A real PostgreSQL for tests, from the wheel pgserver: it starts as root too, and needs no package of the system."""

from __future__ import annotations

import itertools
import os
from pathlib import Path


class Postgres:
    """A server in ``directory`` that listens on a socket only. ``fresh`` returns the URL of a new, empty schema."""

    def __init__(self, directory: Path) -> None:
        # pgserver puts its lock there while it is imported; without the variable its library warns.
        os.environ.setdefault("XDG_RUNTIME_DIR", str(directory.parent))
        import pgserver

        self._server = pgserver.get_server(str(directory), cleanup_mode="delete")
        self._numbers = itertools.count()

    def fresh(self) -> str:
        name = f"chats{next(self._numbers)}"
        self.run(f"CREATE SCHEMA {name}")
        return f"{self._server.get_uri()}&options=-csearch_path%3D{name}"

    def run(self, sql: str) -> None:
        self._server.psql(sql)

    def stop(self) -> None:
        self._server.cleanup()
