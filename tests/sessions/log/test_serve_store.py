"""Tests ``agent-kernel serve --store URL``: it stores its sessions in the database and prints the URL without its
password.
"""

from __future__ import annotations

import base64
from pathlib import Path

import psycopg
import pytest

from tests.jupyter_ext.conftest import HELLO
from tests.served import Served
from tests.sessions.log.servers import Postgres

pytestmark = pytest.mark.stores
SECRET = "pass-word-of-ann"


def test_a_server_takes_the_store_from_its_command_line_and_the_key_from_a_file(
    postgres: Postgres, tmp_path: Path
) -> None:
    store = postgres.fresh().replace("postgres:@", f"postgres:{SECRET}@")
    key = tmp_path / "key"
    key.write_text(base64.b64encode(bytes(range(32))).decode())
    served = Served(tmp_path / "served", [HELLO], ("--store", f"{store}#key={key}"))
    with served:
        assert served.start().started["sessions"] == "postgresql:"
        with served.client() as client:
            assert client.post("/agent/v1/turns", json={"prompt": "the-question", "session": "s"}).status_code < 300
            assert [session["id"] for session in client.get("/agent/v1/sessions").json()["sessions"]] == ["s"]
        assert not (served.directory / "data" / "sessions.db").exists()
        with psycopg.connect(store) as database:
            bodies = [bytes(body) for (body,) in database.execute("SELECT body FROM agent_kernel_entries")]
        assert bodies
        assert not any(b"the-question" in body for body in bodies)
        assert SECRET not in served.log.read_text()
