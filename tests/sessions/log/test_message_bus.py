"""The contract of a MessageBus and of shared values, which every bus between servers of a shared store keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from typing import Any, get_type_hints

import pytest

from agent_kernel.sessions.log.encrypted_log import EncryptedBus
from agent_kernel.sessions.log.log_store import LogStore
from agent_kernel.sessions.log.message_bus import (
    EventCount,
    EventCounter,
    MessageBus,
    Post,
    SharedValue,
    Topic,
    change_value,
)
from agent_kernel.sessions.store import store_url
from jupyter_ext.auth.callers import Caller
from jupyter_ext.turns.idempotency import read_key
from jupyter_ext.turns.idempotency_rows import SharedRows
from jupyter_ext.turns.server_link import ServerLink
from tests.narrowing import not_none
from tests.sessions.log.memory_bus import MemoryBus

ONE, TWO = ("ann", "one"), ("ann", "two")
KEY = bytes(range(32))
REAL = [pytest.param(name, marks=pytest.mark.stores) for name in ("encrypted", "postgresql", "redis")]
WITH_BUS = pytest.mark.parametrize("make_log", ["memory", *REAL], indirect=True)


def post(body: bytes, topic: Topic = ONE, keep_s: float = 60.0, *, replaces: bool = False) -> Post:
    return Post(topic, body, keep_s, replaces)


def bodies(bus: MessageBus, topic: Topic = ONE, after: int = 0) -> list[bytes]:
    return [message.body for message in bus.receive({topic: after}, 0.01)]


@pytest.fixture
def buses(log: LogStore, again: Callable[[], LogStore]) -> Iterator[tuple[MessageBus, MessageBus]]:
    """Yield the buses of two servers."""
    first, second = log.bus(), again().bus()
    assert first is not None
    assert second is not None
    yield first, second
    first.close()
    second.close()


@WITH_BUS
def test_messages_of_a_topic_are_received_in_their_order_and_only_behind_a_position(
    buses: tuple[MessageBus, MessageBus],
) -> None:
    sender, receiver = buses
    sender.send([post(b"1"), post(b"other", TWO), post(b"2\0\xff")])
    sender.send([post(b"3"), post(b"", ("bob", "one"))])
    first, second, third = receiver.receive({ONE: 0}, 1)
    assert [first.body, second.body, third.body] == [b"1", b"2\0\xff", b"3"]
    assert 0 < first.position < second.position < third.position
    assert bodies(receiver, after=second.position) == [b"3"]
    assert bodies(receiver, after=third.position) == []
    assert {message.topic for message in receiver.receive({ONE: 0, TWO: 0}, 1)} == {ONE, TWO}
    assert bodies(receiver, ("ann", "none")) == []


@WITH_BUS
def test_a_receiver_that_waits_gets_a_message_at_once(buses: tuple[MessageBus, MessageBus]) -> None:
    sender, receiver = buses
    sender.send([post(b"before", TWO)])
    assert bodies(receiver) == []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receiver.receive, {ONE: 0}, 20.0)
        time.sleep(0.2)
        sender.send([post(b"for others", TWO)])
        assert not waiting.done()
        began = time.monotonic()
        sender.send([post(b"now")])
        assert [message.body for message in waiting.result(30)] == [b"now"]
    assert time.monotonic() - began < 15, "it did not wait for the end of its 20 s"


@WITH_BUS
def test_a_message_replaces_the_earlier_ones_and_is_deleted_in_its_time(buses: tuple[MessageBus, MessageBus]) -> None:
    sender, receiver = buses
    sender.send([post(b"old"), post(b"older", TWO, 0.3)])
    [old] = receiver.receive({ONE: 0}, 1)
    sender.send([post(b"new", replaces=True), post(b"newer")])
    assert bodies(receiver) == bodies(receiver, after=old.position) == [b"new", b"newer"]
    time.sleep(0.4)
    assert bodies(receiver, TWO) == []
    assert bodies(receiver) == [b"new", b"newer"]


@WITH_BUS
def test_a_large_message_arrives(buses: tuple[MessageBus, MessageBus]) -> None:
    sender, receiver = buses
    sender.send([post(bytes(3 << 20))])
    assert bodies(receiver) == [bytes(3 << 20)]


@WITH_BUS
def test_a_receiver_misses_no_message_of_senders_that_write_at_the_same_time(
    buses: tuple[MessageBus, MessageBus], again: Callable[[], LogStore]
) -> None:
    senders = [bus for _ in range(4) if (bus := again().bus()) is not None]

    def send(number: int) -> None:
        for count in range(40):
            senders[number].send([post(b"%d %d" % (number, count))])

    got: list[bytes] = []
    with ThreadPoolExecutor(4) as pool:
        sending = [pool.submit(send, number) for number in range(4)]
        seen, until = 0, time.monotonic() + 120
        while len(got) < 160 and time.monotonic() < until:
            for message in buses[0].receive({ONE: seen}, 0.5):
                seen = message.position
                got.append(message.body)
        for one in sending:
            one.result()
    for number in range(4):
        assert [body for body in got if body.startswith(b"%d " % number)] == [
            b"%d %d" % (number, count) for count in range(40)
        ]
    for bus in senders:
        bus.close()


@WITH_BUS
def test_events_of_twenty_turns_arrive_in_time(buses: tuple[MessageBus, MessageBus]) -> None:
    """50 batches a second of each turn, for a second; ``pytest -s`` shows how long they took."""
    sender, receiver = buses
    topics = [("ann", f"turn{number}") for number in range(20)]
    took: list[float] = []
    got: dict[Topic, list[int]] = {topic: [] for topic in topics}

    def receive() -> None:
        seen = dict.fromkeys(topics, 0)
        while any(not numbers or numbers[-1] < 49 for numbers in got.values()):
            for message in receiver.receive(seen, 5):
                seen[message.topic] = message.position
                number, sent = message.body.split(b" ")[:2]
                got[message.topic].append(int(number))
                took.append(time.monotonic() - float(sent))

    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(receive)
        for number in range(50):
            began = time.monotonic()
            body = b"%d %.6f %s" % (number, began, bytes(300))
            sender.send([post(body, topic) for topic in topics])
            time.sleep(max(0.0, 0.02 - (time.monotonic() - began)))
        receiving.result(60)
    assert all(numbers == [*range(50)] for numbers in got.values())
    took.sort()
    median, most = took[len(took) // 2], took[-len(took) // 20]
    print(f"{len(took)} batches: median {median * 1e3:.1f} ms, 95 % {most * 1e3:.1f} ms")
    assert median < 0.3


def test_a_message_that_was_changed_or_moved_in_the_database_has_no_body() -> None:
    kept = MemoryBus()
    bus = EncryptedBus(kept, KEY)
    bus.send([post(b"the-answer")])
    [sealed] = kept.receive({ONE: 0}, 0)
    assert b"the-answer" not in sealed.body
    kept.send([post(sealed.body, TWO), post(sealed.body[:-1] + b"x"), post(b"plain")])
    assert bodies(bus) == [b"the-answer", b"", b""]
    assert bodies(bus, TWO) == [b""]


@WITH_BUS
def test_a_value_is_replaced_only_by_who_knows_its_version(buses: tuple[MessageBus, MessageBus]) -> None:
    log, other = buses
    first, second = SharedValue("1", b"a"), SharedValue("2", b"b\0")
    assert log.get_value("ann", "k") is None
    assert log.swap_value("ann", "k", "", first, 60)
    assert log.swap_value("ann", "k", "", first, 60), "the reply was lost"
    assert not other.swap_value("ann", "k", "", second, 60)
    assert not other.swap_value("ann", "k", "3", second, 60)
    assert other.swap_value("ann", "k", "1", second, 60)
    found = not_none(log.get_value("ann", "k"))
    assert 0 <= found.age_s < 60
    assert replace(found, age_s=0) == second
    assert log.get_value("bob", "k") is None
    assert not log.swap_value("ann", "k", "1", None, 60)
    assert log.swap_value("ann", "k", "2", None, 60)
    assert log.swap_value("ann", "k", "2", None, 60), "the reply was lost"
    assert other.get_value("ann", "k") is None


@WITH_BUS
def test_a_value_is_gone_after_its_time(buses: tuple[MessageBus, MessageBus]) -> None:
    log, _ = buses
    value = SharedValue("1", b"a")
    assert log.swap_value("ann", "k", "", value, 0.2)
    time.sleep(0.3)
    assert log.get_value("ann", "k") is None
    assert not log.swap_value("ann", "k", "1", value, 60)
    assert log.swap_value("ann", "k", "", SharedValue("2", b"b"), 60)


async def test_servers_of_a_store_share_which_turn_answers_a_key() -> None:
    database = MemoryBus()
    links = [ServerLink(EncryptedBus(database, KEY)) for _ in range(2)]
    one, two = (SharedRows(link, lambda: 1000.0) for link in links)
    key = not_none(read_key(Caller("ann"), "k", "/v1/turns", b"{}"))
    assert await one.claim(key, "turn1") is None
    held = not_none(await two.claim(key, "turn2"))
    assert (held.turn, held.session, held.request) == ("turn1", "", key.request)
    await one.mark_begun(key, "turn1", "the-session", {"title": "the-title"})
    begun = not_none(await two.find(key))
    assert (begun.session, begun.facts) == ("the-session", {"title": "the-title"})
    await two.forget(key, "turn2")
    assert await two.claim(key, "turn3", begun) is None
    assert (await one.claim(key, "turn4", begun) or begun).turn == "turn3"
    await two.mark_begun(key, "turn3", "private:s", {"title": "the-title"})
    kept = not_none(await one.find(key))
    assert (kept.session, kept.facts) == ("private", {})
    await two.forget(key, "turn3")
    assert await one.find(key) is None
    for link in links:
        await link.aclose()


# ---------------------------------------------------------------------------------------------------- changed values


@WITH_BUS
def test_changes_of_one_value_at_the_same_time_are_all_made(again: Callable[[], LogStore]) -> None:
    buses = [bus for _ in range(4) if (bus := again().bus()) is not None]

    def add(number: int) -> None:
        for _ in range(20):
            change_value(buses[number], "ann", "list", lambda known: (known or b"") + b"%d" % number, 60)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(add, number) for number in range(4)]:
            done.result()
    value = not_none(buses[0].get_value("ann", "list"))
    assert sorted(value.body) == sorted(b"0123" * 20)
    change_value(buses[1], "ann", "list", lambda known: None, 60)
    assert buses[2].get_value("ann", "list") is None
    for bus in buses:
        bus.close()


def test_a_value_that_stays_as_it_is_is_not_written() -> None:
    bus = MemoryBus()
    change_value(bus, "ann", "one", lambda known: None, 60)
    assert bus.get_value("ann", "one") is None
    change_value(bus, "ann", "one", lambda known: b"1", 60)
    before = bus.get_value("ann", "one")
    change_value(bus, "ann", "one", lambda known: known, 60)
    after = not_none(bus.get_value("ann", "one"))
    assert not_none(before).version == after.version


# ---------------------------------------------------------------------------------------------------- counted events

HERE, THERE = EventCounter("ann", "here", 3), EventCounter("ann", "there", 2)


@WITH_BUS
def test_events_are_counted_up_to_the_limit_by_all_servers_together(again: Callable[[], LogStore]) -> None:
    buses = [bus for _ in range(4) if (bus := again().bus()) is not None]
    counter = EventCounter("ann", "busy", 10)

    def count(number: int) -> int:
        found = [buses[number].count_event(f"{number}-{at}", [counter], 60)[0] for at in range(10)]
        return sum(not one.wait_s for one in found)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(count, range(4))) == 10
    [full] = buses[0].count_event("", [counter], 60)
    assert full.number == 10
    assert 0 < full.wait_s <= 60
    assert buses[0].count_event("", [replace(counter, namespace="bob")], 60) == [EventCount(0)]
    for bus in buses:
        bus.close()


@pytest.mark.parametrize("scheme", sorted(store_url.LOGS))
def test_servers_of_exactly_the_databases_that_are_said_to_carry_messages_have_a_bus(scheme: str) -> None:
    module, _, name = store_url.LOGS[scheme].partition(":")
    made: Any = getattr(import_module(f"agent_kernel.sessions.log.{module}"), name)
    kind: Any = made if isinstance(made, type) else get_type_hints(made)["return"]
    assert (get_type_hints(kind.bus)["return"] is not type(None)) == (scheme in store_url.WITH_BUS)


@WITH_BUS
def test_an_event_counts_under_all_names_or_none_and_once_however_often_it_is_sent(
    buses: tuple[MessageBus, MessageBus],
) -> None:
    one, two = buses
    assert one.count_event("a", [HERE, THERE], 60) == [EventCount(0), EventCount(0)]
    assert two.count_event("a", [HERE, THERE], 60) == [EventCount(0), EventCount(0)]
    two.count_event("b", [HERE, THERE], 60)
    here, there = one.count_event("c", [HERE, THERE], 60)
    assert (here.number, here.wait_s, there.number) == (2, 0.0, 2)
    assert 50 < there.wait_s <= 60
    assert one.count_event("", [HERE], 60) == [EventCount(2)]
    two.uncount_event("a", [HERE, THERE])
    two.uncount_event("unknown", [HERE])
    assert one.count_event("c", [HERE, THERE], 60) == [EventCount(1), EventCount(1)]


@WITH_BUS
def test_an_event_that_is_renewed_counts_longer_and_is_counted_again_if_it_was_forgotten(
    buses: tuple[MessageBus, MessageBus],
) -> None:
    one, two = buses
    one.count_event("a", [HERE], 60)
    time.sleep(0.25)
    assert two.count_event("", [HERE], 0.2) == [EventCount(0)]
    end = time.monotonic() + 20
    while two.count_event("", [HERE], 0.2)[0].number == 0:  # again, in case this machine pauses for so long
        assert time.monotonic() < end
        one.renew_events([("a", HERE), ("of another", THERE)], 60)
    two.uncount_event("a", [HERE])
    assert two.count_event("", [HERE, THERE], 60) == [EventCount(0), EventCount(1)]
    for _ in range(2):
        one.renew_events([("a", HERE)], 60)
        assert two.count_event("", [HERE], 60) == [EventCount(1)]


@WITH_BUS
def test_an_event_is_forgotten_when_its_time_is_over(buses: tuple[MessageBus, MessageBus]) -> None:
    one, two = buses
    narrow = replace(HERE, limit=1)
    one.count_event("a", [narrow], 2.0)
    [full] = two.count_event("b", [narrow], 2.0)
    assert 0 < full.wait_s <= 2.0
    time.sleep(full.wait_s + 0.02)
    assert two.count_event("c", [narrow], 2.0) == [EventCount(0)]
