"""Tests of reading a history: the newest items, calls together with their results, and media by hash."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent_kernel.core.errors import InvalidRequest, TurnNotFound
from agent_kernel.core.messages import Media, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import Owner, SessionKey
from agent_kernel.sessions.contract_tests.fixtures import KEY, PNG, Talk, assert_raises, calls, result


async def test_latest_gives_the_newest_in_order(store: SessionStore, talk: Talk) -> None:
    await talk.say(*[user(str(n)) for n in range(6)])
    assert await talk.texts() == list("012345")
    assert await talk.texts(2) == ["4", "5"]
    assert await talk.texts(10) == list("012345")
    assert await talk.texts(0) == []
    for method in (store.latest, store.turns):
        await assert_raises(InvalidRequest, method(KEY, -1))


async def test_a_limit_never_starts_inside_a_pair(store: SessionStore, talk: Talk) -> None:
    await talk.say(user("add"), calls("a", "b"), result("a"), result("b"), assistant("4"))
    assert [len(await store.latest(KEY, limit)) for limit in range(6)] == [0, 1, 1, 1, 4, 5]


async def test_items_of_failed_turns_are_left_out_on_request(talk: Talk) -> None:
    await talk.say(user("kept"))
    await talk.close("cancelled")
    talk = await talk.again("t2")
    await talk.say(user("failed"))
    assert await talk.texts(failed=False) == ["kept", "failed"]
    await talk.close("failed")
    talk = await talk.again("t3")
    await talk.say(user("open"))
    assert await talk.texts() == ["kept", "failed", "open"]
    assert await talk.texts(2, failed=False) == ["kept", "open"]


async def test_turns_come_newest_last(store: SessionStore, talk: Talk) -> None:
    for id in ("t2", "t3"):
        await talk.close()
        talk = await talk.again(id)
    assert [turn.id for turn in await store.turns(KEY)] == ["t1", "t2", "t3"]
    assert [turn.id for turn in await store.turns(KEY, 2)] == ["t2", "t3"]
    assert await store.turns(KEY, 0) == []


async def test_turns_before_one_are_those_that_its_branch_shows_before_it(store: SessionStore, talk: Talk) -> None:
    for id in ("t2", "t3", "t4"):
        await talk.say(user(talk.turn.id))
        await talk.close()
        talk = await talk.again(id)
    await talk.say(user("t4"))
    await talk.close()

    async def before(turn: str, limit: int | None = None, branch: str | None = None) -> list[str]:
        return [earlier.id for earlier in await store.turns(KEY, limit, branch=branch, before=turn)]

    assert await before("t4") == ["t1", "t2", "t3"]
    assert await before("t4", 2) == ["t2", "t3"]
    assert await before("t4", 0) == await before("t1") == []
    await store.branch(KEY, before="t3", name="other")
    talk = await talk.again("t5")
    await talk.say(user("t5"))
    await talk.close()
    assert await before("t5") == ["t1", "t2"]
    assert await before("t5", 1) == ["t2"]
    assert await before("t2", 5) == ["t1"]
    assert await before("t4", 2, "main") == ["t2", "t3"]
    for turn, branch in (("t3", None), ("none", None), ("t5", "main")):
        await assert_raises(TurnNotFound, before(turn, 1, branch))
    await assert_raises(TurnNotFound, store.turns(SessionKey("local", "no such session"), before="t1"))


async def test_media_come_without_data_and_by_hash(store: SessionStore, talk: Talk) -> None:
    [item] = await talk.say(user("look", [PNG]))
    [read] = await store.latest(KEY)
    assert item == read
    assert read.message.media == (PNG,)
    assert read.message.media[0].data is None
    assert await store.blob(KEY, PNG.hash) == PNG.data
    assert await store.blob(KEY, "0" * 64) is None


async def test_a_blob_goes_with_the_last_session_that_names_it(store: SessionStore, owner: Owner) -> None:
    first, second = await Talk.begin(store, owner, id="a"), await Talk.begin(store, owner, id="b")
    for talk in (first, second):
        await talk.say(user("look", [PNG]), user("again", [PNG]))
        await talk.close()
    await store.delete(first.key)
    assert await store.blob(first.key, PNG.hash) is None
    assert await store.blob(second.key, PNG.hash) == PNG.data
    await store.clear(second.key)
    assert await store.blob(second.key, PNG.hash) is None


async def test_naming_a_hash_opens_no_other_session(store: SessionStore, owner: Owner) -> None:
    mine, other = await Talk.begin(store, owner, id="a"), await Talk.begin(store, owner, id="b")
    await mine.say(user("look", [PNG]))
    named = replace(PNG, data=None)
    await assert_raises(InvalidRequest, other.say(user("mine now", [named])))
    assert await store.blob(other.key, PNG.hash) is None
    await mine.say(user("it is here already", [named]))


@pytest.mark.parametrize("wrong", [replace(PNG, data=b"other"), replace(PNG, size=3), replace(PNG, hash="0" * 64)])
async def test_bytes_must_match_their_hash(talk: Talk, wrong: Media) -> None:
    await assert_raises(InvalidRequest, talk.say(user("look", [wrong])))
    assert await talk.head() == 0


async def test_a_refused_batch_leaves_no_blob(talk: Talk) -> None:
    await assert_raises(InvalidRequest, talk.say(user("look", [PNG]), result("none")))
    await assert_raises(InvalidRequest, talk.say(user("by hash", [replace(PNG, data=None)])))
