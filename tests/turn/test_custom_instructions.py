"""Tests the user's instructions: the setting, and AGENTS.md of a trusted folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_kernel.core.messages import system, user
from agent_kernel.core.trusted_folders import TrustStore
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.turn.context import INSTRUCTIONS
from agent_kernel.turn.custom_instructions import CUT, FILE, MAX_CHARS, read_instructions
from tests.turns import agent


@pytest.fixture
def trust(tmp_path: Path) -> TrustStore:
    return TrustStore(tmp_path / "trusted.json")


def folder_with(text: str, path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / FILE).write_text(text)
    return path


def test_the_file_counts_only_in_a_trusted_folder_and_stands_behind_the_setting(
    tmp_path: Path, trust: TrustStore
) -> None:
    project = folder_with("Use polars.\n", tmp_path / "project")
    assert read_instructions("Answer in German.", project, trust) == "Answer in German."
    trust.add(project)
    assert read_instructions("Answer in German.", project, trust) == "Answer in German.\n\nUse polars."
    assert read_instructions("", project, trust) == "Use polars."
    assert read_instructions("", None, trust) == ""
    assert read_instructions("A", project, trust, " B ", "") == "A\n\nUse polars.\n\nB"


def test_the_nearest_file_of_a_trusted_folder_counts(tmp_path: Path, trust: TrustStore) -> None:
    folder_with("Nobody trusts this.", tmp_path)
    project = tmp_path / "project"
    (project / "a" / "b").mkdir(parents=True)
    trust.add(project)
    assert read_instructions("", project / "a" / "b", trust) == ""
    folder_with("Of the project.", project)
    assert read_instructions("", project / "a" / "b", trust) == "Of the project."
    folder_with("Of a.", project / "a")
    assert read_instructions("", project / "a" / "b", trust) == "Of a."


def test_a_long_file_is_cut_and_says_so(tmp_path: Path, trust: TrustStore) -> None:
    project = folder_with("ä" * 10 * MAX_CHARS, tmp_path / "project")
    trust.add(project)
    assert read_instructions("", project, trust) == "ä" * MAX_CHARS + CUT


def test_what_is_no_readable_file_is_no_instruction(tmp_path: Path, trust: TrustStore) -> None:
    project = tmp_path / "project"
    (project / FILE).mkdir(parents=True)
    trust.add(project)
    assert read_instructions("", project, trust) == ""
    (project / FILE).rmdir()
    os.mkfifo(project / FILE)
    assert read_instructions("", project, trust) == ""
    (project / FILE).unlink()
    (project / FILE).write_bytes(b"Use \xff.")
    assert read_instructions("", project, trust) == "Use \ufffd."


async def test_the_model_reads_them_behind_the_identity_and_a_client_s_own_take_their_place() -> None:
    it, store, engine = agent([{"text": "ok", "loop": True}])
    await it.run(TurnRequest("hello", instructions="Use polars."))
    assert engine.requests[-1].messages[0].text == f"{INSTRUCTIONS}\n\nUse polars."
    await it.run(TurnRequest(messages=(system("Be brief."), user("hi")), instructions="Use polars."))
    assert engine.requests[-1].messages[0].text == "Be brief."
    items = await store.latest(it.key)
    assert not [item for item in items if item.message.role == "system"]
