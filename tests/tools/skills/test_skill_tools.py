"""Tests skills in a turn: what the model is told, where it finds them, and what it never gets."""

from __future__ import annotations

import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest, NotFound
from agent_kernel.core.events import EventBody, Notice
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext, ToolOutput
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.sandbox.host.pool import LinuxSandbox
from agent_kernel.tools.base.tool_source import OfferedTools, ToolSourceContext
from agent_kernel.tools.skills.package import PackageEntry
from agent_kernel.tools.skills.skill_tools import SkillTools
from agent_kernel.tools.skills.store import SkillStore
from tests.turns import KEY

Files = dict[str, str]


def head(name: str, text: str = "does things") -> str:
    return f"---\nname: {name}\ndescription: {text}\n---\nStep one.\n"


def entries(name: str, **files: str) -> list[PackageEntry]:
    named = {"SKILL.md": head(name), **files}
    return [PackageEntry.from_bytes(file.replace("__", "/"), text.encode()) for file, text in named.items()]


class Given:
    def __init__(self, directory: Path) -> None:
        self.store = SkillStore(directory / "skills")
        self.sandbox = LinuxSandbox(directory / "work")
        self.tools = SkillTools(self.store, self.sandbox)
        self.said: list[EventBody] = []

    @property
    def skills(self) -> Path:
        return self.sandbox.workdir(KEY) / "skills"

    async def offer(
        self, *skills: str, key: SessionKey = KEY, folder: Path | None = None, **given: Any
    ) -> OfferedTools:
        trusted = given.pop("trusted", False)
        request = TurnRequest("hello", skills=skills, **given)
        return await self.tools.offer(ToolSourceContext(key, request, self.said.append, folder, trusted))

    async def read(self, offered: OfferedTools, **arguments: Any) -> ToolOutput:
        call = ToolCall("c", "read_skill", arguments)
        return await offered.tools[0].call(arguments, ToolContext(KEY, "t", 1, call, self.said.append))

    @property
    def notices(self) -> list[str]:
        return [body.text for body in self.said if isinstance(body, Notice)]


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return Given(tmp_path)


async def test_a_turn_that_asks_for_none_has_none(given: Given) -> None:
    assert await given.offer() == OfferedTools()
    assert not given.skills.exists()


async def test_a_skill_is_listed_and_lies_read_only_in_the_work_directory(given: Given) -> None:
    made = given.store.add("local", entries("Charts", scripts__draw="print(1)"))
    offered = await given.offer(made.id)
    note = offered.notes[0].text
    assert "- Charts: does things" in note
    assert "skills/Charts/SKILL.md" in note
    assert "skills/Charts/scripts/draw" in note
    assert "read its SKILL.md" in note
    assert "Step one" not in note, "only the list is in the prompt"
    assert (given.skills / "Charts" / "scripts" / "draw").read_text() == "print(1)"
    assert (given.skills / "Charts" / "SKILL.md").stat().st_mode & 0o222 == 0


async def test_code_in_the_sandbox_reads_it(given: Given) -> None:
    made = given.store.add("local", entries("Charts"))
    await given.offer(made.id)
    async with aclosing(given.sandbox):
        ran = await given.sandbox.run(KEY, "print(open('skills/Charts/SKILL.md').read().splitlines()[-1])")
        assert ran.stdout == "Step one.\n"


async def test_the_tool_reads_files_in_slices_and_nothing_outside(given: Given) -> None:
    made = given.store.add("local", entries("Charts", long="x" * 6_000, binary="a\0b"))
    offered = await given.offer(made.id)
    assert (await given.read(offered, skill="Charts")).text.endswith("Step one.\n")
    first = await given.read(offered, skill="Charts", path="long")
    assert "[characters 0 to 5000 of 6000; go on with start=5000]" in first.text
    assert (await given.read(offered, skill="Charts", path="long", start=5_000)).text == "x" * 1_000
    for path in ("../../skill.json", "/etc/passwd", "../version.json", "none", "binary"):
        assert (await given.read(offered, skill="Charts", path=path)).status == "error"
    assert (await given.read(offered, skill="Other")).status == "error"


async def test_it_is_copied_again_only_when_the_set_changes(given: Given) -> None:
    one, two = given.store.add("local", entries("One")), given.store.add("local", entries("Two"))
    await given.offer(one.id)
    before = given.skills.stat().st_ino
    await given.offer(one.id)
    assert given.skills.stat().st_ino == before
    await given.offer(one.id, two.id)
    assert sorted(path.name for path in given.skills.iterdir()) == ["One", "Two"]
    given.store.add("local", [*entries("One", more="1")], one.id)
    await given.offer(one.id, two.id)
    assert (given.skills / "One" / "more").exists(), "latest is another version now"
    await given.offer(f"{one.id}@1")
    assert not (given.skills / "One" / "more").exists()
    assert not (given.skills / "Two").exists()
    await given.offer()
    assert not given.skills.exists(), "an earlier turn's skills are none of this one's"


async def test_two_skills_of_one_name_lie_beside_each_other(given: Given) -> None:
    ids = [given.store.add("local", entries(name)).id for name in ("Charts", "charts")]
    await given.offer(*ids)
    assert sorted(path.name for path in given.skills.iterdir()) == ["Charts", "charts-2"]


async def test_a_link_that_code_left_is_not_followed(given: Given, tmp_path: Path) -> None:
    made = given.store.add("local", entries("Charts"))
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "keep").write_text("mine")
    workdir = given.sandbox.workdir(KEY)
    workdir.mkdir(parents=True)
    (workdir / "skills").symlink_to(victim)
    await given.offer(made.id)
    assert (given.skills / "Charts" / "SKILL.md").exists()
    assert not given.skills.is_symlink()
    assert os.listdir(victim) == ["keep"]
    (given.skills / "Charts").rename(workdir / "away")
    given.skills.rmdir()
    given.skills.symlink_to(victim)
    await given.offer(made.id)
    assert os.listdir(victim) == ["keep"]
    assert (given.skills / "Charts").exists()


async def test_code_in_the_persons_kernel_has_the_tool_only(given: Given) -> None:
    made = given.store.add("local", entries("Charts"))
    offered = await given.offer(made.id, where="live")
    assert not given.skills.exists()
    assert "work directory" not in offered.notes[0].text
    assert (await given.read(offered, skill="Charts")).status == "success"


async def test_a_skill_that_is_not_there_is_the_requests_mistake(given: Given) -> None:
    made = given.store.add("local", entries("Charts"))
    with pytest.raises(NotFound):
        await given.offer(made.id, key=SessionKey("other", "s"))
    with pytest.raises(NotFound):
        await given.offer(f"{made.id}@7")
    with pytest.raises(NotFound):
        await given.offer("../../etc")
    with pytest.raises(InvalidRequest):
        await given.offer("skill_../../etc")
    with pytest.raises(InvalidRequest):
        await given.offer(*(f"skill_{n:032x}" for n in range(21)))


async def test_a_skill_is_found_by_its_name_too(given: Given) -> None:
    made = given.store.add("local", entries("Monthly Report"))
    given.store.add("local", entries("Monthly Report", more="1"), made.id)
    await given.offer("monthly report")
    assert (given.skills / "Monthly-Report" / "more").exists()
    await given.offer("Monthly Report@1")
    assert not (given.skills / "Monthly-Report" / "more").exists()


async def test_the_shell_of_a_turn_in_the_persons_kernel_finds_them(given: Given) -> None:
    made = given.store.add("local", entries("Charts"))
    given.tools = SkillTools(given.store, given.sandbox, shell=True)
    offered = await given.offer(made.id, where="live")
    assert (given.skills / "Charts" / "SKILL.md").exists()
    assert "For the shell they lie in the directory skills" in offered.notes[0].text


async def test_skills_beside_a_notebook_count_only_in_a_trusted_folder(given: Given, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    here = folder / ".agents" / "skills" / "local"
    here.mkdir(parents=True)
    (here / "SKILL.md").write_text(head("Local"))
    (here / "secret").symlink_to("/etc/passwd")
    (here.parent / "broken").mkdir()
    (here.parent / "linked").symlink_to("/etc")
    assert await given.offer(folder=folder) == OfferedTools()
    assert await given.offer(folder=folder) == OfferedTools()
    assert len(given.notices) == 1
    assert "is in no folder that you trust, so its skills are not used" in given.notices[0]
    offered = await given.offer(folder=folder, trusted=True)
    assert "- Local: does things" in offered.notes[0].text
    assert sorted(path.name for path in (given.skills / "Local").iterdir()) == ["SKILL.md"]
    assert (await given.read(offered, skill="Local", path="secret")).status == "error"
    assert "broken is not used" in given.notices[1]
    assert await given.offer(folder=folder, trusted=True, tools=("python",)) == OfferedTools()


async def test_a_skill_that_was_edited_beside_the_notebook_is_copied_again(given: Given, tmp_path: Path) -> None:
    here = tmp_path / ".agents" / "skills" / "local"
    here.mkdir(parents=True)
    (here / "SKILL.md").write_text(head("Local"))
    await given.offer(folder=tmp_path, trusted=True)
    (here / "SKILL.md").write_text(head("Local") + "Step two.\n")
    os.utime(here / "SKILL.md", (2e9, 2e9))
    await given.offer(folder=tmp_path, trusted=True)
    assert "Step two" in (given.skills / "Local" / "SKILL.md").read_text()
