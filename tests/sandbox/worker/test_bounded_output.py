"""Tests the beginning and the end of long output, and the count of what is omitted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.sandbox.worker.bounded_output import BoundedOutput


@given(st.lists(st.text(max_size=40)), st.integers(0, 60))
def test_what_is_kept_begins_and_ends_as_the_whole(texts: list[str], limit: int) -> None:
    output, whole, half = BoundedOutput(limit), "".join(texts), limit // 2
    shown = "".join(output.add(text) for text in texts)
    assert whole.startswith(shown)
    assert len(shown) == min(len(whole), half)
    if len(whole) <= 2 * half:
        assert output.text() == whole
    else:
        assert output.text().startswith(whole[:half])
        assert output.text().endswith(whole[len(whole) - half :])
        assert f"{len(whole) - 2 * half:,} characters left out" in output.text()
