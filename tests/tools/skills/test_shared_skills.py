"""Tests installed skills of servers that share a database: each server has all of them, and none that was deleted."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest, NotFound, QuotaExceeded, StoreError
from agent_kernel.sessions.log.encrypted_log import EncryptedBus
from agent_kernel.sessions.log.message_bus import MessageBus, SharedValue
from agent_kernel.tools.skills import shared_skills
from agent_kernel.tools.skills.package import PackageEntry
from agent_kernel.tools.skills.skill import SkillSpecifier
from agent_kernel.tools.skills.store import SkillStore
from tests.sessions.log.memory_bus import MemoryBus


def skill(text: str = "v1", name: str = "Charts", *more: PackageEntry) -> list[PackageEntry]:
    main = f"---\nname: {name}\ndescription: {text}\n---\n{text}"
    return [PackageEntry.from_bytes("SKILL.md", main.encode()), *more]


def script(data: bytes = b"#!/bin/sh\necho hello\n") -> PackageEntry:
    entry = PackageEntry.from_bytes("bin/hello", data)
    return PackageEntry(entry.name, entry.open, runs=True)


def files_below(path: Path) -> list[Path]:
    return [found for found in path.rglob("*") if found.is_file()]


@pytest.fixture
def memory() -> MemoryBus:
    return MemoryBus()


@pytest.fixture(params=["plain", "encrypted"])
def bus(request: pytest.FixtureRequest, memory: MemoryBus) -> MessageBus:
    return memory if request.param == "plain" else EncryptedBus(memory, bytes(32))


@pytest.fixture
def servers(bus: MessageBus, tmp_path: Path) -> list[SkillStore]:
    return [SkillStore(tmp_path / name, bus) for name in ("one", "two", "three")]


def test_a_skill_of_one_server_is_whole_at_the_others(servers: list[SkillStore]) -> None:
    one, two, three = servers
    made = one.add("ann", skill("v1", "Charts", script()))
    two.add("ann", skill("v2"), made.id)
    for server in servers:
        assert [version.description for version in server.get("ann", made.id).versions] == ["v1", "v2"]
        assert server.find("ann", "charts").number == 2
        first = server.version("ann", SkillSpecifier.parse(f"{made.id}@1"))
        assert (first.content / "SKILL.md").read_text().endswith("v1")
        assert (first.content / "bin" / "hello").read_bytes() == b"#!/bin/sh\necho hello\n"
        assert os.access(first.content / "bin" / "hello", os.X_OK)
        assert not (first.content / "SKILL.md").stat().st_mode & 0o222, "nobody changes a version"
    three.delete("ann", made.id)
    for server in servers:
        assert server.list("ann") == []
        with pytest.raises(NotFound):
            server.find("ann", made.id)
        with pytest.raises(NotFound):
            server.delete("ann", made.id)


def test_nobody_sees_the_skills_of_somebody_else_at_any_server(servers: list[SkillStore]) -> None:
    one, two, _ = servers
    made = one.add("ann", skill())
    assert two.list("bob") == []
    for name in (made.id, "charts"):
        with pytest.raises(NotFound):
            two.find("bob", name)
    with pytest.raises(NotFound):
        two.delete("bob", made.id)
    with pytest.raises(NotFound):
        two.add("bob", skill(), made.id)
    assert two.find("ann", "charts").id == made.id


def test_skills_and_versions_that_servers_add_at_once_are_all_there(servers: list[SkillStore]) -> None:
    made = servers[0].add("ann", skill())

    def add(server: SkillStore, number: int) -> None:
        server.add("ann", skill(f"v{number}"), made.id)
        server.add("ann", skill(name=f"Other {number}"))

    threads = [threading.Thread(target=add, args=(servers[number % 3], number)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for server in servers:
        assert [version.number for version in server.get("ann", made.id).versions] == [*range(1, 11)]
        assert len({skill.latest.name for skill in server.list("ann")}) == 10


def test_what_is_deleted_leaves_the_database_and_in_time_the_disks(
    servers: list[SkillStore], memory: MemoryBus, tmp_path: Path
) -> None:
    one, two, _ = servers
    made = one.add("ann", skill())
    for server in (one, two):
        copied = server.find("ann", made.id)
        os.utime(copied.content, (time.time() - 2 * shared_skills.STALE_S,) * 2)
    one.delete("ann", made.id)
    assert not memory._values
    assert not files_below(tmp_path / "one")
    assert files_below(tmp_path / "two"), "a turn may read it"
    two.find("ann", one.add("ann", skill("next")).id)
    assert [path.read_text()[-4:] for path in files_below(tmp_path / "two")] == ["next"]


def test_a_copy_that_was_lost_is_made_again(servers: list[SkillStore]) -> None:
    found = servers[0].find("ann", servers[1].add("ann", skill()).id)
    found.content.rename(found.content.with_name("moved"))
    assert (servers[0].find("ann", "charts").content / "SKILL.md").exists()


def test_a_skill_on_the_disk_of_a_server_remains_usable_there_only(bus: MessageBus, tmp_path: Path) -> None:
    made = SkillStore(tmp_path / "one").add("ann", skill())
    one, two = (SkillStore(tmp_path / name, bus) for name in ("one", "two"))
    assert one.find("ann", "charts").id == made.id
    assert len(one.add("ann", skill("v2"), made.id).versions) == 2
    assert two.list("ann") == []
    one.delete("ann", made.id)
    assert one.list("ann") == []


def test_what_is_refused_leaves_nothing_in_the_database(
    servers: list[SkillStore], memory: MemoryBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = servers
    with pytest.raises(InvalidRequest):
        one.add("ann", [*skill(), PackageEntry.from_bytes("../evil", b"")])
    assert not memory._values
    made = one.add("ann", skill())
    before = dict(memory._values)
    with pytest.raises(InvalidRequest, match="must have the same name"):
        two.add("ann", skill(name="Other"), made.id)
    monkeypatch.setattr(shared_skills, "MAX_VERSIONS", 1)
    monkeypatch.setattr(shared_skills, "MAX_SKILLS", 1)
    for id in (made.id, ""):
        with pytest.raises(QuotaExceeded):
            two.add("ann", skill(), id)
    assert memory._values == before


def test_files_of_the_database_are_checked_like_an_upload(servers: list[SkillStore], tmp_path: Path) -> None:
    one, two, _ = servers
    made = one.add("ann", skill())
    shared = two._shared
    assert shared is not None
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "a").write_text("x")
    packed = shared_skills._pack(evil, ["a"]).replace(b"a", b"/")
    shared._change("ann", f"skill files/{made.latest.content.name}", lambda known: packed)
    with pytest.raises(InvalidRequest):
        two.find("ann", made.id)
    assert not files_below(tmp_path / "two")


def test_a_database_that_is_away_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    class Away(MemoryBus):
        def get_value(self, namespace: str, name: str) -> SharedValue | None:
            raise StoreError("the database is away", hint="Try again.")

    store = SkillStore(tmp_path, Away())
    for use in (lambda: store.list("ann"), lambda: store.add("ann", skill()), lambda: store.find("ann", "charts")):
        with pytest.raises(StoreError, match="away") as error:
            use()
        assert error.value.hint
