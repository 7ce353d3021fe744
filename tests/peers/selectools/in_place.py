"""A pytest plugin that runs selectools' own tests with SelectoolsStore in place of stores in files or directories.

``tests/peers/suites.py`` starts pytest with it.
"""

from __future__ import annotations

import os

import pytest
import selectools.sessions

from agent_kernel.sessions.adapters.selectools import SelectoolsStore
from tests.peers.private_parts import expect_failures

FILES = "reads or changes the JSON files of JsonFileSessionStore"
TABLES = "reads or changes the tables of SQLiteSessionStore, or asks whether it has an index"
PATHS = "wants ids refused that a path would not take; here an id is never a path"
PRIVATE = {
    "TestJsonFileSessionStoreSaveLoad::test_preserves_created_at_on_overwrite": FILES,
    "TestJsonFileSessionStoreTTL::test_expired_session_returns_none": FILES,
    "TestJsonFileSessionStoreTTL::test_no_ttl_never_expires": FILES,
    "TestJsonFileSessionStoreDeleteListExists::test_exists_expired": FILES,
    "TestJsonFileSessionStoreDeleteListExists::test_list_excludes_expired": FILES,
    "TestSQLiteSessionStoreTTL::test_expired_session_returns_none": TABLES,
    "TestSQLiteSessionStoreTTL::test_no_ttl_never_expires": TABLES,
    "TestSQLiteSessionStoreDeleteListExists::test_list_excludes_expired": TABLES,
    "TestSQLiteSessionStoreSearch::test_fts5_ranking_sanity": TABLES,
    "TestSQLiteSessionStoreSearch::test_old_database_upgrade_path": TABLES,
    "TestSQLiteSessionStoreSearch::test_like_fallback_warns_and_matches": TABLES,
    "TestSQLiteSessionStoreSearch::test_fts5_detection_cross_build_reuse": TABLES,
    "TestSQLiteSessionStoreSearch::test_backfill_reindexes_stale_rows": TABLES,
    "TestJsonFileTTLEdgeCases::test_list_removes_expired_files": FILES,
    "TestJsonFileTTLEdgeCases::test_list_handles_os_error_on_expired_delete": FILES,
    "TestSQLiteEdgeCases::test_preserves_created_at_on_overwrite": TABLES,
    "TestSQLiteEdgeCases::test_exists_expired_returns_false": TABLES,
    "TestSQLiteEdgeCases::test_list_cleans_up_expired": TABLES,
    "TestPathTraversal::test_rejects_path_traversal": PATHS,
    "TestPathTraversal::test_rejects_slash_in_id": PATHS,
    "TestPathTraversal::test_rejects_null_byte": "wants the words 'Invalid session_id'",
    "TestPathTraversalRegression::test_dotdot_rejected": PATHS,
    "TestPathTraversalRegression::test_slash_rejected": PATHS,
    "TestCrashSafeWriteRegression::test_session_store_atomic_write": FILES,
}


class InDirectory(SelectoolsStore):
    def __init__(self, directory: str = "./sessions", default_ttl: float | None = None) -> None:
        os.makedirs(directory, exist_ok=True)
        super().__init__(os.path.join(directory, "sessions.db"), default_ttl)


for module in (selectools, selectools.sessions):
    module.SQLiteSessionStore, module.JsonFileSessionStore = SelectoolsStore, InDirectory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    expect_failures(items, PRIVATE)
