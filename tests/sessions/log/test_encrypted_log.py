"""Tests encrypted stores: no text of a user is readable in the database, and changes made there are detected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent_kernel.core.errors import StoreError
from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import Owner, Turn
from agent_kernel.sessions.contract_tests.fixtures import KEY, PNG
from agent_kernel.sessions.contract_tests.snapshots import add_branches
from agent_kernel.sessions.log.encrypted_log import EncryptedLog
from agent_kernel.sessions.log.log_store import Append, Entry
from agent_kernel.sessions.store.shared_store import SharedStore
from tests.sessions.log.memory_log import MemoryLog

SECRET, OTHER = bytes(range(32)), bytes(32)
WORDS = (b"the-title", b"the-question", b"the-answer")
Rows = dict[int, Entry]


async def fill(log: MemoryLog, owner: Owner) -> None:
    store = SharedStore(EncryptedLog(log, SECRET))
    await add_branches(store, owner)
    await store.rename(KEY, "the-title")
    await store.add_turn(Turn("t9", KEY), [user("the-question", [PNG]), assistant("the-answer")])
    await store.aclose()


async def test_the_database_has_no_word_and_no_byte_of_a_conversation_and_no_hash_of_a_medium(owner: Owner) -> None:
    log = MemoryLog()
    await fill(log, owner)
    held = b"".join(entry.body for entry in log.read({}).entries)
    media = b"".join(data for _, data in log._blobs.values())
    assert not any(word in held for word in WORDS)
    assert media
    assert (PNG.data or b"")[:16] not in media
    assert PNG.hash not in {digest for _, digest in log._blobs}


async def test_equal_texts_and_media_look_different_each_time_and_in_each_namespace() -> None:
    log = MemoryLog()
    encrypted = EncryptedLog(log, SECRET)
    for number, namespace in enumerate(("a", "a", "b")):
        encrypted.commit(f"{number}", [Append(namespace, f"s{number}", 0, b"same")])
        encrypted.put_blob(namespace, "d" * 64, b"same")
    bodies = [entry.body for entry in log.read({}).entries] + [data for _, data in log._blobs.values()]
    assert len(set(bodies)) == len(bodies) == 5
    assert len({name for _, name in log._blobs}) == 2


@pytest.mark.parametrize(
    ("key", "says"),
    [(OTHER, "the key is not the one of this store"), (None, "is encrypted")],
    ids=["another key", "no key"],
)
async def test_without_the_key_nothing_is_read_or_written(owner: Owner, key: bytes | None, says: str) -> None:
    log = MemoryLog()
    await fill(log, owner)
    before = log.read({}).entries
    store = SharedStore(EncryptedLog(log, key) if key else log)
    with pytest.raises(StoreError, match=says):
        await store.latest(KEY)
    with pytest.raises(StoreError, match=says):
        await store.create(KEY)
    await store.aclose()
    assert log.read({}).entries == before


async def test_a_store_in_plain_text_is_not_read_with_a_key() -> None:
    log = MemoryLog()
    plain = SharedStore(log)
    await plain.create(KEY)
    encrypted = SharedStore(EncryptedLog(log, SECRET))
    with pytest.raises(StoreError, match="not encrypted"):
        await encrypted.info(KEY)
    for store in (plain, encrypted):
        await store.aclose()


def exchange(rows: Rows) -> None:
    rows[1], rows[2] = replace(rows[1], body=rows[2].body), replace(rows[2], body=rows[1].body)


def repeat(rows: Rows) -> None:
    rows[3] = replace(rows[3], body=rows[2].body)


def leave_out(rows: Rows) -> None:
    del rows[2]


def give_to_another_session(rows: Rows) -> None:
    rows[1] = replace(rows[1], session="other")


def pretend_to_replace(rows: Rows) -> None:
    rows[3] = replace(rows[3], replaces=True)


def flip_a_bit(rows: Rows) -> None:
    rows[2] = replace(rows[2], body=rows[2].body[:-1] + bytes([rows[2].body[-1] ^ 1]))


def cut_off(rows: Rows) -> None:
    rows[2] = replace(rows[2], body=rows[2].body[:9])


@pytest.mark.parametrize(
    "attack",
    [exchange, repeat, leave_out, give_to_another_session, pretend_to_replace, flip_a_bit, cut_off],
    ids=lambda attack: attack.__name__,
)
def test_what_somebody_changed_in_the_database_is_an_error(attack: Callable[[Rows], None]) -> None:
    log = MemoryLog()
    for at in range(3):
        EncryptedLog(log, SECRET).commit(f"{at}", [Append("a", "s", at, f"{at}".encode())])
    assert [entry.body for entry in EncryptedLog(log, SECRET).read({}).entries] == [b"0", b"1", b"2"]
    attack(log._entries["a"])
    with pytest.raises(StoreError, match="somebody changed the database"):
        EncryptedLog(log, SECRET).read({})


def test_a_reader_may_leave_entries_out_and_still_notices_what_is_missing_behind_them() -> None:
    log = MemoryLog()
    reader = EncryptedLog(log, SECRET)
    for at in range(5):
        EncryptedLog(log, SECRET).commit(f"{at}", [Append("a", "s", at, f"{at}".encode())])
        if at == 0:
            assert len(reader.read({}).entries) == 1
    assert [entry.body for entry in reader.read({"a": 3}).entries] == [b"3", b"4"]
    for at in (5, 6):
        EncryptedLog(log, SECRET).commit(f"{at}", [Append("a", "s", at, f"{at}".encode())])
    del log._entries["a"][6]
    with pytest.raises(StoreError, match="somebody changed the database"):
        reader.read({"a": 5})


def test_media_of_other_places_are_an_error() -> None:
    log = MemoryLog()
    encrypted = EncryptedLog(log, SECRET)
    encrypted.put_blob("a", "one", b"1")
    encrypted.put_blob("a", "two", b"2")
    first, second = log._blobs
    log._blobs[first], log._blobs[second] = log._blobs[second], log._blobs[first]
    with pytest.raises(StoreError, match="somebody changed the database"):
        encrypted.get_blob("a", "one")


def test_entries_that_are_read_once_more_are_the_same() -> None:
    log = MemoryLog()
    encrypted = EncryptedLog(log, SECRET)
    for at in range(3):
        encrypted.commit(f"{at}", [Append("a", "s", at, f"{at}".encode())])
    assert len(encrypted.read({}).entries) == 3
    assert [entry.body for entry in encrypted.read({"a": 1}).entries] == [b"1", b"2"]
    encrypted.commit("all", [Append("a", "s", 3, b"all", replaces=True)])
    encrypted.commit("more", [Append("a", "s", 4, b"more")])
    for after in ({"a": 3}, {}, {"a": 4}):
        assert encrypted.read(after).entries[-1].body == b"more"
