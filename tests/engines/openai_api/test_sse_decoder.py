"""The stream of a server, byte by byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import EngineError
from agent_kernel.engines.openai_api.sse_decoder import EventDecoder, parse_object


def decoded(*pieces: bytes, **limits: int) -> list[str]:
    decoder = EventDecoder(**limits)
    found = [data for piece in pieces for data in decoder.feed(piece)]
    return [*found, *decoder.end()]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1)), st.data())
def test_events_are_the_same_however_they_are_cut(texts: list[str], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    raw = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert decoded(*pieces) == texts


def test_comments_ids_and_names_are_no_data() -> None:
    assert decoded(b": ping\n\nevent: x\nid: 3\nretry: 1\ndata:1\n\n") == ["1"]


def test_lines_of_one_event_belong_together() -> None:
    assert decoded(b'data: {"a":\ndata: 1}\n\n') == ['{"a":\n1}']


def test_the_last_event_counts_without_a_blank_line() -> None:
    assert decoded(b"data: 1\n\ndata: 2") == ["1", "2"]


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert decoded(b"data: a\xffb\n\n") == ["a\ufffdb"]


@pytest.mark.parametrize(
    "pieces",
    [[b"data: ", b"x" * 600, b"x" * 600], [b"data: xxxxxxxx\n"] * 200, [b"x" * 2000]],
    ids=["line", "event", "junk"],
)
def test_an_event_without_an_end_is_not_collected(pieces: list[bytes]) -> None:
    with pytest.raises(EngineError, match="not read on"):
        decoded(*pieces, max_event=1000)


def test_an_answer_without_an_end_is_not_read_on() -> None:
    with pytest.raises(EngineError, match="not read on"):
        decoded(*[b": ping\n\n"] * 1000, max_answer=5000)


@pytest.mark.parametrize("data", ["", "x", "[]", "1", "[" * 100_000, '{"a": '])
def test_what_is_no_object_is_an_error(data: str) -> None:
    with pytest.raises(EngineError, match="no JSON object"):
        parse_object(data)


def test_an_object_is_itself() -> None:
    assert parse_object(json.dumps({"a": 1})) == {"a": 1}
