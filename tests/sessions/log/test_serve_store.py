"""``agent-kernel serve --store URL`` keeps its sessions in the database, and announces it without its password."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jupyter_ext.conftest import HELLO
from tests.served import Served
from tests.sessions.log.servers import Postgres

pytestmark = pytest.mark.stores
SECRET = "pass-word-of-ann"


def test_a_server_takes_the_store_from_its_command_line(postgres: Postgres, tmp_path: Path) -> None:
    store = postgres.fresh().replace("postgres:@", f"postgres:{SECRET}@")
    served = Served(tmp_path / "served", [HELLO], ("--store", store))
    try:
        assert served.start().started["sessions"] == "postgresql:"
        with served.client() as client:
            assert client.post("/agent/v1/turns", json={"prompt": "hello", "session": "s"}).status_code < 300
            assert [session["id"] for session in client.get("/agent/v1/sessions").json()["sessions"]] == ["s"]
        assert not (served.directory / "data" / "sessions.db").exists()
        assert SECRET not in served.log.read_text()
    finally:
        served.sweep()
