"""Tests sidecars of sessions in a real store, without a server."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media, assistant, user
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.core.settings import Settings
from agent_kernel.engines.scripted import ScriptedEngine
from agent_kernel.sessions.contract_tests.fixtures import calls, result
from agent_kernel.sessions.export.import_export import import_session
from agent_kernel.sessions.export.transcript import INLINE_BYTES, Exported, Transcript, export, parse
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.private_store import PrivateStore, private_id
from agent_kernel.turn.agent import Agent
from jupyter_ext.notebooks.bindings import Notebooks
from jupyter_ext.notebooks.sidecar_import import SidecarImport, sidecar_note
from jupyter_ext.notebooks.sidecar_writer import Sidecars
from tests.narrowing import not_none

KEY = SessionKey("local", "s1")


class NoSessions:
    async def list_sessions(self) -> list[dict[str, Any]]:
        return []


@dataclass
class Desk:
    """A contents root with one notebook, a store and its sidecar writer."""

    root: Path
    settings: Settings
    store: SessionStore = field(default_factory=MemoryStore)
    hidden: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.notebooks = Notebooks(self.store, NoSessions(), str(self.root))
        self.sidecars = Sidecars(self.store, self.notebooks, self.settings, lambda path: path in self.hidden)
        self.sidecar_imports = SidecarImport(self.store, self.notebooks, self.sidecars)

    async def talk(self, key: SessionKey = KEY, said: str = "hello", path: str = "a.ipynb") -> None:
        (self.root / path).write_text("{}")
        engine = ScriptedEngine([{"text": f"You said {said}."}])
        await Agent(self.store, engine, key).run(said)
        await self.notebooks.bind(key, path)

    async def save(self, path: str = "a.ipynb") -> None:
        self.sidecars.on_saved("local", str(self.root / path))
        await self.sidecars.write_marked()

    async def talk_and_save(self, said: str = "hello", path: str = "a.ipynb") -> None:
        await self.talk(said=said, path=path)
        await self.save(path)

    def backup(self, path: str = "a.ipynb") -> Path:
        return not_none(self.sidecars.file(path)).bak

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    root = tmp_path / "root"
    root.mkdir()
    desk = Desk(root, Settings(data_dir=tmp_path / "data"))
    yield desk
    await desk.store.aclose()


async def test_a_save_writes_the_session_beside_the_notebook(desk: Desk) -> None:
    await desk.talk_and_save()
    written = parse((desk.root / "a.agent.json").read_bytes())
    assert written.session.key.id == "s1"
    assert [item.message.text for item in written.items] == ["hello", "You said hello."]


async def test_a_notebook_without_a_session_or_with_an_empty_one_gets_no_sidecar(desk: Desk) -> None:
    (desk.root / "a.ipynb").write_text("{}")
    await desk.save()
    await desk.store.create(KEY)
    await desk.notebooks.bind(KEY, "a.ipynb")
    await desk.save()
    assert desk.names() == ["a.ipynb"]


async def test_a_cleared_session_does_not_empty_the_sidecar(desk: Desk) -> None:
    await desk.talk_and_save()
    before = (desk.root / "a.agent.json").read_bytes()
    await desk.store.clear(KEY)
    await desk.save()
    assert (desk.root / "a.agent.json").read_bytes() == before


async def test_the_end_of_a_turn_writes_the_sidecar_of_a_notebook_that_was_saved(desk: Desk) -> None:
    await desk.talk()
    await desk.notebooks.bind(KEY, "never-saved.ipynb")
    await desk.sidecars.touch(KEY)
    await desk.sidecars.write_marked()
    assert desk.names() == ["a.agent.json", "a.ipynb"]


async def test_saving_again_without_a_change_writes_nothing(desk: Desk) -> None:
    await desk.talk_and_save()
    before = (desk.root / "a.agent.json").stat()
    await desk.save()
    assert (desk.root / "a.agent.json").stat().st_mtime_ns == before.st_mtime_ns
    assert desk.names() == ["a.agent.json", "a.ipynb"]


async def test_a_save_of_an_unchanged_session_does_not_read_it_unless_the_file_has_changed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.talk_and_save()
    whole, reads = desk.store.whole, list[SessionKey]()

    async def counted(key: SessionKey) -> Any:
        reads.append(key)
        return await whole(key)

    monkeypatch.setattr(desk.store, "whole", counted)
    await desk.save()
    assert reads == []
    main = desk.root / "a.agent.json"
    written = main.read_bytes()
    main.unlink()
    await desk.save()
    assert (len(reads), main.read_bytes()) == (1, written)
    await desk.store.rename(KEY, "another title")
    await desk.save()
    assert len(reads) == 2
    assert parse(main.read_bytes()).session.title == "another title"


async def test_a_notebook_that_goes_on_with_another_session_keeps_the_last_one_as_bak(desk: Desk) -> None:
    await desk.talk_and_save()
    await desk.talk(SessionKey("local", "s2"), "other")
    await desk.save()
    assert parse((desk.root / "a.agent.json").read_bytes()).session.key.id == "s2"
    assert parse(desk.backup().read_bytes()).session.key.id == "s1"
    assert desk.names() == ["a.agent.json", "a.ipynb"], "no backup is listed beside the notebook"


async def test_a_write_that_runs_while_outputs_are_cleared_leaves_no_backup_with_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its document is the one with the outputs, and the next write makes that document the backup."""
    reading, go_on = asyncio.Event(), asyncio.Event()
    whole = desk.store.whole

    async def slow(key: SessionKey) -> Any:
        read = await whole(key)
        reading.set()
        await go_on.wait()
        return read

    await desk.talk()
    await desk.store.add_turn(Turn("t1", KEY), [user("go"), calls("c1"), result("c1", "secret"), assistant("done")])
    await desk.save()
    await desk.talk()
    monkeypatch.setattr(desk.store, "whole", slow)
    write = asyncio.create_task(desk.save())
    await reading.wait()
    assert await desk.store.clear_outputs(KEY, ["t1"], "cleared") == 1
    await desk.sidecars.touch(KEY, forget=True)
    go_on.set()
    await write
    await desk.sidecars.write_marked()
    kept = [path for place in (desk.root, desk.settings.data_dir) for path in place.rglob("*") if path.is_file()]
    assert {path.name for path in kept if b"secret" in path.read_bytes()} == set()


@pytest.mark.parametrize("foreign", ["another store's session", "a later revision", "no transcript"])
async def test_a_sidecar_that_this_store_does_not_know_is_kept(desk: Desk, foreign: str) -> None:
    await desk.talk_and_save()
    main = desk.root / "a.agent.json"
    if foreign == "another store's session":
        main.write_bytes(main.read_bytes().replace(b'"s1"', b'"s9"'))
    elif foreign == "a later revision":
        main.write_bytes(re.sub(rb'"revision": *\d+', b'"revision": 999', main.read_bytes()))
        assert parse(main.read_bytes()).session.revision == 999
    else:
        main.write_bytes(b"notes of a person")
    there = main.read_bytes()
    await desk.talk(said="more")
    await desk.save()
    assert main.read_bytes() == there
    assert [item.message.text for item in parse((desk.root / "a.agent.conflict.json").read_bytes()).items][-2] == "more"


async def test_a_sidecar_follows_its_notebook(desk: Desk) -> None:
    await desk.talk_and_save()
    (desk.root / "a.ipynb").rename(desk.root / "b.ipynb")
    await desk.notebooks.on_renamed("a.ipynb", "b.ipynb")
    await desk.sidecars.on_renamed("a.ipynb", "b.ipynb")
    assert desk.names() == ["b.agent.json", "b.ipynb"]
    await desk.sidecars.on_deleted("local", "b.ipynb")
    assert desk.names() == ["b.ipynb"]
    assert await desk.store.info(KEY) is not None


async def test_a_backup_follows_its_notebook_and_its_directory(desk: Desk) -> None:
    (desk.root / "one").mkdir()
    for said in ("first", "second"):
        await desk.talk_and_save(said=said, path="one/a.ipynb")
    kept = desk.backup("one/a.ipynb").read_bytes()
    (desk.root / "one").rename(desk.root / "two")
    await desk.sidecars.on_renamed("one", "two")
    assert desk.backup("two/a.ipynb").read_bytes() == kept
    (desk.root / "two" / "a.ipynb").rename(desk.root / "b.ipynb")
    await desk.sidecars.on_renamed("two/a.ipynb", "b.ipynb")
    assert desk.backup("b.ipynb").read_bytes() == kept
    await desk.sidecars.on_deleted("local", "b.ipynb")
    assert [path for path in desk.settings.data_dir.rglob("*") if path.is_file() and path.name != "sidecars.lock"] == []


async def test_a_backup_follows_files_that_a_person_has_moved_without_jupyter(desk: Desk) -> None:
    for said in ("first", "second"):
        await desk.talk_and_save(said=said)
    kept = desk.backup().read_bytes()
    for name in ("ipynb", "agent.json"):
        (desk.root / f"a.{name}").rename(desk.root / f"b.{name}")
    assert await desk.sidecar_imports.find_arriving_session("local", "b.ipynb") == KEY
    assert desk.backup("b.ipynb").read_bytes() == kept
    assert not desk.backup().exists()


async def test_the_backups_of_a_deleted_directory_are_deleted(desk: Desk) -> None:
    (desk.root / "one").mkdir()
    for said in ("first", "second"):
        await desk.talk_and_save(said=said, path="one/a.ipynb")
    await desk.sidecars.on_deleted("local", "one/a.agent.json")
    assert desk.backup("one/a.ipynb").exists(), "a person can restore a sidecar that was deleted alone"
    await desk.sidecars.on_deleted("local", "one")
    assert not desk.backup("one/a.ipynb").exists()


async def test_a_sidecar_that_cannot_be_read_is_reported_with_the_place_of_its_backup(desk: Desk) -> None:
    for said in ("first", "second"):
        await desk.talk_and_save(said=said)
    main = desk.root / "a.agent.json"
    main.write_bytes(main.read_bytes()[:100])
    note = sidecar_note(await desk.sidecar_imports.inspect("local", "a.ipynb"), main.name)
    assert str(desk.backup()) in note
    main.write_bytes(desk.backup().read_bytes())
    assert (await desk.sidecar_imports.inspect("local", "a.ipynb")).kind == "own"


async def test_a_deleted_notebook_leaves_a_sidecar_that_is_not_in_the_store(desk: Desk) -> None:
    (desk.root / "a.agent.json").write_text("{}")
    await desk.sidecars.on_deleted("local", "a.ipynb")
    assert desk.names() == ["a.agent.json"]


async def test_a_sidecar_that_can_not_be_written_is_told_and_written_at_the_next_save(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    await desk.talk()
    (desk.root / ".a.agent.json.blocked").touch()
    blocker = desk.root / "a.agent.json"
    blocker.mkdir()
    await desk.save()
    await desk.save()
    problem = desk.sidecars.problem("local", "a.ipynb")
    assert "a.ipynb" in problem
    assert len([record for record in caplog.records if "was not saved" in record.message]) == 1
    blocker.rmdir()
    await desk.save()
    assert desk.sidecars.problem("local", "a.ipynb") == ""
    assert parse(blocker.read_bytes()).session.key.id == "s1"


async def test_what_the_contents_manager_hides_gets_no_sidecar(desk: Desk) -> None:
    desk.hidden = ("a.ipynb",)
    await desk.talk_and_save()
    assert desk.names() == ["a.ipynb"]


async def test_export_can_be_off_or_go_to_the_data_directory(desk: Desk) -> None:
    await desk.talk()
    off = Desk(desk.root, replace(desk.settings, export="off"), desk.store)
    await off.save()
    apart = Desk(desk.root, replace(desk.settings, export="data_dir"), desk.store)
    await apart.save()
    assert desk.names() == ["a.ipynb"]
    (found,) = desk.settings.data_dir.rglob("*.agent.json")
    assert parse(found.read_bytes()).session.key.id == "s1"


async def test_a_stopping_server_writes_what_is_marked(desk: Desk) -> None:
    await desk.talk()
    desk.sidecars.start()
    desk.sidecars.on_saved("local", str(desk.root / "a.ipynb"))
    await desk.sidecars.aclose()
    assert desk.names() == ["a.agent.json", "a.ipynb"]


async def test_a_conversation_beyond_the_limit_stays_in_the_store_and_the_sidecar_as_it_was(desk: Desk) -> None:
    await desk.talk_and_save()
    before = (desk.root / "a.agent.json").read_bytes()
    small = Desk(desk.root, replace(desk.settings, export_max_mb=1), desk.store)
    await small.talk(said="x" * 2_000_000)
    await small.save()
    assert "more than export_max_mb = 1" in small.sidecars.problem("local", "a.ipynb")
    assert (desk.root / "a.agent.json").read_bytes() == before


async def test_a_private_conversation_has_no_sidecar(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    desk = Desk(root, Settings(data_dir=tmp_path / "data"), PrivateStore(MemoryStore()))
    await desk.talk(SessionKey("local", private_id()))
    await desk.save()
    await desk.sidecars.touch(SessionKey("local", private_id()))
    assert desk.names() == ["a.ipynb"]
    await desk.store.aclose()


async def test_notebooks_that_are_no_files_here_have_no_sidecar_and_that_is_told(desk: Desk) -> None:
    await desk.talk()
    away = Sidecars(desk.store, desk.notebooks, desk.settings, lambda path: False, local=False)
    away.on_saved("local", str(desk.root / "a.ipynb"))
    await away.on_renamed("a.ipynb", "b.ipynb")
    await away.on_deleted("local", "b.ipynb")
    await away.write_marked()
    assert desk.names() == ["a.ipynb"]
    assert "only in the store" in away.problem("local", "a.ipynb")


async def test_an_imported_conversation_takes_the_place_of_what_it_came_from(desk: Desk) -> None:
    await desk.talk_and_save()
    other = Desk(desk.root, desk.settings, MemoryStore())
    assert (await other.sidecar_imports.inspect("local", "a.ipynb")).kind == "foreign"
    found = not_none(await other.sidecar_imports.read_document("a.ipynb"))
    come = await import_session(other.store, "local", found[0], files=found[1])
    await other.notebooks.bind(come.session.key, "a.ipynb")
    assert (await other.sidecar_imports.inspect("local", "a.ipynb")).kind == "own"
    await other.save()
    assert parse((desk.root / "a.agent.json").read_bytes()).session.key == come.session.key
    assert desk.backup().read_bytes() == found[0]
    await other.store.aclose()


@pytest.mark.parametrize("notebook", ["with the picture", "without", "malformed"])
async def test_a_picture_whose_file_did_not_come_along_is_taken_from_the_notebook(desk: Desk, notebook: str) -> None:
    picture = Media.of("image/png", b"\x89PNG" + bytes(INLINE_BYTES))
    await desk.talk()
    await desk.store.add_turn(Turn("t1", KEY), [user("look", [picture]), assistant("seen")])
    await desk.save()
    (file,) = (desk.root / "a.agent").iterdir()
    assert file.name == picture.hash
    file.unlink()
    data = {"image/png": base64.encodebytes(picture.data or b"").decode(), "text/plain": "no base64"}
    cells = {"with the picture": [{"outputs": [{"data": data}]}, {}], "without": [{}], "malformed": 1}[notebook]
    (desk.root / "a.ipynb").write_text(json.dumps({"cells": cells}))
    found = not_none(await desk.sidecar_imports.read_document("a.ipynb"))
    assert found[1] == ({picture.hash: picture.data} if notebook == "with the picture" else {})


async def test_a_sidecar_that_is_ahead_of_the_store_is_told_and_kept(desk: Desk) -> None:
    await desk.talk_and_save()
    main = desk.root / "a.agent.json"
    main.write_bytes(re.sub(rb'"revision": *\d+', b'"revision": 999', main.read_bytes()))
    found = await desk.sidecar_imports.inspect("local", "a.ipynb")
    assert found.kind == "ahead"
    assert "Import the file" in sidecar_note(found, "a.agent.json")
    await desk.talk(said="more")
    await desk.save()
    assert "a.agent.conflict.json" in desk.sidecars.problem("local", "a.ipynb")
    assert parse(main.read_bytes()).session.revision == 999


@pytest.mark.parametrize("there", [b"notes of a person", b"{}", b"[" * 10_000])
async def test_what_is_no_conversation_is_told_and_never_brought_in(desk: Desk, there: bytes) -> None:
    (desk.root / "a.ipynb").write_text("{}")
    (desk.root / "a.agent.json").write_bytes(there)
    found = await desk.sidecar_imports.inspect("local", "a.ipynb")
    assert found.kind == "unreadable"
    assert "The file is not changed" in sidecar_note(found, "a.agent.json")
    assert await desk.sidecar_imports.find_arriving_session("local", "a.ipynb") is None
    with pytest.raises(InvalidRequest):
        await desk.sidecar_imports.read_document("a.ipynb")


async def test_two_servers_of_one_store_end_with_the_newest_and_without_a_conflict(desk: Desk) -> None:
    await desk.talk()
    other = Desk(desk.root, desk.settings, desk.store)
    for turn in range(6):
        await desk.talk(said=f"turn {turn}")
        for each in (desk, other):
            each.sidecars.on_saved("local", str(desk.root / "a.ipynb"))
        await asyncio.gather(desk.sidecars.write_marked(), other.sidecars.write_marked())
    await asyncio.gather(desk.save(), other.save())
    written = parse((desk.root / "a.agent.json").read_bytes())
    kept = not_none(await desk.store.info(KEY))
    assert written.session.revision == kept.revision
    assert desk.names() == ["a.agent.json", "a.ipynb"]


async def test_a_server_that_is_behind_does_not_write_an_older_version_over_a_newer(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await desk.talk()
    slow, fast = desk, Desk(desk.root, desk.settings, desk.store)
    waiting = [True]

    def overtaken(whole: Transcript) -> Exported:
        """Export the session, but only after another server has written the next turn."""
        written = export(whole)
        if waiting:
            waiting.pop()
            asyncio.run_coroutine_threadsafe(later(), loop).result(20)
        return written

    async def later() -> None:
        await fast.talk(said="later")
        await fast.save()

    loop = asyncio.get_running_loop()
    monkeypatch.setattr("jupyter_ext.notebooks.sidecar_writer.export", overtaken)
    await slow.save()
    texts = [item.message.text for item in parse((desk.root / "a.agent.json").read_bytes()).items]
    assert "later" in texts
    assert not (desk.root / "a.agent.conflict.json").exists()
