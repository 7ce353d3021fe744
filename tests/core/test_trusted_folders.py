"""Tests folders that a user trusts."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.trusted_folders import TrustStore, file_digest


def test_a_folder_is_trusted_with_what_lies_below_it_and_by_its_real_path(tmp_path: Path) -> None:
    real, other = tmp_path / "real", tmp_path / "other"
    (real / "below").mkdir(parents=True)
    other.mkdir()
    (tmp_path / "link").symlink_to(real)
    trust = TrustStore(tmp_path / "data" / "trusted.json")
    assert not trust.trusts(real)
    assert trust.add(tmp_path / "link").path == real
    assert trust.trusts(real / "below")
    assert trust.trusts(tmp_path / "link")
    assert not trust.trusts(other)
    assert not trust.trusts(tmp_path)
    assert not trust.trusts(None)
    assert not trust.trusts(tmp_path / "real-not")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(other)
    assert not trust.trusts(tmp_path / "link"), "the name leads elsewhere now"


def test_trust_is_kept_outside_the_folder_and_can_be_taken_back(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = tmp_path / "data" / "trusted.json"
    TrustStore(path).add(folder)
    assert list(folder.iterdir()) == []
    assert path.stat().st_mode & 0o777 == 0o600
    assert [known.path for known in TrustStore(path).folders()] == [folder]
    assert TrustStore(path).remove(folder)
    assert not TrustStore(path).remove(folder)
    assert not TrustStore(path).trusts(folder)


def test_commands_are_trusted_by_what_they_are(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text("{}")
    trust = TrustStore(tmp_path / "trusted.json")
    trust.add(tmp_path)
    assert trust.is_trusted_file(tmp_path, ".mcp.json", file_digest(tmp_path / ".mcp.json"))
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {}}')
    assert not trust.is_trusted_file(tmp_path, ".mcp.json", file_digest(tmp_path / ".mcp.json"))
    (tmp_path / "below").mkdir()
    assert not trust.is_trusted_file(tmp_path / "below", ".mcp.json", "")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"folders": 7}', '{"folders": {"/": 7}}'])
def test_a_broken_file_trusts_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trusted.json"
    path.write_text(text)
    assert TrustStore(path).folders() == []
    assert not TrustStore(path).trusts(tmp_path)


def test_not_everything_can_be_trusted_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        TrustStore(tmp_path / "t.json").add(Path("/"))
    with pytest.raises(InvalidRequest):
        TrustStore(tmp_path / "t.json").add(tmp_path / "not there")
