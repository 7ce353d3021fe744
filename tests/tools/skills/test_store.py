"""Tests that skills are stored in versions, completely or not at all, and separately for each namespace."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest, NotFound
from agent_kernel.tools.skills.package import PackageEntry
from agent_kernel.tools.skills.skill import SkillSpecifier, Version, tree
from agent_kernel.tools.skills.store import SkillStore
from tests.sessions.log.memory_bus import MemoryBus


@pytest.fixture(params=["disk", "shared"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SkillStore:
    return SkillStore(tmp_path, MemoryBus() if request.param == "shared" else None)


def skill(text: str = "v1", name: str = "Charts") -> list[PackageEntry]:
    return [PackageEntry.from_bytes("SKILL.md", f"---\nname: {name}\ndescription: {text}\n---\n{text}".encode())]


def test_a_skill_gets_versions_that_do_not_change(store: SkillStore) -> None:
    made = store.add("ann", skill("v1"))
    again = store.add("ann", skill("v2"), made.id)
    assert [version.number for version in again.versions] == [1, 2]
    assert (again.latest.description, again.versions[0].description) == ("v2", "v1")
    assert store.version("ann", SkillSpecifier.parse(made.id)).number == 2
    assert store.version("ann", SkillSpecifier.parse(f"{made.id}@latest")).number == 2
    old = store.version("ann", SkillSpecifier.parse(f"{made.id}@1"))
    assert (old.content / "SKILL.md").read_text().endswith("v1")
    assert [found.id for found in store.list("ann")] == [made.id]


def test_skills_stay_over_a_restart(tmp_path: Path) -> None:
    made = SkillStore(tmp_path).add("ann", skill())
    assert [found.id for found in SkillStore(tmp_path).list("ann")] == [made.id]


def test_nobody_sees_the_skills_of_somebody_else(store: SkillStore) -> None:
    made = store.add("ann", skill())
    assert store.list("bob") == []
    for act in (lambda: store.get("bob", made.id), lambda: store.delete("bob", made.id)):
        with pytest.raises(NotFound):
            act()
    with pytest.raises(NotFound):
        store.add("bob", skill(), made.id)
    assert store.get("ann", made.id).id == made.id


@pytest.mark.parametrize("id", ["../x", "skill_", "skill_" + "g" * 32, "SKILL_" + "0" * 32, "skill_" + "0" * 31, ""])
def test_an_id_never_leads_elsewhere(tmp_path: Path, id: str) -> None:
    with pytest.raises((NotFound, InvalidRequest)):
        SkillStore(tmp_path).get("ann", id)
    with pytest.raises(InvalidRequest):
        SkillSpecifier.parse(id)


@pytest.mark.parametrize("version", ["0", "-1", "x", "1.0", "²", "999999"])
def test_a_version_is_a_number_or_latest(version: str) -> None:
    with pytest.raises(InvalidRequest):
        SkillSpecifier.parse(f"skill_{'0' * 32}@{version}")


def test_what_is_refused_leaves_nothing(store: SkillStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        store.add("ann", [*skill(), PackageEntry.from_bytes("../evil", b"")])
    made = store.add("ann", skill())
    with pytest.raises(InvalidRequest, match="must have the same name"):
        store.add("ann", skill(name="Other"), made.id)
    assert len(store.get("ann", made.id).versions) == 1
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_skill_that_was_deleted_is_gone(store: SkillStore, tmp_path: Path) -> None:
    made = store.add("ann", skill())
    store.delete("ann", made.id)
    assert store.list("ann") == []
    assert not list(tmp_path.rglob("SKILL.md"))


def test_versions_that_come_together_get_numbers_of_their_own(store: SkillStore) -> None:
    made = store.add("ann", skill())
    threads = [threading.Thread(target=store.add, args=("ann", skill(f"t{n}"), made.id)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [version.number for version in store.get("ann", made.id).versions] == list(range(1, 10))


def test_a_version_that_can_not_be_read_hides_no_other(tmp_path: Path) -> None:
    store = SkillStore(tmp_path)
    made = store.add("ann", skill())
    store.add("ann", skill("v2"), made.id)
    (made.latest.content.parent / "version.json").write_text("{")
    assert [version.number for version in store.get("ann", made.id).versions] == [2]
    shutil.rmtree(made.latest.content.parent.parent)
    assert store.list("ann") == []


def test_a_long_tree_is_cut_in_number_and_in_depth() -> None:
    assert tree(["SKILL.md", "a/b/c/d/e/f.txt", "a/b/c/d/x.txt"]) == ["SKILL.md", "a/b/c/d/..."]
    assert len(tree([f"f{n}" for n in range(200)])) == 81


def test_the_folder_of_a_skill_is_a_safe_name() -> None:
    names = ["My Charts!", "../../x", "...", "日本", "a" * 200]
    folders = [Version("skill_" + "0" * 32, 1, name, "", 0.0, Path()).folder for name in names]
    assert folders[:2] == ["My-Charts", "x"]
    assert all(folder and len(folder) <= 60 and "/" not in folder and folder[0] != "." for folder in folders)
