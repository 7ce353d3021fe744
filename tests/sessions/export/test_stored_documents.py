"""Tests documents that released versions wrote: they open, and the same session still gives the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.core.session_tree import Transcript
from agent_kernel.sessions.export import jsonl
from agent_kernel.sessions.export.import_export import FORMATS, write_document
from agent_kernel.sessions.export.transcript import parse

DOCUMENTS = Path(__file__).parents[1] / "data" / "documents"


@pytest.fixture
def stored() -> Transcript:
    return parse((DOCUMENTS / "agent-kernel.txt").read_bytes())


def test_a_stored_document_holds_every_part_of_a_session(stored: Transcript) -> None:
    assert [branch.name for branch in stored.branches] == ["main", "branch-2"]
    assert [turn.state for turn in stored.turns] == ["committed", "cancelled", "committed", "committed"]
    assert len(stored.items) == 11
    assert len(stored.files) == 3
    assert len(stored.summaries) == 1
    assert stored.session.metadata == {"who": "ann", "list": [1, 2]}
    assert stored.absent == ()


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_writes_the_stored_bytes(stored: Transcript, format: str) -> None:
    written = write_document(stored, format)
    assert written.document == (DOCUMENTS / f"{format}.txt").read_bytes()


def test_a_document_of_the_format_before_holds_the_same_session(stored: Transcript) -> None:
    before = (DOCUMENTS / "agent-kernel-2.txt").read_bytes()
    assert parse(before) == stored
    assert len(write_document(stored, "agent-kernel").document) < len(before)


def test_the_lines_hold_the_same_session_as_the_document(stored: Transcript) -> None:
    lines = (DOCUMENTS / "jsonl.txt").read_bytes().splitlines(keepends=True)
    assert jsonl.read(lines, stored.session.key.namespace) == stored
