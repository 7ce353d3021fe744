"""Tests that the server's end of the protocol survives any input."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.wire.framing import FrameError
from agent_kernel.sandbox.host.worker_protocol import (
    Done,
    MediaAnnounced,
    check_size,
    decode,
    encode,
)

PNG = b"\x89PNG\r\n\x1a\n"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_nonsense(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode(body)


@given(st.sampled_from(["done", "media", "variable", "variables", "ready", "refused"]), st.dictionaries(
    st.sampled_from(["id", "status", "value", "error", "mime", "size", "layers", "reason", "encoding", "of",
                     "variables", "exit_code"]), JSON))  # fmt: skip
def test_any_object_is_a_frame_or_nonsense(kind: str, rest: dict[str, object]) -> None:
    try:
        decode(json.dumps(rest | {"type": kind}).encode())
    except FrameError:
        return


def test_a_result_comes_through_as_it_was_sent() -> None:
    body = {"type": "done", "id": 3, "status": "error", "value": None, "error": "é \ud800"}
    assert decode(encode(body)[5:]) == Done(3, "error", None, "é ?")


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"type": "done", "id": true, "status": "success"}', b'{"type": "done", "id": 1, "status": "x"}',
     b'{"type": "media", "id": 1, "mime": "text/html", "size": 3}',
     b'{"type": "media", "id": 1, "mime": "image/png", "size": -3}',
     b'{"type": "variable", "id": 1, "encoding": "pickle", "of": "x", "size": 3}',
     b'{"type": "variables", "id": 1, "variables": [{"name": "x", "type": "int", "shape": [-1]}]}',
     b'{"type": "done", "id": 1, "status": "success", "exit_code": true}'],
)  # fmt: skip
def test_what_a_worker_never_sends_is_nonsense(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode(body)


@pytest.mark.parametrize("data", [b"", PNG, b"<svg>12345"])
def test_a_picture_that_is_not_what_was_announced_is_nonsense(data: bytes) -> None:
    with pytest.raises(FrameError):
        check_size(MediaAnnounced(1, "image/png", 10), data)
    check_size(MediaAnnounced(1, "image/png", 10), PNG + b"12")
