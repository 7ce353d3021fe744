"""The contract of a LogStore, which every log of a shared database keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_kernel.sessions.log.log_store import Append, Entry, LogConflict, LogStore
from tests.sessions.talk import Clock

Open = Callable[[], LogStore]


def append(session: str = "s", *, namespace: str = "a", expect: int = 0, body: bytes = b"x") -> Append:
    return Append(namespace, session, expect, body)


def everything(log: LogStore, after: dict[str, int] | None = None) -> Sequence[Entry]:
    """Return all entries, with as many reads as necessary."""
    found: list[Entry] = []
    seen, more = dict(after or {}), True
    while more:
        tail = log.read(seen)
        more = tail.more
        found += tail.entries
        seen |= {entry.namespace: entry.position for entry in tail.entries}
    return found


def test_entries_are_read_in_their_order_and_only_behind_a_position(log: LogStore) -> None:
    assert everything(log) == []
    assert log.commit("1", [append("s"), append("t")]) == {("a", "s"): 1, ("a", "t"): 2}
    assert log.commit("2", [append("s", expect=1, body=b"\0\xff")]) == {("a", "s"): 3}
    assert log.commit("3", [append("s", namespace="b")]) == {("b", "s"): 1}
    assert [(e.namespace, e.position, e.session, e.body) for e in everything(log)] == [
        ("a", 1, "s", b"x"),
        ("a", 2, "t", b"x"),
        ("a", 3, "s", b"\0\xff"),
        ("b", 1, "s", b"x"),
    ]
    assert [e.position for e in everything(log, {"a": 2, "b": 1})] == [3]


def test_a_reader_that_names_namespaces_gets_all_of_their_entries(log: LogStore) -> None:
    for number, (namespace, expect) in enumerate([("a", 0), ("é\U0001f600", 0), ("b", 0), ("a", 1), ("c", 0)]):
        log.commit(str(number), [append(namespace=namespace, expect=expect)])
    tail = log.read({"a": 1, "b": 1}, ["é\U0001f600", "b", "a", "nobody"])
    assert not tail.more
    places = [(entry.namespace, entry.position) for entry in tail.entries if entry.namespace != "c"]
    assert places == [("a", 2), ("é\U0001f600", 1)]
    assert log.read({}, []).now >= tail.now


def test_a_writer_that_does_not_know_the_last_entry_writes_nothing(log: LogStore) -> None:
    log.commit("1", [append("s")])
    for stale in (append("s"), append("s", expect=2)):
        with pytest.raises(LogConflict):
            log.commit("2", [append("other"), stale])
    assert len(everything(log)) == 1


def test_an_append_without_a_body_only_checks(log: LogStore, again: Open) -> None:
    log.commit("1", [append("s")])
    assert log.commit("2", [append("t"), Append("a", "s", 1, None)]) == {("a", "t"): 2}
    with pytest.raises(LogConflict):
        log.commit("3", [append("t", expect=2), Append("a", "s", 0, None)])
    assert len(everything(log)) == 2
    again().commit("4", [append("s", expect=1)])
    with pytest.raises(LogConflict):
        log.commit("5", [Append("a", "s", 1, None)])
    assert log.commit("6", [Append("a", "s", 3, None)]) == {}


def test_a_writer_that_has_not_read_the_newest_entry_of_a_namespace_writes_nothing_if_it_asks_for_that(
    log: LogStore, again: Open
) -> None:
    log.read({})
    assert log.compares
    first = log.commit("1", [append("s"), append("s", namespace="b")], {"a": 0, "b": 0})
    assert first == {("a", "s"): 1, ("b", "s"): 1}
    other = again()
    assert other.commit("2", [append("t")], {"a": 1}) == {("a", "t"): 2}
    for after in ({"a": 1}, {"b": 1, "a": 1}, {"a": 3}):
        with pytest.raises(LogConflict):
            log.commit(f"{after}", [append("s", expect=1)], after)
    assert log.commit("1", [append("s"), append("s", namespace="b")], {"a": 0, "b": 0}) == first, "the reply was lost"
    assert log.commit("3", [append("s", expect=1), append("u")], {"a": 2}) == {("a", "s"): 3, ("a", "u"): 4}
    assert log.commit("4", [append("s", namespace="b", expect=1)], {"b": 1, "new": 0}) == {("b", "s"): 2}
    assert [entry.position for entry in everything(again())] == [1, 2, 3, 4, 1, 2]


def test_of_writers_that_all_read_the_same_one_is_first_also_in_different_sessions(log: LogStore, again: Open) -> None:
    rounds, logs = 15, [again() for _ in range(3)]

    def race(which: int) -> int:
        won = 0
        for at in range(rounds):
            try:
                logs[which].commit(f"{which}-{at}", [append(f"{which}-{at}")], {"a": at})
                won += 1
            except LogConflict:
                while len(everything(logs[which])) <= at:
                    pass
        return won

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(race, range(3))) == rounds
    assert len(everything(log)) == rounds


def test_a_commit_whose_reply_was_lost_can_be_repeated(log: LogStore) -> None:
    first = log.commit("1", [append("s")])
    log.commit("2", [Append("a", "s", 1, b"all", replaces=True)])
    assert log.commit("1", [append("s")]) == first
    assert [entry.body for entry in everything(log)] == [b"all"]


def test_a_commit_is_repeated_on_a_new_connection_after_others_have_written(log: LogStore, again: Open) -> None:
    given = [append("s", body=b"mine"), append("s", namespace="b")]
    first = log.commit("1", given)
    other = again()
    other.commit("2", [append("s", expect=1), append("t")])
    other.commit("3", [Append("a", "s", 2, b"all", replaces=True)])
    log.close()
    assert log.commit("1", given) == first
    assert again().commit("1", given) == first
    assert [(e.namespace, e.position, e.body) for e in everything(again())] == [
        ("a", 3, b"x"),
        ("a", 4, b"all"),
        ("b", 1, b"x"),
    ]


def test_a_server_whose_session_was_taken_over_writes_nothing_more(log: LogStore, again: Open) -> None:
    log.commit("lease of one", [append("s")])
    other = again()
    other.commit("lease of another", [append("s", expect=1)])
    for late in ([append("s", expect=1)], [append("t"), Append("a", "s", 1, None)]):
        with pytest.raises(LogConflict):
            log.commit(f"{late}", late)
    assert other.commit("goes on", [append("s", expect=2)]) == {("a", "s"): 3}
    assert len(everything(log)) == 3


def test_a_commit_over_several_namespaces_is_there_as_a_whole_or_not_at_all(log: LogStore, again: Open) -> None:
    rounds, logs = 10, [again() for _ in range(3)]

    def write(which: int) -> int:
        won = 0
        for at in range(rounds):
            try:
                # Each writer names the namespaces in another order.
                names = ["ab", "ba", "ab"][which]
                logs[which].commit(f"{which}-{at}", [append("s", namespace=n, expect=at) for n in names])
                won += 1
            except LogConflict:
                while len([entry for entry in everything(logs[which]) if entry.namespace == "b"]) <= at:
                    pass
        return won

    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, which) for which in range(3)]
        while not all(one.done() for one in writing):
            seen = log.read({}).entries
            assert [e.position for e in seen if e.namespace == "a"] == [e.position for e in seen if e.namespace == "b"]
        assert sum(one.result() for one in writing) == rounds


def test_a_commit_may_be_larger_than_what_a_database_writes_at_once(log: LogStore, again: Open) -> None:
    many = [append(f"s{n}", body=bytes([n]) * 40_000) for n in range(150)]
    large = bytes(range(256)) * 40_000
    assert log.commit("many", many) == {("a", f"s{n}"): n + 1 for n in range(150)}
    assert log.commit("large", [append("large", body=large), append("small")]) == {
        ("a", "large"): 151,
        ("a", "small"): 152,
    }
    assert [len(entry.body) for entry in everything(again())] == [40_000] * 150 + [len(large), 1]
    log.commit("less", [Append("a", "large", 151, b"", replaces=True), Append("a", "s7", 8, b"7", replaces=True)])
    found = everything(again())
    assert [entry.position for entry in found] == [*range(1, 8), *range(9, 151), 152, 153, 154]
    assert found[-2].body == b""


def test_an_entry_that_replaces_takes_the_place_of_all_earlier_ones_of_its_session(log: LogStore) -> None:
    log.commit("1", [append("s"), append("t")])
    log.commit("2", [append("s", expect=1)])
    log.commit("3", [Append("a", "s", 3, b"all", replaces=True)])
    assert [(e.position, e.session, e.replaces) for e in everything(log)] == [(2, "t", False), (4, "s", True)]


@pytest.mark.parametrize("key", ["ü\u202e🙂", "'; DROP TABLE x; --", "a b", '{"a":1}', "x" * 512, "%s"])
def test_names_are_taken_literally(log: LogStore, key: str) -> None:
    log.commit("1", [append(key, namespace=key)])
    assert [(e.namespace, e.session) for e in everything(log)] == [(key, key)]
    assert everything(log, {key: 1}) == []
    log.put_blob(key, "d" * 64, b"x")
    assert log.get_blob(key, "d" * 64) == b"x"


def test_of_writers_at_the_same_moment_one_is_first(log: LogStore, again: Open) -> None:
    rounds, logs = 20, [again() for _ in range(4)]

    def race(which: int) -> int:
        won = 0
        for at in range(rounds):
            try:
                logs[which].commit(f"{which}-{at}", [append("s", expect=at)])
                won += 1
            except LogConflict:
                while len(everything(logs[which])) <= at:
                    pass
        return won

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(race, range(4))) == rounds
    assert [entry.position for entry in everything(log)] == [*range(1, rounds + 1)]


def test_a_reader_never_misses_an_entry_that_was_written_at_the_same_moment(log: LogStore, again: Open) -> None:
    def write(which: int) -> None:
        mine = again()
        at = 0
        for n in range(30):
            ((_, at),) = mine.commit(f"{which}-{n}", [append(f"s{which}", expect=at)]).items()

    seen: list[int] = []
    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, which) for which in range(3)]
        while len(seen) < 90 and not any(one.done() and one.exception() for one in writing):
            seen += [entry.position for entry in log.read({"a": max(seen, default=0)}).entries]
    assert seen == [*range(1, 91)]


def test_more_entries_than_one_read_returns_are_read_in_parts(log: LogStore) -> None:
    for part in range(6):
        log.commit(f"{part}", [append(f"{part}-{n}") for n in range(1000)])
    assert [entry.position for entry in everything(log)] == [*range(1, 6001)]


def test_ten_megabytes_are_kept_and_bytes_that_nothing_names_go(log: LogStore, clock: Clock) -> None:
    large = bytes(range(256)) * 40_000
    log.put_blob("a", "empty", b"")
    assert log.get_blob("a", "empty") == b""
    assert log.drop_blobs(set(), -1) < 100
    log.put_blob("a", "large", large)
    log.put_blob("a", "large", large)
    assert log.get_blob("a", "large") == large
    assert log.get_blob("b", "large") is None
    assert log.drop_blobs(set()) == 0, "it was just stored"
    assert log.drop_blobs({("a", "large")}, -1) == 0, "it has a name"
    assert 0 <= log.drop_blobs({("b", "large")}, -1) - len(large) < 100, "an encrypted medium is a little longer"
    assert log.get_blob("a", "large") is None
    log.touch_blobs("a", ["large", "nothing"])
    assert log.get_blob("a", "large") is None


def test_it_tells_the_time_and_can_be_closed_and_used_again(log: LogStore) -> None:
    first = log.read({}).now
    log.close()
    assert log.read({}).now >= first > 1_600_000_000


def test_its_time_is_that_of_the_database_whatever_the_clock_of_the_server_says(
    log: LogStore, again: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, real = log.read({}).now, time.time
    for skew in (-300.0, 300.0):
        monkeypatch.setattr(time, "time", lambda skew=skew: real() + skew)
        assert -2 < again().read({}).now - right < 60
