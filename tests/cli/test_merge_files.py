"""``agent-kernel sessions merge-files``: the merge driver of git for NAME.agent.json."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from agent_kernel.core.messages import assistant, user
from agent_kernel.core.session import SessionKey, Turn
from agent_kernel.sessions.export.store_copy import read_snapshot
from agent_kernel.sessions.export.transcript import export, parse
from agent_kernel.sessions.store.memory import MemoryStore
from tests.cli.conftest import Command

KEY = SessionKey("local", "s1")
NAME = "a.agent.json"


async def document(*turns: str) -> bytes:
    async with aclosing(MemoryStore()) as store:
        for turn in turns:
            await store.add_turn(Turn(turn, KEY), [user(turn), assistant(f"to {turn}")])
        whole = await read_snapshot(store, KEY)
        assert whole is not None
        return export(whole).document


async def test_git_merges_two_branches_of_a_repository_into_one_session(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        names = {"GIT_AUTHOR_NAME": "ann", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "ann"}
        env = {**os.environ, **names, "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(["git", *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    git("init", "-q", "-b", "main")
    git("config", "merge.agent-kernel.name", "conversations beside notebooks")
    driver = f"{sys.executable} -m agent_kernel.cli sessions merge-files %O %A %B"
    git("config", "merge.agent-kernel.driver", driver)
    (tmp_path / ".gitattributes").write_text("*.agent.json merge=agent-kernel\n")
    for branch, turns in (("main", ("t1",)), ("other", ("t1", "theirs")), ("main", ("t1", "ours"))):
        git("checkout", "-q", *(["-b"] if branch == "other" else []), branch) if turns != ("t1",) else None
        (tmp_path / NAME).write_bytes(await document(*turns))
        git("add", ".")
        git("commit", "-q", "-m", branch)
    git("merge", "-q", "other")
    merged = parse((tmp_path / NAME).read_bytes())
    assert [turn.id for turn in merged.turns] == ["t1", "ours", "theirs"]
    assert [branch.name for branch in merged.branches] == ["main", "branch-2"]
    assert git("status", "--porcelain") == ""


@pytest.mark.parametrize("broken", ["ours", "theirs"])
def test_what_cannot_be_merged_is_left_unchanged_and_is_an_error(command: Command, tmp_path: Path, broken: str) -> None:
    versions = {"base": b"", "ours": asyncio.run(document("t1", "a")), "theirs": asyncio.run(document("t1", "b"))}
    versions[broken] = b"{}" if broken == "ours" else b""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, body in versions.items():
        (folder / name).write_bytes(body)
    ended = command("sessions", "merge-files", *(str(folder / name) for name in versions))
    assert 0 < ended.status < 128, "git then reports a conflict"
    assert ended.err.startswith("agent-kernel")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == versions


def test_two_versions_that_began_without_a_common_one_are_merged(command: Command, tmp_path: Path) -> None:
    versions = {"base": b"", "ours": asyncio.run(document("t1", "a")), "theirs": asyncio.run(document("t1", "b"))}
    for name, body in versions.items():
        (tmp_path / name).write_bytes(body)
    ended = command("sessions", "merge-files", *(str(tmp_path / name) for name in versions))
    assert (ended.status, ended.out) == (0, "")
    assert len(parse((tmp_path / "ours").read_bytes()).turns) == 3


def test_a_program_reads_what_the_merged_document_contains(command: Command, tmp_path: Path) -> None:
    versions = {"base": document("t1"), "ours": document("t1", "a"), "theirs": document("t1", "b")}
    for name, body in versions.items():
        (tmp_path / name).write_bytes(asyncio.run(body))
    ended = command("sessions", "merge-files", *(str(tmp_path / name) for name in versions), "--json")
    session = parse((tmp_path / "ours").read_bytes()).session.key.id
    where = {"path": str(tmp_path / "ours"), "session": session}
    assert ended.json == {**where, "branches": ["main", "branch-2"], "turns": 3, "items": 6}
