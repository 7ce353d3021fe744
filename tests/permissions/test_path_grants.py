from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from agent_kernel.core.events import ApprovalRequired, EventBody
from agent_kernel.permissions import Answer, Gate
from agent_kernel.permissions.path_grants import ApprovedPaths
from tests.permissions.asking import KEY, context, gate


class Folder:
    """A folder with one file beside the work directory, and a gate that is asked to allow it."""

    def __init__(self, place: Path) -> None:
        self.place = place / "data"
        self.place.mkdir()
        self.file = self.place / "a.csv"
        self.file.write_text("1")
        self.events: list[EventBody] = []

    def paths(self, held: Gate) -> ApprovedPaths:
        return ApprovedPaths(held, context(self.events.append))

    async def ask(self, held: Gate, path: Path, answer: Answer | None, *, write: bool = False) -> Path | None:
        """Ask for a path and answer the question. With ``answer`` None, the gate must not ask."""
        self.events.clear()
        task = asyncio.create_task(self.paths(held).ask(path, write=write))
        while not task.done() and not self.questions:
            await asyncio.sleep(0)
        assert bool(self.questions) is (answer is not None)
        if answer is not None:
            await held.approvals.answer("local", self.questions[0].approval, answer)
        return await task

    @property
    def questions(self) -> list[ApprovalRequired]:
        return [body for body in self.events if isinstance(body, ApprovalRequired)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return Folder(tmp_path.resolve())


async def test_a_path_is_asked_for_once_and_what_is_asked_is_what_it_leads_to(folder: Folder) -> None:
    link = folder.place / "link"
    link.symlink_to(folder.file)
    assert await folder.ask(gate(), link, Answer("approve")) == folder.file
    (question,) = folder.questions
    assert (question.kind, question.code) == ("path", f"read {folder.file}")
    assert question.arguments == {"path": str(folder.file), "access": "read"}
    assert question.remember == ("session", "folder", "never")


async def test_a_yes_for_one_call_opens_nothing_for_later_calls(folder: Folder) -> None:
    held = gate()
    await folder.ask(held, folder.file, Answer("approve"))
    assert await folder.paths(held).find_allowed() == ((), ())
    assert await folder.ask(held, folder.file, Answer("deny")) is None


async def test_a_path_or_its_folder_is_open_for_the_rest_of_the_session(folder: Folder) -> None:
    held = gate()
    assert await folder.ask(held, folder.file, Answer("approve", "session")) == folder.file
    assert await folder.paths(held).find_allowed() == ((folder.file,), ())
    new = folder.place / "new.csv"
    assert await folder.ask(held, new, Answer("approve", "folder"), write=True) == folder.place
    assert await folder.paths(held).find_allowed() == ((folder.file,), (folder.place,))
    elsewhere = ApprovedPaths(held, replace(context(), key=replace(KEY, id="other")))
    assert await elsewhere.find_allowed() == ((), ())


async def test_never_is_not_asked_again(folder: Folder) -> None:
    held = gate()
    assert await folder.ask(held, folder.file, Answer("deny", "never")) is None
    assert await folder.ask(held, folder.file, None) is None
    assert await folder.paths(held).find_allowed() == ((), ())


async def test_a_grant_that_leads_elsewhere_since_then_does_not_count(folder: Folder) -> None:
    held = gate()
    await folder.ask(held, folder.file, Answer("approve", "session"))
    folder.file.unlink()
    folder.file.symlink_to("/etc/passwd")
    assert await folder.paths(held).find_allowed() == ((), ())


@pytest.mark.parametrize("where", [".", "..", "home/.ssh", "home/.ssh/id"])
async def test_what_is_hidden_or_holds_it_is_never_asked_for(folder: Folder, where: str) -> None:
    secret = folder.place.parent / "home" / ".ssh"
    secret.mkdir()
    (secret / "id").write_text("key")
    held = gate(hidden=(secret,))
    assert await folder.ask(held, folder.place.parent / where, None) is None
    (folder.place / "link").symlink_to(secret)
    assert await folder.ask(held, folder.place / "link", None) is None


async def test_a_folder_that_holds_the_home_directory_is_not_offered(folder: Folder) -> None:
    beside_home = folder.place.parent / "b.csv"
    beside_home.write_text("1")
    await folder.ask(gate(), beside_home, Answer("approve"))
    assert folder.questions[0].remember == ("session", "never")
    await folder.ask(gate(), folder.place, Answer("approve"))
    assert folder.questions[0].remember == ("session", "never"), "a folder is itself what is asked for"


async def test_what_is_not_there_can_not_be_read_and_is_not_asked_for(folder: Folder) -> None:
    loop = folder.place / "loop"
    loop.symlink_to(loop)
    for path in (folder.place / "none.csv", loop, Path("a\0b")):
        assert await folder.ask(gate(), path, None) is None


async def test_nobody_there_policy_and_request_close_paths_without_a_question(folder: Folder) -> None:
    for held in (gate(answers=frozenset()), gate(policy={"path": "deny"}), gate(request="deny"), gate(server="deny")):
        assert await folder.ask(held, folder.file, None) is None
    assert await folder.ask(gate(policy={"path": "auto"}), folder.file, None) == folder.file
    granted = gate()
    await folder.ask(granted, folder.file, Answer("approve", "session"))
    assert await folder.paths(replace(granted, request="deny")).find_allowed() == ((), ())
    assert await folder.paths(replace(granted, remembered=False)).find_allowed() == ((), ())
    assert await folder.paths(replace(granted, denied=frozenset({"path"}))).find_allowed() == ((), ())


async def test_a_name_with_control_characters_is_shown_escaped(folder: Folder) -> None:
    evil = folder.place / "a\x1b[2J\nread nothing"
    evil.write_text("1")
    await folder.ask(gate(), evil, Answer("deny"))
    assert "\x1b" not in folder.questions[0].code
    assert "\n" not in folder.questions[0].code
