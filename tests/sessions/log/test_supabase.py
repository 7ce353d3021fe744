"""Tests the function and the permissions of the log in Supabase on a real PostgreSQL, with the real client and a FAKE
of the API (``fake_postgrest.py``).
"""

from __future__ import annotations

import subprocess
import sys
import traceback
from typing import Any

import psycopg
import pytest

from agent_kernel.core.errors import InvalidRequest, StoreCorrupt, StoreError
from agent_kernel.core.messages import user
from agent_kernel.sessions.log import postgresql
from agent_kernel.sessions.log.log_store import Append
from agent_kernel.sessions.log.postgresql import read_sql
from agent_kernel.sessions.log.supabase import SupabaseLog, project_sql
from agent_kernel.sessions.store.store_url import open_log, open_store
from tests.sessions.log.test_log_store import append, everything
from tests.sessions.talk import KEY

pytestmark = pytest.mark.stores
TABLES = ("version", "namespaces", "entries", "commits", "blobs")
SECRET, ANON = "sb_secret_of-the-project", "sb_publishable_for-web-pages"


def connect(supabase: Any, url: str, role: str) -> psycopg.Connection[Any]:
    schema = url.rpartition("schema=")[2]
    database = psycopg.connect(supabase.postgres.url, autocommit=True)
    database.execute(f"SET search_path TO {schema}".encode())
    database.execute(f"SET ROLE {role}".encode())
    return database


@pytest.mark.parametrize("role", ["anon", "authenticated"])
def test_web_pages_may_neither_call_the_functions_nor_use_the_tables(supabase: Any, role: str) -> None:
    url = supabase.fresh()
    log = open_log(url)
    log.commit("1", [append("s")])
    statements = [f"SELECT * FROM agent_kernel_{table}" for table in TABLES]
    statements += [f"DELETE FROM agent_kernel_{table}" for table in TABLES]
    statements += [
        "SELECT agent_kernel_log('read', '{}')",
        "SELECT agent_kernel_commit('x', '{}', '{}', '{}', '{}', '{}')",
        "SELECT agent_kernel_commit_after('{}', '{}', 'x', '{}', '{}', '{}', '{}', '{}')",
        "INSERT INTO agent_kernel_namespaces VALUES ('b', 1)",
    ]
    with connect(supabase, url, role) as database:
        for statement in statements:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                database.execute(statement.encode())
    anonymous = open_log(url.replace(SECRET, ANON))
    with pytest.raises(StoreError, match="permission denied"):
        anonymous.read({})
    anonymous.close()
    log.close()


def test_row_level_security_hides_all_rows_from_roles_that_were_given_the_tables_later(supabase: Any) -> None:
    url = supabase.fresh()
    log = open_log(url)
    log.commit("1", [append("s")])
    schema = url.rpartition("schema=")[2]
    supabase.postgres.run(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO anon")
    with connect(supabase, url, "anon") as database:
        for table in TABLES:
            assert database.execute(f"SELECT * FROM agent_kernel_{table}".encode()).fetchall() == []
    log.close()


def test_a_call_whose_reply_was_lost_has_happened_once(supabase: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SupabaseLog(supabase.fresh())
    log.commit("1", [append("s")])
    answer, losing = supabase.answer, iter([True])

    def answer_once(*given: Any) -> tuple[int, Any]:
        replied: tuple[int, Any] = answer(*given)
        if next(losing, False):
            raise ConnectionResetError
        return replied

    monkeypatch.setattr(supabase, "answer", answer_once)
    monkeypatch.setattr(supabase._server, "handle_error", lambda *_: None)
    assert log.commit("2", [append("s", expect=1)]) == {("a", "s"): 2}
    assert len(everything(log)) == 2
    log.close()


EARLIER = """
ALTER FUNCTION agent_kernel_log RENAME TO agent_kernel_later;
CREATE FUNCTION agent_kernel_log(operation text, given jsonb) RETURNS jsonb LANGUAGE plpgsql
SET search_path FROM CURRENT AS $$
BEGIN
    IF operation = 'read_among' OR given ? 'after' THEN
        RAISE EXCEPTION 'agent_kernel_log has no operation %', operation;
    END IF;
    RETURN agent_kernel_later(operation, given) - 'compares';
END $$;
GRANT EXECUTE ON FUNCTION agent_kernel_log(text, jsonb) TO service_role;
"""
"""Changes the function to what the SQL of the earlier version created."""


async def test_a_project_with_the_function_of_an_earlier_version_works_and_the_sql_upgrades_it(supabase: Any) -> None:
    url = supabase.fresh()
    schema = url.rpartition("schema=")[2]
    with psycopg.connect(f"{supabase.postgres.url}&options=-csearch_path%3D{schema}", autocommit=True) as database:
        database.execute(EARLIER.encode())
        assert await requests_of_a_write(supabase, url) == 2
        log = SupabaseLog(url)
        log.read({})
        assert not log.compares
        database.execute(project_sql().encode())
    assert await requests_of_a_write(supabase, url) == 1
    assert [entry.position for entry in everything(log, {"local": 1})] == [2, 3, 4]
    log.close()


async def requests_of_a_write(supabase: Any, url: str) -> int:
    """Write twice to a session of the project, and return the number of requests of the second write."""
    store = open_store(url)
    await store.add_messages(KEY, [user("first")])
    before = supabase.requests
    await store.add_messages(KEY, [user("second")])
    requests: int = supabase.requests - before
    await store.aclose()
    return requests


def test_the_tables_are_those_of_the_store_postgresql_and_both_can_use_them(supabase: Any) -> None:
    for name in (postgresql.TABLES, postgresql.COMMIT_AFTER):
        assert read_sql(name) in project_sql()
    assert f"INSERT INTO agent_kernel_version SELECT {postgresql.VERSION} WHERE" in project_sql()
    url = supabase.fresh()
    schema = url.rpartition("schema=")[2]
    log, direct = open_log(url), open_log(f"{supabase.postgres.url}&options=-csearch_path%3D{schema}")
    log.commit("1", [append("s")])
    direct.commit("2", [Append("a", "s", 1, b"\0all", replaces=True)])
    assert everything(log) == everything(direct)
    for one in (log, direct):
        one.close()


def test_a_project_without_the_function_and_one_of_a_newer_version_are_refused(supabase: Any) -> None:
    url = supabase.fresh()
    schema = url.rpartition("schema=")[2]
    supabase.postgres.run(f"UPDATE {schema}.agent_kernel_version SET version = 99")
    with pytest.raises(StoreCorrupt, match="newer agent-kernel"):
        open_log(url).read({})
    supabase.postgres.run(f"DROP FUNCTION {schema}.agent_kernel_log")
    with pytest.raises(StoreError) as raised:
        open_log(url).read({})
    assert "agent_kernel.sessions.log.supabase" in raised.value.hint


def test_what_a_person_runs_in_the_project_is_printed() -> None:
    command = [sys.executable, "-m", "agent_kernel.sessions.log.supabase"]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == project_sql()


@pytest.mark.parametrize(
    "url",
    [
        "supabase://sb_secret_x@127.0.0.1:1",
        "supabase://sb_secret_x@[host",
        "supabase://sb_secret_x@host:no-number",
        "supabase://sb_secret_x@host.invalid?key=more",
        "supabase://sb_secret_x:word@host.invalid",
        "supabase://user%0asb_secret_x@host.invalid",
        "supabase://host.invalid/sb_secret_x",
    ],
)
def test_no_error_contains_the_secret_key(url: str) -> None:
    with pytest.raises((InvalidRequest, StoreError)) as raised:
        open_log(url).read({})
    shown = f"{raised.value} {raised.value.hint} {raised.value.details}"
    assert raised.value.hint
    assert "sb_secret_x" not in shown + "".join(traceback.format_exception(raised.value, chain=True))


def test_a_wrong_key_is_an_error_that_does_not_contain_it(supabase: Any) -> None:
    url = supabase.fresh().replace(SECRET, "sb_secret_guessed")
    with pytest.raises(StoreError, match=r"Invalid API key|refused the secret key") as raised:
        open_log(url).read({})
    assert "sb_secret_guessed" not in f"{raised.value} {raised.value.hint}"
