"""Tests framing: frames arrive unchanged in pieces of any size, and a length in a header is checked before it
is used.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.wire.framing import (
    FrameDecoder,
    FrameError,
    decode_head,
    encode_frame,
    encode_head,
    parse_object,
    read_body,
    read_body_async,
)

LIMIT = 100
FRAMES = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"\0"]), st.binary(max_size=LIMIT)), max_size=6)


def read(read_into: Callable[[memoryview], int], kind: bytes = b"") -> bytes | None:
    body = read_body(read_into, LIMIT, kind)
    return None if body is None else bytes(body)


@given(FRAMES, st.data())
def test_frames_are_the_same_however_they_are_cut(frames: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    raw = b"".join(encode_frame(body, kind) for kind, body in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    decoder = FrameDecoder(LIMIT)
    assert [frame for a, b in pairwise([0, *cuts, len(raw)]) for frame in decoder.feed(raw[a:b])] == frames


@given(st.lists(st.binary(max_size=LIMIT), max_size=4), st.sampled_from([b"", b"J"]))
def test_each_reader_reads_what_was_written_and_then_the_end(bodies: list[bytes], kind: bytes) -> None:
    raw = b"".join(encode_head(len(body), kind) + body for body in bodies)
    source = io.BytesIO(raw)

    async def read_all() -> list[bytes]:
        reader = asyncio.StreamReader()
        reader.feed_data(raw)
        reader.feed_eof()
        received = [await read_body_async(reader, LIMIT, kind) for _ in bodies]
        with pytest.raises(asyncio.IncompleteReadError):
            await read_body_async(reader, LIMIT, kind)
        return received

    assert [read(source.readinto, kind) for _ in bodies] == bodies
    assert read(source.readinto, kind) is None
    assert asyncio.run(read_all()) == bodies


def test_a_socket_and_a_pipe_that_deliver_pieces_deliver_whole_frames() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(encode_frame(b"x" * 90, b"J"))
        assert read(lambda view: near.recv_into(view[:7]), b"J") == b"x" * 90
    reading, writing = os.pipe()
    os.write(writing, encode_frame(b"y" * 90))
    assert read(lambda view: os.readv(reading, [view])) == b"y" * 90
    os.close(writing)
    assert read(lambda view: os.readv(reading, [view])) is None
    os.close(reading)


@pytest.mark.parametrize("size", [1, 4, 5, 9])
def test_a_frame_that_the_end_cuts_off_is_dropped(size: int) -> None:
    raw = encode_frame(b"12345", b"J")[:size]
    assert read(io.BytesIO(raw).readinto, b"J") is None
    assert FrameDecoder(LIMIT).feed(raw) == []


@pytest.mark.parametrize("head", [b"X\0\0\0\1", b"B\0\0\0\1", b"J\xff\xff\xff\xff", b"J\0\0\0\x65"])
def test_a_frame_of_another_kind_or_too_long_is_an_error_before_its_body(head: bytes) -> None:
    async def read_async() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(head)
        await read_body_async(reader, LIMIT, b"J")

    with pytest.raises(FrameError):
        decode_head(head, LIMIT, b"J")
    with pytest.raises(FrameError):
        read(io.BytesIO(head).readinto, b"J")
    with pytest.raises(FrameError):
        asyncio.run(read_async())


def test_a_decoder_believes_no_length() -> None:
    with pytest.raises(FrameError, match="a frame of 101 bytes"):
        FrameDecoder(LIMIT).feed(encode_head(LIMIT + 1, b"J"))
    assert FrameDecoder(LIMIT).feed(encode_frame(b"1" * LIMIT, b"J")) == [(b"J", b"1" * LIMIT)]


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_object_are_an_error(body: bytes) -> None:
    with pytest.raises(FrameError):
        parse_object(body)
