"""Tests ``agent-kernel mcp``, ``skills`` and ``trust`` as users and scripts call them."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.cli import main

PLAIN = Path(__file__).parents[1] / "tools" / "mcp" / "servers" / "plain.py"
HEAD = "---\nname: Charts\ndescription: Draws charts\n---\n"


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_KERNEL_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("AGENT_KERNEL_MCP_CONFIG", raising=False)


def read_json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_servers_are_tried_and_their_tools_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "mcp.json"
    good = {"command": sys.executable, "args": [str(PLAIN), str(tmp_path / "log"), "sk-secret-argument"]}
    config.write_text(json.dumps({"mcpServers": {"good": good, "bad": {"command": "no-such-command"}}}))
    assert main(["mcp", "list", "--config", str(config), "--json"]) == 1
    good_row, bad_row = read_json(capsys)
    assert (good_row["state"], good_row["problem"], "hold" in good_row["tools"]) == ("ok", "", True)
    assert bad_row["state"] == "failed"
    assert "cannot be started" in bad_row["problem"]
    assert main(["mcp", "list", "--config", str(config)]) == 1
    assert "sk-secret-argument" not in capsys.readouterr().out


def test_without_a_configuration_the_next_step_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "list"]) == 1
    assert "AGENT_KERNEL_MCP_CONFIG" in capsys.readouterr().err


def test_a_skill_is_added_from_a_folder_and_from_a_zip_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, packed = tmp_path / "charts", tmp_path / "charts.zip"
    folder.mkdir()
    (folder / "SKILL.md").write_text(HEAD)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("SKILL.md", HEAD.replace("Draws", "Still draws"))
    assert main(["skills", "add", str(folder), "--json"]) == 0
    added = read_json(capsys)[0]
    assert main(["skills", "add", str(packed), "--version-of", added["id"], "--json"]) == 0
    assert (read_json(capsys)[0]["version"], added["version"]) == (2, 1)
    assert main(["skills", "list", "--json"]) == 0
    assert [row["description"] for row in read_json(capsys)] == ["Still draws charts"]
    assert main(["skills", "remove", added["id"]]) == 0
    assert main(["skills", "remove", added["id"]]) == 1
    assert main(["skills", "add", str(tmp_path / "none.zip")]) == 1


def test_a_folder_is_trusted_and_not_any_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".mcp.json").write_text("{}")
    assert main(["trust", str(folder)]) == 0
    assert ".mcp.json as it is now" in capsys.readouterr().out
    assert main(["trust", "--json"]) == 0
    assert [(row["path"], row["files"]) for row in read_json(capsys)] == [(str(folder), [".mcp.json"])]
    assert main(["trust", "--remove", str(folder)]) == 0
    assert main(["trust", str(tmp_path / "none")]) == 1
