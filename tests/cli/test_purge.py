"""Tests ``agent-kernel where`` and ``purge``: no reachable part of a conversation remains, and the command reports the
rest.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_kernel.core.messages import Media, assistant, user
from agent_kernel.core.session import Owner, SessionKey, Turn
from agent_kernel.core.settings import Settings
from agent_kernel.sessions import storage_locations
from agent_kernel.sessions.store.sqlite import SqliteStore
from jupyter_ext.api.responses.response_object import ResponseFacts, response_id
from jupyter_ext.api.responses.store import DatabaseResponses, ResponseOwner, StoredResponse
from tests.cli.conftest import Command

SECRET = "the-launch-code"
KEY = SessionKey("local", "s1")
OTHER = SessionKey("local", "s2")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A contents root with a notebook and everything that a server stores beside it."""
    made = tmp_path / "notebooks"
    (made / "a.agent").mkdir(parents=True)
    (made / "a.agent" / "medium").write_text(SECRET)
    for name in ("a.ipynb", "a.agent.json", "a.agent.json.bak", "a.agent.conflict.json", "b.agent.json"):
        (made / name).write_text(SECRET)
    return made


@pytest.fixture
def kept(command: Command, root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    monkeypatch.setenv("AGENT_KERNEL_TRANSCRIPTS", str(tmp_path / "live"))

    async def fill(store: SqliteStore) -> None:
        for key, path in ((KEY, "a.ipynb"), (OTHER, "b.ipynb")):
            pictures = [Media.of("image/png", SECRET.encode() * size) for size in (1, 10_000)]
            turn = Turn(f"turn-{key.id}", key, record={"local": False, "host": "models.example"})
            await store.add_turn(turn, [user(SECRET, pictures), assistant(SECRET)])
            await store.bind("local", str(root), path, key.id)
        await store.fold()

    command.on_store(fill)
    asyncio.run(store_responses(command.data))
    backup = storage_locations.sidecar_backup_paths(places_settings(command), root / "a.ipynb")[0]
    backup.parent.mkdir(parents=True)
    backup.write_text(SECRET)
    for key in (KEY, OTHER):
        for path in storage_locations.session_paths(places_settings(command), key):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if path.suffix != ".json" else path.write_text("{}")
    return command


async def store_responses(data: Path) -> None:
    """Store a response of each session, as the Responses API does."""
    responses = DatabaseResponses(data / "responses.db")
    for key in (KEY, OTHER):
        facts = ResponseFacts(response_id("local", f"turn-{key.id}"), "m", key.id, created=1e11, echo={})
        response = StoredResponse(ResponseOwner("local", "user"), f"turn-{key.id}", facts, [{"content": SECRET}])
        await responses.add(response)
        await responses.finish(response, {"output_text": SECRET}, [])
    await responses.aclose()


def places_settings(command: Command) -> Settings:
    return Settings(data_dir=command.data)


def holding(*directories: Path) -> set[str]:
    """Return the names of the files that contain the secret."""
    files = [path for directory in directories for path in directory.rglob("*") if path.is_file()]
    return {path.name for path in files if SECRET.encode() in path.read_bytes()}


def test_every_place_is_told_with_its_size(kept: Command, root: Path) -> None:
    rows = kept("where", "--json").json
    by_path = {Path(row["path"]).name: row for row in rows}
    places = {"sessions.db", "responses.db", "work", "engines", "a.agent.json", "a.agent", "b.agent.json"}
    assert places <= set(by_path)
    assert by_path["a.agent"]["bytes"] >= len(SECRET)
    assert all(row["private"] for row in rows)
    assert "does not know about exports" in kept("where").out


def test_where_makes_nothing(command: Command) -> None:
    assert command("where", "--json").json == []
    assert not command.data.exists()


def test_a_notebook_is_purged_with_all_that_can_be_reached(kept: Command, root: Path) -> None:
    told = kept("purge", "--notebook", str(root / "a.ipynb"), "--yes", "--json")
    assert told.status == 0, told.err
    assert [row["id"] for row in told.json["sessions"]] == ["s1"]
    assert holding(root) == {"a.ipynb", "b.agent.json"}, "the notebook itself is the person's"
    assert not list((kept.data / storage_locations.SIDECAR_BACKUPS).rglob("*.json"))
    left = " ".join(told.json["left"])
    for what in (f"{root / 'a.ipynb'}: answers in its outputs", "models.example", "exports", "backups"):
        assert what in left
    work, choice = storage_locations.session_paths(places_settings(kept), KEY)
    assert not work.exists()
    assert not choice.exists()
    assert storage_locations.session_paths(places_settings(kept), OTHER)[0].exists()
    assert [row["id"] for row in kept("sessions", "--json").json] == ["s2"]


def test_after_the_last_session_no_file_of_ours_holds_a_word_of_it(kept: Command, root: Path) -> None:
    assert kept("purge", "--session", "s1", "--yes").status == 0
    assert kept("purge", "--session", "s2", "--yes").status == 0
    assert holding(kept.data) == set()


def test_everything_is_purged(kept: Command, root: Path) -> None:
    for name in ("sessions.db.bak-v1", "chat_history"):
        (kept.data / name).write_text(SECRET)
    (kept.data / "environments").mkdir()
    assert kept("purge", "--all", "--yes").status == 0
    assert holding(kept.data, root) == {"a.ipynb"}
    assert (kept.data / "environments").exists()
    assert kept("sessions", "--json").json == []


def test_responses_are_purged_also_after_their_conversation_was_deleted(kept: Command, root: Path) -> None:
    assert kept("sessions", "delete", "s1", "s2", "--yes").status == 0
    assert "responses.db" in holding(kept.data)
    purged = kept("purge", "--session", "s1", "--yes")
    assert purged.status == 0, purged.err
    assert "responses  s1" in purged.err
    assert "responses.db" in holding(kept.data)
    assert kept("purge", "--all", "--yes").status == 0
    assert holding(kept.data) == set()


def test_a_notebook_that_was_deleted_or_moved_can_still_be_purged(kept: Command, root: Path) -> None:
    async def deleted(store: SqliteStore) -> None:
        await store.move(str(root), "a.ipynb", "deleted:at-1/a.ipynb")

    kept.on_store(deleted)
    (root / "a.ipynb").unlink()
    assert [
        row["id"] for row in kept("purge", "--notebook", str(root / "a.ipynb"), "--yes", "--json").json["sessions"]
    ] == ["s1"]


def test_nothing_is_removed_without_a_yes_or_while_a_turn_runs(kept: Command, root: Path) -> None:
    before = holding(kept.data, root)
    refused = kept("purge", "--notebook", str(root / "a.ipynb"))
    assert (refused.status, "Add --yes" in refused.err, "s1" in refused.err) == (1, True, True)

    async def running(store: SqliteStore) -> None:
        await store.open_turn(Turn("t", KEY), Owner.here())

    kept.on_store(running)
    for what in (("--all",), ("--session", "s1"), ("--notebook", str(root / "a.ipynb"))):
        busy = kept("purge", *what, "--yes")
        assert (busy.status, "A turn is running; nothing was removed." in busy.err) == (1, True)
    assert holding(kept.data, root) >= before
    assert kept("purge", "--session", "s2", "--yes").status == 0, "another one may go meanwhile"


def test_what_is_not_here_can_not_be_purged(kept: Command, root: Path) -> None:
    for what in (("--session", "nobody"), ("--notebook", str(root / "c.ipynb"))):
        refused = kept("purge", *what, "--yes")
        assert (refused.status, "No data of this notebook or session is stored here" in refused.err) == (1, True)


def test_a_link_is_removed_and_not_what_it_leads_to(kept: Command, root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    work, _ = storage_locations.session_paths(places_settings(kept), KEY)
    work.rmdir()
    work.symlink_to(precious)
    assert kept("purge", "--session", "s1", "--yes").status == 0
    assert not work.is_symlink()
    assert (precious / "file").read_text() == "mine"


def test_what_can_not_be_removed_is_told(kept: Command, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path == root / "a.agent.json":
            raise PermissionError(13, "Permission denied")
        real(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    told = kept("purge", "--session", "s1", "--yes", "--json")
    assert (told.status, told.json["not_removed"]) == (1, [str(root / "a.agent.json")])
