"""Tests frames on the pipe between server and worker."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from agent_kernel.core.errors import EngineCrashed
from agent_kernel.core.wire import framing
from agent_kernel.engines.local.worker.pipe_framing import (
    MAX_FRAME,
    encode_frame,
    open_pipes,
    read_frames,
)


async def frames_of(data: bytes) -> list[dict[str, object]]:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return [frame async for frame in read_frames(reader)]


async def test_frames_come_out_as_they_went_in() -> None:
    sent: list[dict[str, Any]] = [{"text": "é 😀\n"}, {"n": 1, "list": [None, True]}]

    assert await frames_of(b"".join(encode_frame(body) for body in sent)) == sent


async def test_a_frame_cut_short_by_the_end_is_dropped() -> None:
    whole = encode_frame({"a": 1})

    assert await frames_of(whole + whole[:-1]) == [{"a": 1}]


async def test_text_that_is_no_unicode_still_travels() -> None:
    assert await frames_of(encode_frame({"text": "\ud800"})) == [{"text": "?"}]


async def test_a_length_that_cannot_be_ours_is_an_error() -> None:
    with pytest.raises(EngineCrashed):
        await frames_of((MAX_FRAME + 1).to_bytes(4, "big"))


@pytest.mark.parametrize("body", [b"not json", b"[1]", b"\xff"])
async def test_bytes_that_are_no_object_are_an_error(body: bytes) -> None:
    with pytest.raises(EngineCrashed):
        await frames_of(framing.encode_frame(body))


async def test_pipes_carry_frames_and_their_end() -> None:
    near, far = os.pipe(), os.pipe()
    _, writer, reading = await open_pipes(near[0], far[1])
    reader, other, other_reading = await open_pipes(far[0], near[1])

    writer.write(encode_frame({"a": 1}))
    writer.close()

    assert [frame async for frame in read_frames(reader)] == [{"a": 1}]
    other.close()
    reading.close()
    other_reading.close()
    await asyncio.sleep(0)
