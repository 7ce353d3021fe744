"""Tests the record of a turn's cell changes, which undo uses."""

from __future__ import annotations

from typing import Any

from agent_kernel.core.events import CallFinished, EventBody
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.turn.changed_cells import MAX_BYTES, NO_ROOM, SECRET, ChangedCells, stored_change
from agent_kernel.turn.redacted_events import RedactedEvents

KEY = "sk-proj-" + "a1B2c3D4e5F6g7H8"


def finished_call(call: str, **change: Any) -> CallFinished:
    details = {"change": {"do": "edit", "cell": "one", **change}} if change else {}
    return CallFinished(call, "edit_cell", "success", "", 0.1, (), details)


def test_changes_are_kept_by_call_and_found_again() -> None:
    changes = ChangedCells(Redactor())
    for body in (
        finished_call("c1", before="a", after="b"),
        finished_call("c2"),
        finished_call("c3", before="b", after="c"),
    ):
        changes.note(body)
    assert set(changes.record["changes"]) == {"c1", "c3"}
    assert stored_change(changes.record, "c3") == {"change": {"do": "edit", "cell": "one", "before": "b", "after": "c"}}
    assert stored_change(changes.record, "c2") == {}
    assert stored_change({"changes": "odd"}, "c1") == {}
    assert ChangedCells().record == {}


def test_a_text_with_a_key_is_neither_kept_nor_shown_and_can_not_be_put_back_with_a_gap() -> None:
    changes, told = ChangedCells(Redactor()), list[EventBody]()
    body = finished_call("c1", before="key = 1", after=f"key = '{KEY}'")
    changes.note(body)
    RedactedEvents(Redactor(), told.append)(body)
    expected = {"do": "edit", "cell": "one", "lost": SECRET}
    assert changes.record == {"changes": {"c1": expected}}
    [shown] = told
    assert isinstance(shown, CallFinished)
    assert shown.details == {"change": expected}


def test_a_turn_keeps_so_much_and_no_more() -> None:
    changes = ChangedCells()
    changes.note(finished_call("c1", before="a" * (MAX_BYTES - 200), after=""))
    changes.note(finished_call("c2", before="b" * 1_000, after=""))
    kept = changes.record["changes"]
    assert "lost" not in kept["c1"]
    assert kept["c2"] == {"do": "edit", "cell": "one", "lost": NO_ROOM}
