"""A pytest plugin that runs the SDK's own tests with AgentsSession in place of SQLiteSession.

``tests/peers/suites.py`` starts pytest with it. Only the names that tests import are replaced: modules of the SDK keep
their SQLiteSession.
"""

from __future__ import annotations

import agents
import agents.memory
import pytest

from agent_kernel.sessions.adapters.openai_agents import AgentsSession
from tests.peers.private_parts import expect_failures

TABLES = "reads or changes the tables of SQLiteSession"
PARTS = "reads or replaces private attributes of SQLiteSession: its connections, locks or statements"
NATIVE = "EncryptedSession authenticates an item before it is removed only with SQLiteSession itself"
PRIVATE = {
    "test_session.py::test_sqlite_session_close_closes_worker_thread_connections": PARTS,
    "test_session.py::test_sqlite_session_reaps_connections_from_exited_worker_threads": PARTS,
    "test_session.py::test_sqlite_session_closes_retired_connections_before_the_next_allocation": PARTS,
    "test_session.py::test_sqlite_session_keeps_connections_of_live_worker_threads": PARTS,
    "test_session.py::test_sqlite_session_closed_rejects_empty_add_items": "wants the words 'SQLiteSession is closed'",
    "test_session.py::test_sqlite_session_pop_item_skips_corrupt_most_recent": TABLES,
    "test_session.py::test_sqlite_session_pop_item_returns_none_after_dropping_only_corrupt_rows": TABLES,
    "test_session.py::test_sqlite_session_get_items_limit_skips_corrupt_newest_rows": TABLES,
    "test_session.py::test_sqlite_session_get_items_session_settings_limit_skips_corrupt_rows": TABLES,
    "test_session.py::test_sqlite_session_file_lock_is_shared_across_instances": PARTS,
    "test_session.py::test_sqlite_session_failed_add_items_releases_write_lock": TABLES,
    "test_session.py::test_sqlite_session_failed_clear_session_rolls_back": TABLES,
    "test_session.py::test_sqlite_session_failed_pop_item_releases_write_lock": TABLES,
    "test_session.py::test_sqlite_session_rollback_failure_evicts_connection": PARTS,
    "test_session.py::test_sqlite_session_close_retries_quarantined_connection": PARTS,
    "test_session.py::test_sqlite_session_post_commit_cancellation_propagates_after_known_outcome": PARTS,
    "test_compaction_suffix.py::test_suffix_transaction_rolls_back_failed_insert[sqlite]": TABLES,
    "test_compaction_suffix.py::test_cancelled_suffix_transaction_settles_before_newer_append[sqlite]": PARTS,
    "test_compaction_suffix.py::test_failed_encrypted_suffix_transaction_preserves_original_tokens[sqlite": TABLES,
    "TestOpenAIResponsesCompactionSession::test_settled_pop_failure_invalidates_response_chain": PARTS,
    "TestOpenAIResponsesCompactionSession::test_settled_clear_failure_invalidates_response_chain": PARTS,
    "test_encrypt_session.py::test_encrypted_pop_wrong_key_preserves_recoverable_history": NATIVE,
    "test_encrypt_session.py::test_encrypted_pop_rechecks_authentication_after_expired_tail": NATIVE,
    "test_encrypt_session.py::test_encrypted_pop_authentication_is_atomic_with_concurrent_mutations": TABLES,
    "test_encrypt_session.py::test_encrypted_pop_wrong_key_preserves_row_identity": TABLES,
    "test_encrypt_session.py::test_encrypted_pop_cancellation_waits_for_authentication_rollback": NATIVE,
    "test_encrypt_session.py::test_encrypted_session_scan_budget_rejects_negative_limit_before_read": (
        "wants all items for a negative limit, as SQLite reads it; AgentsSession refuses one"
    ),
}

agents.SQLiteSession = agents.memory.SQLiteSession = AgentsSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    expect_failures(items, PRIVATE)
