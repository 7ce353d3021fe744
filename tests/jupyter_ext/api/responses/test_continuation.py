"""Tests that the responses and items that a request refers to are read once, within limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.store.memory import MemoryStore
from jupyter_ext.api.dialects.openai_content import MAX_TEXT
from jupyter_ext.api.responses import continuation
from jupyter_ext.api.responses.input_items import AnyItem, ReferenceItem, items_of
from jupyter_ext.api.responses.live_responses import LiveResponses
from jupyter_ext.api.responses.response_object import ResponseFacts, response_id
from jupyter_ext.api.responses.store import ResponseOwner, ResponseStore, StoredResponse

ME = ResponseOwner("ns", "user")


class Reads:
    """Counts how often responses and their items are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.responses = self.items = 0
        get = ResponseStore.get

        async def got(store: ResponseStore, owner: ResponseOwner, id: str) -> StoredResponse | None:
            self.responses += 1
            return await get(store, owner, id)

        def parsed(bodies: Sequence[Any]) -> list[AnyItem]:
            self.items += len(bodies)
            return items_of(bodies)

        monkeypatch.setattr(ResponseStore, "get", got)
        monkeypatch.setattr(continuation, "items_of", parsed)


async def responses_with(*texts: str) -> tuple[LiveResponses, list[str]]:
    """Return two responses and the ids of messages with these texts, which alternate between the two."""
    nobody: Any = None
    responses = LiveResponses(MemoryStore(), nobody, nobody, nobody)
    ids = []
    await responses.sessions.create(SessionKey("ns", "s"))
    for turn in ("t0", "t1"):
        facts = ResponseFacts(response_id("ns", turn), "m", "s")
        said = texts[int(turn[1]) :: 2]
        items = [
            {"type": "message", "role": "user", "id": f"msg_{facts.stem}_i{at}", "content": text}
            for at, text in enumerate(said)
        ]
        ids += [item["id"] for item in items]
        await responses.store.add(StoredResponse(ME, turn, facts, items))
    return responses, ids


async def test_each_response_and_each_item_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    responses, ids = await responses_with("a", "b", "c", "d")
    assert len(ids) == 4
    references: list[AnyItem] = [ReferenceItem(id=ids[at % 4]) for at in range(400)]
    reads = Reads(monkeypatch)
    found = await continuation._resolve(responses, ME, references)
    assert [item.content for item in found] == ["a", "c", "b", "d"] * 100  # type: ignore[union-attr]
    assert (reads.responses, reads.items) == (2, 4)


async def test_what_is_too_much_is_refused_before_the_rest_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    responses, ids = await responses_with("x" * (MAX_TEXT // 4), "b")
    references: list[AnyItem] = [*[ReferenceItem(id=ids[0])] * 4_000, ReferenceItem(id=ids[1])]
    reads = Reads(monkeypatch)
    with pytest.raises(InvalidRequest, match="characters together"):
        await continuation._resolve(responses, ME, references)
    assert (reads.responses, reads.items) == (1, 1)
    assert len(await continuation._resolve(responses, ME, references[-4:])) == 4


async def test_an_item_that_is_not_there_is_named() -> None:
    responses, ids = await responses_with("a")
    gone = ids[0].replace("_i0", "_i9")
    for id in (gone, "msg_unknown"):
        with pytest.raises(InvalidRequest, match=id):
            await continuation._resolve(responses, ME, [ReferenceItem(id=ids[0]), ReferenceItem(id=id)])
