"""What is kept of responses, and for how long."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent_kernel.core.session import new_id
from jupyter_ext.api.responses.response_object import ResponseFacts, response_id
from jupyter_ext.api.responses.store import KEEP_S, ResponseOwner, ResponseStore, StoredResponse

ME, OTHER = ResponseOwner("ns", "user"), ResponseOwner("ns", "kernel 1")
ITEM = {"id": "msg_1", "type": "message", "role": "user", "content": []}


def response(owner: ResponseOwner = ME, *, session: str = "s1", created: float | None = None) -> StoredResponse:
    facts = ResponseFacts(
        response_id("ns", new_id("turn")), "m", session, created=created or time.time(), echo={"store": True}
    )
    return StoredResponse(owner, "turn-1", facts, [ITEM])


@pytest.fixture(params=["file", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "responses.db" if request.param == "file" else None


async def test_one_is_found_by_its_owner_only(path: Path | None) -> None:
    store, made = ResponseStore(path), response()
    await store.add(made)
    assert await store.get(ME, made.id) == made
    assert await store.get(OTHER, made.id) is None
    assert await store.get(ResponseOwner("other", "user"), made.id) is None
    assert await store.delete(OTHER, made.id) is False
    assert await store.delete(ME, made.id) is True
    assert await store.get(ME, made.id) is None
    await store.aclose()


async def test_its_end_and_its_stream_are_there_again(path: Path | None) -> None:
    store, made = ResponseStore(path), response()
    await store.add(made)
    assert await store.frames(ME, made.id) == []
    frames = [b"event: a\ndata: 1\n\n", b"event: b\ndata: 2\n\n"]
    await store.finish(made, {"status": "completed", "output": [{"id": "msg_2"}]}, frames)
    found = await store.get(ME, made.id)
    assert found is not None
    assert (found.body or {})["status"] == "completed"
    assert found.items(["msg_1", "msg_2", "msg_3"]) == {"msg_1": ITEM, "msg_2": {"id": "msg_2"}}
    assert await store.frames(ME, made.id) == frames
    assert await store.frames(OTHER, made.id) == []
    await store.aclose()


async def test_one_that_was_deleted_meanwhile_does_not_come_back(path: Path | None) -> None:
    store, made = ResponseStore(path), response()
    await store.add(made)
    await store.delete(ME, made.id)
    await store.finish(made, {"status": "completed", "output": []}, [])
    assert await store.get(ME, made.id) is None
    await store.aclose()


async def test_the_oldest_go_where_there_are_too_many(path: Path | None) -> None:
    store = ResponseStore(path, most=3)
    now = time.time()
    made = [response(created=now - 10 + n) for n in range(5)]
    elsewhere = response(ResponseOwner("other", "user"), created=now - 100)
    for one in [elsewhere, *made]:
        await store.add(one)
    assert [await store.get(ME, one.id) is not None for one in made] == [False, False, True, True, True]
    assert await store.get(elsewhere.owner, elsewhere.id) is not None
    await store.aclose()


async def test_large_ones_make_room(path: Path | None) -> None:
    store = ResponseStore(path, most_bytes=60_000)
    first, second = response(created=time.time() - 5), response()
    await store.add(first)
    await store.finish(first, {"text": "x" * 50_000, "output": []}, [])
    await store.add(replace(second, input=[ITEM | {"text": "x" * 20_000}]))
    assert await store.get(ME, first.id) is None
    assert await store.get(ME, second.id) is not None
    await store.aclose()


async def test_one_that_ends_again_counts_once(path: Path | None) -> None:
    store = ResponseStore(path, most_bytes=120_000)
    first = response(created=time.time() - 5)
    await store.add(first)
    for _ in range(5):
        await store.finish(first, {"text": "x" * 50_000, "output": []}, [])
    await store.add(response())
    assert await store.get(ME, first.id) is not None
    await store.aclose()


async def test_what_was_told_is_not_made_again(path: Path | None) -> None:
    store, made = ResponseStore(path), response()
    await store.add(made)
    await store.finish(made, {"n": 1, "output": []}, [b"made\n\n"], again=True)
    await store.finish(made, {"n": 2, "output": []}, [b"told\n\n"])
    await store.finish(made, {"n": 3, "output": []}, [b"made\n\n"], again=True)
    found = await store.get(ME, made.id)
    assert found is not None
    assert (found.body or {})["n"] == 2
    assert await store.frames(ME, made.id) == [b"told\n\n"]
    await store.aclose()


async def test_whether_a_session_has_any(path: Path | None) -> None:
    store, made = ResponseStore(path), response()
    await store.add(made)
    assert await store.any_of(made.key)
    assert not await store.any_of(response(session="s2").key)
    assert not await store.any_of(response(ResponseOwner("other", "user")).key)
    await store.delete(ME, made.id)
    assert not await store.any_of(made.key)
    await store.aclose()


async def test_old_ones_go(path: Path | None) -> None:
    store, old = ResponseStore(path), response(created=time.time() - KEEP_S - 1)
    await store.add(old)
    await store.add(response())
    assert await store.get(ME, old.id) is None
    await store.aclose()


async def test_with_a_session_go_all_of_its_responses(path: Path | None) -> None:
    store = ResponseStore(path)
    gone, stays = response(), response(session="s2")
    for one in (gone, stays):
        await store.add(one)
    await store.forget(gone.key)
    assert await store.get(ME, gone.id) is None
    assert await store.get(ME, stays.id) is not None
    await store.aclose()


async def test_they_outlive_the_process_but_for_those_of_private_sessions(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    store, kept, private = ResponseStore(path), response(), response(session="private:session-words-nobody-reads")
    for one in (kept, private):
        await store.add(one)
    assert await store.get(ME, private.id) == private
    await store.aclose()
    assert b"words-nobody-reads" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    again = ResponseStore(path)
    assert await again.get(ME, kept.id) == kept
    assert await again.get(ME, private.id) is None
    await again.aclose()


async def test_what_was_deleted_can_not_be_read_in_the_file(tmp_path: Path) -> None:
    store, made = ResponseStore(tmp_path / "responses.db"), response()
    await store.add(replace(made, input=[{"id": "i", "text": "the words that go"}]))
    await store.delete(ME, made.id)
    await store.aclose()
    assert b"the words that go" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
