"""Tests the worker in another interpreter: which interpreter is used, and that only our package is added to it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.engines.local.catalog import worker_environment
from agent_kernel.engines.local.worker import bootstrap

PYTHON = Path("bin/python")


def make_environment(data_dir: Path, kind: worker_environment.Kind) -> Path:
    """Create an environment as ``setup`` leaves it, without libraries. Return its interpreter."""
    directory = data_dir / "environments" / kind
    venv.create(directory, symlinks=True)
    (directory / worker_environment.RECORD).write_text(json.dumps({"python": "3"}))
    return directory / PYTHON


def test_without_an_environment_the_worker_runs_in_this_interpreter(tmp_path: Path) -> None:
    assert worker_environment.interpreter("", tmp_path) == sys.executable


def test_an_environment_is_used_from_the_moment_it_is_finished(tmp_path: Path) -> None:
    python = make_environment(tmp_path, "cpu")

    assert worker_environment.interpreter("", tmp_path) == str(python)


def test_the_one_with_more_libraries_is_taken(tmp_path: Path) -> None:
    make_environment(tmp_path, "cpu")
    python = make_environment(tmp_path, "gpu")

    assert worker_environment.interpreter("", tmp_path) == str(python)


def test_a_named_interpreter_wins(tmp_path: Path) -> None:
    make_environment(tmp_path, "gpu")

    assert worker_environment.interpreter(sys.executable, tmp_path) == sys.executable


def test_a_named_interpreter_that_is_not_there_is_said_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="not a program") as caught:
        worker_environment.interpreter(str(tmp_path / "python"), tmp_path)

    assert "model setup" in caught.value.hint


def test_an_environment_that_was_not_finished_does_not_count(tmp_path: Path) -> None:
    python = make_environment(tmp_path, "cpu")
    (python.parents[1] / worker_environment.RECORD).unlink()

    assert worker_environment.environments(tmp_path) == []


def test_a_removed_environment_is_gone(tmp_path: Path) -> None:
    python = make_environment(tmp_path, "cpu")

    assert worker_environment.remove("cpu", tmp_path)
    assert not python.exists()
    assert not worker_environment.remove("cpu", tmp_path)


def test_too_little_space_is_told_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=1000))

    with pytest.raises(EngineError, match="GB"):
        worker_environment.setup("cpu", tmp_path, lambda line: None)
    assert worker_environment.environments(tmp_path) == []


def test_an_interpreter_that_can_not_make_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="could not be created"):
        worker_environment.setup("cpu", tmp_path, lambda line: None, python=shutil.which("false") or "")
    assert worker_environment.environments(tmp_path) == []


def test_booting_brings_our_package_and_nothing_that_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("")
    package = tmp_path / bootstrap.PACKAGE.name
    package.symlink_to(bootstrap.PACKAGE, target_is_directory=True)
    code = (
        f"import importlib.util, runpy, sys; from pathlib import Path\n"
        f"boot = runpy.run_path({str(bootstrap.__file__)!r})\n"
        f"boot['add_package'](Path({str(package)!r}))\n"
        "from agent_kernel.core import errors; print(errors.__file__, importlib.util.find_spec('neighbour'))"
    )
    venv.create(tmp_path / "bare", symlinks=True)

    done = subprocess.run(
        [tmp_path / "bare" / PYTHON, "-P", "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )

    assert done.stdout.split() == [str(package / "core" / "errors.py"), "None"]
