"""Tests turns of another server: their events arrive complete and in order, even if messages are lost, and only for
users with access.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest, NotFound, ServerUnreachable, StoreError
from agent_kernel.core.events import CallFinished, CallOutput, Event, Queued, TextDelta, TurnFinished
from agent_kernel.core.settings import Settings
from agent_kernel.sessions.log.message_bus import BusMessage, Post, Topic
from agent_kernel.turn.server_runtime import Runtime
from jupyter_ext.turns import event_publisher, remote_turns, server_link
from jupyter_ext.turns.event_log import EventLog
from jupyter_ext.turns.event_publisher import EventBatch, EventPublisher
from jupyter_ext.turns.remote_turns import CopiedLog, RemoteTurns
from jupyter_ext.turns.server_link import ServerLink
from jupyter_ext.turns.turn_control import TurnControl
from tests.jupyter_ext.quotas.test_limits import Server, ended
from tests.narrowing import instance_of, not_none
from tests.sessions.log.memory_bus import MemoryBus
from tests.turns import text_of
from tests.waiting import until

SLOW = {"text": "word " * 40, "deltas": 40, "delay": 0.01, "when": "slow", "loop": True}
HANG = {"text": "It begins", "fault": "hang", "when": "hang", "loop": True}


class WeakBus(MemoryBus):
    """A bus that loses messages: ``drops`` decides which ones; while ``is_away`` is True, every call fails."""

    def __init__(self) -> None:
        super().__init__()
        self.drops: Callable[[Post], bool] = lambda post: False
        self.is_away = False

    def send(self, posts: Sequence[Post]) -> None:
        self._check()
        super().send([post for post in posts if not self.drops(post)])

    def receive(self, after: Mapping[Topic, int], wait_s: float) -> Sequence[BusMessage]:
        self._check()
        found = super().receive(after, min(wait_s, 0.05))
        self._check()
        return found

    def _check(self) -> None:
        if self.is_away:
            raise StoreError("the database is away")


@dataclass
class Pair:
    """A server that runs turns, and another one that follows them. Both use the store of the first."""

    one: Server
    bus: WeakBus
    link: ServerLink
    there: RemoteTurns
    publisher: EventPublisher

    def die(self) -> None:
        """Stop publishing and answering on the first server."""
        self.bus.drops = lambda post: post.topic[1].startswith(("events/", "questions"))


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with Server(tmp_path, (SLOW, HANG, {"text": "Hello.", "loop": True})) as one:
        bus = WeakBus()
        links = [ServerLink(bus), ServerLink(bus)]
        publisher, runtime = EventPublisher(links[0]), one.runtime
        here = RemoteTurns(runtime.store, links[0])
        links[0].answer = TurnControl(
            one.turns, here, runtime.approvals, runtime.client_calls, publisher
        ).answer_question
        there = RemoteTurns(runtime.store, links[1])
        for link in links:
            link.start()
        try:
            yield Pair(one, bus, links[1], there, publisher)
        finally:
            bus.is_away = False
            await one.turns.aclose()
            await publisher.aclose()
            for turns, link in zip((here, there), links, strict=True):
                await turns.aclose()
                await link.aclose()


async def read(log: EventLog, after: int = 0) -> list[Event]:
    async with asyncio.timeout(20):
        return [event async for event in log.follow(after)]


async def test_a_copy_has_the_same_events_under_the_same_numbers(pair: Pair) -> None:
    turn = await pair.one.start("slow")
    copy = not_none(await pair.there.find("ada", turn.id))
    assert copy is await pair.there.find("ada", turn.id)
    assert (copy.id, copy.spec.key, copy.running) == (turn.id, turn.spec.key, True)
    copied = await read(copy.log)
    assert [event.to_json() for event in copied] == [
        event.to_json() | {"time": round(event.time, 4)} for event in await read(turn.log)
    ]
    assert text_of(copied) == SLOW["text"]
    assert await read(copy.log, 3) == copied[3:]


async def test_a_turn_of_another_namespace_or_of_a_private_session_is_not_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIND_S", "OPEN_FIND_S"):
        monkeypatch.setattr(remote_turns, name, 0.3)
    turn = await pair.one.start("hang")
    private = await pair.one.start("hang", session="private:s")
    assert await pair.there.find("bob", turn.id) is None
    assert await pair.there.find("ada", private.id) is None
    assert await pair.link.ask("bob", turn.id, "cancel", {"reason": ""}, 0.3) is None
    assert await pair.link.ask("ada", private.id, "cancel", {"reason": ""}, 0.3) is None
    assert turn.running
    assert private.running


async def test_a_turn_that_waits_in_the_queue_of_its_server_is_found_before_the_store_has_it(pair: Pair) -> None:
    await pair.one.start("hang", session="s")
    waiting = await pair.one.start("hello", session="s")
    copy = not_none(await pair.there.find("ada", waiting.id))
    assert [type(event.body) for event in copy.log.since(0)] == [Queued]
    assert await pair.one.turns.cancel(copy, "enough") == "cancelled"


async def test_messages_that_no_server_sent_stop_nothing(pair: Pair) -> None:
    turn = await pair.one.start("hang")
    copy = not_none(await pair.there.find("ada", turn.id))
    for body in (b"[]", b"{", b'{"after": 0}', b'{"from": "x", "id": "y"}', b"\xff"):
        pair.bus.send([Post(("", "questions"), body, 1), Post(("ada", f"events/{turn.id}"), body, 1)])
    assert await not_none(copy.owner).command("cancel", {"reason": "enough"}) == {"state": "cancelled"}
    assert isinstance((await read(copy.log))[-1].body, TurnFinished)


async def test_the_errors_of_the_other_server_are_those_of_the_command(pair: Pair) -> None:
    turn = await pair.one.start("hang")
    copy = not_none(await pair.there.find("ada", turn.id))
    assert copy.owner is not None
    with pytest.raises(NotFound, match="No client can claim"):
        await copy.owner.command("claim", {"call": "none", "client": "c"})
    with pytest.raises(InvalidRequest, match="knows no command 'dance'"):
        await copy.owner.command("dance", {})
    assert await pair.one.turns.cancel(copy, "enough") == "cancelled"
    assert (await ended(turn)).reason == "enough"


async def test_events_that_were_lost_on_the_way_are_sent_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_publisher, "RETRY_S", 0.05)
    draw = random.Random(3)
    pair.bus.drops = lambda post: post.topic[1].startswith("events/") and draw.random() < 0.3
    turn = await pair.one.start("slow")
    copy = await pair.there.find("ada", turn.id)
    while copy is None:
        copy = await pair.there.find("ada", turn.id)
    await until(lambda: not turn.running)
    pair.bus.drops = lambda post: False
    assert text_of(await read(copy.log)) == SLOW["text"]


async def test_the_last_events_are_sent_again_if_they_were_lost(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_publisher, "RETRY_S", 0.05)
    monkeypatch.setattr(remote_turns, "RENEW_S", 0.1)
    turn = await pair.one.start("slow")
    copy = not_none(await pair.there.find("ada", turn.id))
    pair.bus.drops = lambda post: post.topic[1].startswith("events/")
    await ended(turn)
    await asyncio.sleep(0.1)
    assert copy.running
    pair.bus.drops = lambda post: False
    assert text_of(await read(copy.log)) == SLOW["text"]


async def test_a_database_that_was_away_delays_the_events_only(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (event_publisher, server_link):
        monkeypatch.setattr(module, "RETRY_S", 0.05)
    turn = await pair.one.start("slow")
    copy = not_none(await pair.there.find("ada", turn.id))
    pair.bus.is_away = True
    with pytest.raises(StoreError, match="away"):
        await not_none(copy.owner).command("cancel", {"reason": ""})
    await ended(turn)
    pair.bus.is_away = False
    assert text_of(await read(copy.log)) == SLOW["text"]


async def test_a_turn_whose_server_died_ends_as_the_store_says_and_keeps_its_numbers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RENEW_S", "OPEN_FIND_S"):
        monkeypatch.setattr(remote_turns, name, 0.1)
    turn = await pair.one.start("hang", session="s")
    copy = not_none(await pair.there.find("ada", turn.id))
    await until(lambda: copy.log.head >= 3)
    before = [*copy.log.since(0)]
    pair.die()
    await asyncio.sleep(0.5)
    assert copy.running, "the lease is still valid"
    monkeypatch.setattr(remote_turns, "COMMAND_S", 0.1)
    with pytest.raises(ServerUnreachable):
        await not_none(copy.owner).command("cancel", {"reason": ""})
    await pair.one.turns.cancel(turn, "as if its lease had run out")
    events = await read(copy.log)
    assert events[:-1] == before
    assert events[-1].body.type == "turn.finished"
    unpublished = before[-1].seq + 5
    assert await read(copy.log, unpublished) == events[-1:], "a client had received more than the copy has"


async def test_a_server_that_first_looks_at_a_turn_after_its_server_died_knows_its_end_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_turns, "FIND_S", 0.2)
    turn = await pair.one.start("hang", session="s")
    assert await pair.there.find("ada", turn.id) is not None, "so the events are published"
    await asyncio.sleep(0.1)
    pair.die()
    await pair.one.turns.cancel(turn, "as if its lease had run out")
    link = ServerLink(pair.bus)
    link.start()
    third = RemoteTurns(pair.one.runtime.store, link)
    try:
        copy = not_none(await third.find("ada", turn.id))
        assert not copy.running
        assert text_of(await read(copy.log)) == HANG["text"]
    finally:
        await third.aclose()
        await link.aclose()


async def test_a_server_that_stops_publishes_the_end_of_its_turns(pair: Pair) -> None:
    turn = await pair.one.start("hang")
    copy = not_none(await pair.there.find("ada", turn.id))
    await pair.one.turns.aclose()
    await pair.publisher.aclose()
    end = instance_of(TurnFinished, (await read(copy.log))[-1].body)
    assert (end.state, end.reason) == ("cancelled", "the server was stopped")


async def test_a_copy_without_readers_is_given_up_and_its_server_publishes_nothing_more(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_turns, "RENEW_S", 0.05)
    monkeypatch.setattr(remote_turns, "IDLE_S", 0.1)
    monkeypatch.setattr(event_publisher, "WANTED_S", 0.2)
    turn = await pair.one.start("hang")
    copy = await pair.there.find("ada", turn.id)
    await asyncio.sleep(1)
    sent: list[Topic] = []

    def note(post: Post) -> bool:
        sent.append(post.topic)
        return False

    pair.bus.drops = note
    turn.log.append(TextDelta("more"))
    await asyncio.sleep(0.3)
    assert not sent
    pair.bus.drops = lambda post: False
    again = not_none(await pair.there.find("ada", turn.id))
    assert again is not copy
    assert text_of([*again.log.since(0)]) == "It beginsmore"


async def test_a_server_alone_with_its_store_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text("[]")
    runtime = Runtime.build(Settings(engine="scripted", script=str(tmp_path / "script.json"), data_dir=tmp_path))
    assert not hasattr(runtime.store, "bus")
    assert await RemoteTurns(runtime.store, None).find("ada", "turn_1") is None


async def test_a_copy_of_a_log_that_joins_its_events_gives_every_reader_the_rest_of_the_text() -> None:
    draw = random.Random(1)
    log, copied = EventLog("t", "s", max_events=20), CopiedLog("t", "s")
    text, ends = "", {0: 0}
    for number in range(1, 200):
        piece = f"{number} "
        log.append(TextDelta(piece))
        text += piece
        ends[log.head] = len(text)
        if draw.random() < 0.1:
            batch = EventBatch.decode(EventBatch(copied.head, log.entries_after(copied.head), {}).encode())
            for entry in batch.entries:
                copied.copy(entry)
            after = draw.choice([*ends])
            if after <= copied.head:
                assert text_of([*copied.since(after)]) == text[ends[after] : ends[copied.head]]
                assert text_of([*log.since(after)]) == text[ends[after] :]
    log.append(CallOutput("c", "out"))
    log.append(CallFinished("c", "python", "success", "out", 0.1, ({"mime": "image/png", "data": "AAAA"},)))
    log.append(TurnFinished("committed", "", 1, {}))
    for entry in EventBatch.decode(EventBatch(copied.head, log.entries_after(copied.head), {}).encode()).entries:
        copied.copy(entry)
    assert copied.finished == log.finished
    assert copied.head == log.head
