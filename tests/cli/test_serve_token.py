"""Where the login page says that the token of ``agent-kernel serve`` is."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.cli.serve_token import NAME, shown_place, token
from agent_kernel.core.settings import Settings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "anna"))
    for name in ("XDG_DATA_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "anna"


def test_the_default_file_is_shown_without_the_name_of_its_owner(home: Path) -> None:
    data_dir = Settings().data_dir
    shown = shown_place(token(None, data_dir, {}))
    assert Path(shown).parts[0] == "~"
    assert "anna" not in shown
    assert home.joinpath(*Path(shown).parts[1:]) == data_dir / NAME


def test_a_token_from_elsewhere_has_no_place_to_show(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine"
    file.write_text("x" * 32)
    assert shown_place(token(file, Settings().data_dir, {})) == ""
    assert shown_place(token(None, tmp_path / "data", {})) == ""
    assert shown_place(token(None, tmp_path / "data", {"JUPYTER_TOKEN": "x" * 32})) == ""


def test_a_data_directory_outside_of_the_home_is_not_shown(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "elsewhere")
    assert shown_place(token(None, Settings().data_dir, {})) == ""
