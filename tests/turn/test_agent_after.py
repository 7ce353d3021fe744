"""Tests a turn that continues another turn of its session, wherever that turn is in the tree."""

from agent_kernel.core.session import SessionKey
from agent_kernel.core.session_tree import SessionSnapshot
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import TurnRequest
from tests.turns import KEY, agent, stored


async def test_it_stands_behind_that_turn_and_the_later_ones_stay_on_a_branch_of_their_own() -> None:
    it, store, engine = agent([{"text": "answer", "loop": True}])
    first = await it.run("one")
    await it.run("two")
    await it.run(TurnRequest("three", after=first.turn))
    assert [m.text for m in engine.requests[-1].messages if m.role != "system"] == ["one", "answer", "three"]
    assert [m.text for m in await stored(store)] == ["one", "answer", "three", "answer"]
    assert len(await store.branches(KEY)) == 2


async def test_behind_the_last_turn_no_branch_is_made() -> None:
    it, store, _ = agent([{"text": "answer", "loop": True}])
    first = await it.run("one")
    await it.run(TurnRequest("two", after=first.turn))
    assert [m.text for m in await stored(store)] == ["one", "answer", "two", "answer"]
    assert len(await store.branches(KEY)) <= 1


async def test_it_may_stand_behind_a_turn_of_another_branch() -> None:
    it, store, _ = agent([{"text": "answer", "loop": True}])
    first = await it.run("one")
    second = await it.run("two")
    await it.run(TurnRequest("other", after=first.turn))
    await it.run(TurnRequest("three", after=second.turn))
    assert [m.text for m in await stored(store) if m.role == "user"] == ["one", "two", "three"]


async def test_a_turn_that_is_not_there_can_not_be_continued() -> None:
    it, _, engine = agent([{"text": "answer", "loop": True}])
    await it.run("one")
    result = await it.run(TurnRequest("two", after="turn_unknown"))
    assert (result.error and result.error.code, len(engine.requests)) == ("turn_not_found", 1)


async def test_a_turn_that_failed_can_not_be_continued_and_the_one_before_it_can() -> None:
    it, store, engine = agent(
        [{"text": "answer"}, {"text": "half", "fault": "it fell"}, {"text": "answer", "loop": True}]
    )
    first = await it.run("one")
    failed = await it.run("two")
    assert failed.state == "failed"
    result = await it.run(TurnRequest("three", after=failed.turn))
    assert (result.error and result.error.code, len(engine.requests)) == ("invalid_request", 2)
    assert (await it.run(TurnRequest("two", after=first.turn))).state == "committed"
    assert [m.text for m in await stored(store)] == ["one", "answer", "two", "answer"]


async def test_behind_the_newest_turn_the_session_is_not_read_as_a_whole() -> None:
    class Counting(MemoryStore):
        wholes = 0

        async def whole(self, key: SessionKey) -> SessionSnapshot | None:
            self.wholes += 1
            return await super().whole(key)

    store = Counting()
    it, _, engine = agent([{"text": "answer", "loop": True}], store=store)
    last = await it.run("one")
    for number in range(3):
        last = await it.run(TurnRequest(f"more {number}", after=last.turn))
    assert (store.wholes, len(engine.requests)) == (0, 4)
    told = [m.text for m in engine.requests[-1].messages if m.role == "user"]
    assert told == ["one", "more 0", "more 1", "more 2"]
