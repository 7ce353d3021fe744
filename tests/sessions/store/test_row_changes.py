"""Tests the form of row changes in an entry of the log."""

from __future__ import annotations

from agent_kernel.sessions.store import row_changes
from agent_kernel.sessions.store.row_changes import RowChange


def test_a_change_is_the_same_after_it_was_encoded_and_decoded() -> None:
    change = RowChange("quarantine", "u", ("local", 1), ('{"content":"Привет 你好"}', 0.1 + 0.2, None, b"\xff\0"))
    (decoded,) = row_changes.decode(row_changes.encode([change]))
    assert (decoded.table, decoded.event) == ("quarantine", "u")
    assert tuple(decoded.old) == change.old
    assert tuple(decoded.new) == change.new


def test_a_text_takes_no_more_bytes_in_an_entry_than_in_utf_8() -> None:
    text = "Привет 你好 " * 100
    empty = len(row_changes.encode([RowChange("items", "i", (), ("",))]))
    assert len(row_changes.encode([RowChange("items", "i", (), (text,))])) == empty + len(text.encode())
