from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.client.sse import SseFrame, SseParser
from agent_kernel.core.events import Event, TextDelta
from jupyter_ext.api.http.sse import KEEP_ALIVE, encode

TOLD = b"".join(
    [
        encode({"text": "one\nline\u2028end"}, "text.delta", 1),
        KEEP_ALIVE,
        encode({"text": "zwei, 数"}, "text.delta", 2),
        b"data: first\r\ndata: second\r\n\r\n",
    ]
)


def fed(pieces: list[bytes]) -> list[SseFrame]:
    frames = SseParser()
    return [frame for piece in pieces for frame in frames.feed(piece)]


def test_a_frame_has_its_number_its_kind_and_its_data() -> None:
    first, second, third = fed([TOLD])
    assert (first.id, first.event) == ("1", "text.delta")
    assert (second.id, second.data) == ("2", '{"text": "zwei, 数"}')
    assert third == SseFrame("", "", "first\nsecond")


@given(st.lists(st.integers(0, len(TOLD)), max_size=30))
def test_how_the_bytes_are_cut_changes_nothing(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TOLD)]
    assert fed([TOLD[a:b] for a, b in pairwise(edges)]) == fed([TOLD])


def test_a_frame_that_is_cut_off_is_none() -> None:
    assert fed([b"id: 1\nevent: text.delta\ndata: {}\n"]) == []


@pytest.mark.parametrize("text", ["", "a\n\nb", "\x85\u2029", "data: x"])
def test_what_the_server_writes_is_what_is_read(text: str) -> None:
    event = Event(3, "t", "s", 1, 0.0, TextDelta(text))
    [frame] = fed([encode(event.to_json(), event.body.type, event.seq)])
    assert Event.from_json(json.loads(frame.data)) == event
