"""Tests responses that end while a client requests them."""

from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.sessions.store.memory import MemoryStore
from jupyter_ext.api.responses.live_responses import LiveResponses
from jupyter_ext.api.responses.response_object import ResponseFacts, response_id
from jupyter_ext.api.responses.store import ResponseOwner, StoredResponse

ME = ResponseOwner("ns", "user")
TOLD = [b"event: a\ndata: 0\n\n", b"event: b\ndata: 1\n\n", b"event: c\ndata: 2\n\n", b"data: [DONE]\n\n"]


async def read_too_early(frames: list[bytes]) -> tuple[LiveResponses, StoredResponse]:
    """Return a response that was read before it ended, and has ended since."""
    nobody: Any = None
    responses = LiveResponses(MemoryStore(), nobody, nobody, nobody)
    stored = StoredResponse(ME, "turn", ResponseFacts(response_id("ns", "turn"), "m", "s"), [])
    await responses.store.add(stored)
    await responses.store.finish(stored, {"status": "completed", "output": []}, frames)
    return responses, stored


@pytest.mark.parametrize("frames", [TOLD, []], ids=["with its stream", "whose stream was too long"])
async def test_one_that_ended_meanwhile_stays_as_it_was_told(frames: list[bytes]) -> None:
    responses, stored = await read_too_early(frames)
    for body in (await responses.resource(stored), await responses.await_end(stored)):
        assert body["status"] == "completed"
    told = [frame async for frame in responses.stream(stored, 0)]
    assert told == frames[1:] if frames else told
    kept = await responses.store.get(ME, stored.id)
    assert kept is not None
    assert (kept.body or {})["status"] == "completed"
    assert await responses.store.frames(ME, stored.id) == frames
    await responses.aclose()
