"""Tests the committed build of the panel: it matches its sources, and is small enough to load at once."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_layers import ROOT

LABEXTENSION = Path("jupyter_ext/labextensions/agent-kernel")
WEBAPP = Path("jupyter_ext/api/webapp/static")
BUILT = (LABEXTENSION, Path("agent_kernel/notebook/panel/static"), WEBAPP)
LIMIT = 350_000
START_LIMIT = 30_000
"""Bytes, as they travel. What Lab loads when it starts is a part of its own: the panel comes when Lab is idle."""
PAGE_LIMIT = 10_000
"""Of the web page without the widget's module, which has the panel: the page is no third copy of it."""


def files(root: Path) -> dict[str, bytes]:
    found = (path for place in BUILT for path in (root / place).rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def travelling(pattern: str) -> int:
    return sum(len(gzip.compress(path.read_bytes())) for path in ROOT.glob(pattern))


@pytest.mark.skipif(
    shutil.which("node") is None or not (ROOT / "ui" / "node_modules" / "esbuild").exists(),
    reason="what builds the panel is not here (make ui)",
)
def test_what_is_committed_is_what_the_sources_come_to(tmp_path: Path) -> None:
    command = ["node", "build.mjs", "--into", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT / "ui", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built, committed = files(tmp_path), files(ROOT)
    assert sorted(built) == sorted(committed), "make ui, and commit what changed"
    assert [name for name in built if built[name] != committed[name]] == []


def test_everything_that_lab_is_told_to_load_is_there() -> None:
    about = json.loads((ROOT / LABEXTENSION / "package.json").read_text())
    entry = ROOT / LABEXTENSION / about["jupyterlab"]["_build"]["load"]
    loaded = entry.read_text(encoding="utf-8")
    parts = [path for path in entry.parent.iterdir() if path != entry]
    assert {path.suffix for path in parts} == {".js", ".css"}
    assert [path.name for path in parts if path.name not in loaded] == []


def test_the_panel_is_small_and_what_lab_waits_for_is_smaller() -> None:
    assert 0 < travelling(f"{LABEXTENSION}/static/panel.*.js") < LIMIT
    assert 0 < travelling("agent_kernel/notebook/panel/static/widget.js") < LIMIT
    assert 0 < travelling(f"{LABEXTENSION}/static/remoteEntry.*.js") < START_LIMIT
    assert 0 < travelling(f"{WEBAPP}/*") < PAGE_LIMIT


def test_the_lock_names_no_place_to_download_from_and_package_json_no_exact_version() -> None:
    lock = json.loads((ROOT / "ui" / "package-lock.json").read_text())
    assert [name for name, entry in lock["packages"].items() if "resolved" in entry] == []
    assert all("version" in entry for name, entry in lock["packages"].items() if name)
    package = json.loads((ROOT / "ui" / "package.json").read_text())
    wanted = {**package["dependencies"], **package["devDependencies"]}
    assert {name: version for name, version in wanted.items() if not version.startswith("^")} == {}
