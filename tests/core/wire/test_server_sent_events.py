"""Tests the parser of event streams: the events do not depend on how the bytes are split, and their size is bounded."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import AgentKernelError, EngineError
from agent_kernel.core.events import Event, TextDelta
from agent_kernel.core.wire.server_sent_events import EventDecoder, ServerEvent
from jupyter_ext.api.http.sse import KEEP_ALIVE, encode

STREAM = b"".join(
    [
        encode({"text": "one\nline\u2028end"}, "text.delta", 1),
        KEEP_ALIVE,
        encode({"text": "zwei, 数"}, "text.delta", 2),
        b"data: first\r\ndata: second\r\n\r\n",
        b"id: 4\rdata: third\r\r",
    ]
)
LINES = st.lists(
    st.sampled_from(["data: a", "data:b", "data", "id: 7", "event: x", ": ping", "retry: 1", "", "", "数"])
)


def decode(*chunks: bytes) -> list[ServerEvent]:
    decoder = EventDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def decode_to_end(*chunks: bytes, **limits: Any) -> list[str]:
    decoder = EventDecoder(**limits)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return [event.data for event in [*events, *decoder.end()]]


def cut(raw: bytes, cuts: list[int]) -> list[bytes]:
    return [raw[a:b] for a, b in pairwise([0, *sorted(cuts), len(raw)])]


def test_an_event_has_its_id_its_name_and_its_data() -> None:
    first, second, third, fourth = decode(STREAM)
    assert (first.id, first.event) == ("1", "text.delta")
    assert (second.id, second.data) == ("2", '{"text": "zwei, 数"}')
    assert third == ServerEvent("", "", "first\nsecond")
    assert fourth == ServerEvent("4", "", "third")


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_how_the_bytes_are_cut_changes_nothing(cuts: list[int]) -> None:
    assert decode(*cut(STREAM, cuts)) == decode(STREAM)


@given(LINES, st.data())
def test_any_line_ends_and_any_cuts_give_the_same_events(lines: list[str], data: st.DataObject) -> None:
    plain = "".join(f"{line}\n" for line in lines).encode()
    # A CR before a line that is empty and ends with LF would be one CRLF, so each stream has one kind of line end.
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    raw = plain.replace(b"\n", end)
    cuts = data.draw(st.lists(st.integers(0, len(raw)), max_size=8))
    assert decode(*cut(raw, cuts)) == decode(plain)


def test_an_event_is_complete_at_the_cr_of_its_blank_line() -> None:
    decoder = EventDecoder()
    assert [event.data for event in decoder.feed(b"data: 1\r\n\r")] == ["1"]
    assert list(decoder.feed(b"")) == []
    assert [event.data for event in decoder.feed(b"\ndata: 2\n\n")] == ["2"]


def test_comments_ids_and_names_are_no_data() -> None:
    assert decode_to_end(b": ping\n\nid: 9\n\nevent: x\nid: 3\nretry: 1\ndata:1\n\n") == ["1"]


def test_the_id_of_one_event_is_not_that_of_the_next() -> None:
    assert decode(b"id: 1\nevent: x\n\ndata: 2\n\n") == [ServerEvent("", "", "2")]


def test_lines_of_one_event_belong_together() -> None:
    assert decode_to_end(b'data: {"a":\ndata: 1}\n\n') == ['{"a":\n1}']


def test_the_last_event_counts_without_a_blank_line_only_at_an_end() -> None:
    assert decode_to_end(b"data: 1\n\ndata: 2") == ["1", "2"]
    assert decode_to_end(b"data: 1\n\ndata: 2\n") == ["1", "2"]
    assert decode(b"id: 1\nevent: text.delta\ndata: {}\n") == []


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert decode_to_end(b"data: a\xffb\n\n") == ["a\ufffdb"]


@pytest.mark.parametrize(
    "chunks",
    [
        [b"data: ", b"x" * 600, b"x" * 600],
        [b"data: xxxxxxxx\n"] * 200,
        [b"data:\n"] * 400,
        [b"x" * 2000],
        [b": x\n" * 400],
    ],
    ids=["line", "event", "empty lines", "junk", "comments"],
)
def test_an_event_without_an_end_is_not_collected(chunks: list[bytes]) -> None:
    with pytest.raises(AgentKernelError, match="rest was not read"):
        decode_to_end(*chunks, max_event=1000)


def test_an_answer_without_an_end_is_not_read_on() -> None:
    with pytest.raises(AgentKernelError, match="rest was not read"):
        decode_to_end(*[b": ping\n\n"] * 1000, max_answer=5000)
    assert decode_to_end(*[b": ping\n\n"] * 1000, max_event=1000) == []


def test_the_error_is_of_the_callers_kind() -> None:
    with pytest.raises(EngineError):
        list(EventDecoder(10, error=EngineError).feed(b"data: 0123456789"))


@pytest.mark.parametrize("text", ["", "a\n\nb", "\x85\u2029", "data: x"])
def test_what_our_server_writes_is_what_is_read(text: str) -> None:
    event = Event(3, "t", "s", 1, 0.0, TextDelta(text))
    [sent] = decode(encode(event.to_json(), event.body.type, event.seq))
    assert Event.from_json(json.loads(sent.data)) == event
