"""Tests the format that a file name chooses."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.wire.export_format import SUFFIXES, format_of_file
from agent_kernel.sessions.export.import_export import FORMATS


@pytest.mark.parametrize(
    ("file", "format"),
    [("a.json", "agent-kernel"), ("a.agent.json", "agent-kernel"), ("a.MD", "markdown"), ("a", "agent-kernel")],
)
def test_the_suffix_chooses_the_format(file: str, format: str) -> None:
    assert format_of_file(Path(file)) == format


def test_another_suffix_is_refused_rather_than_written_as_json() -> None:
    assert format_of_file(None) == "agent-kernel"
    assert set(SUFFIXES.values()) <= set(FORMATS)
    with pytest.raises(InvalidRequest, match=r"No format has the suffix \.html\. Use \.json"):
        format_of_file(Path("a.html"))
