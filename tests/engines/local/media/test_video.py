"""Tests frames of videos with PyAV in an interpreter that has it, and the error if it is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.engines.local.backend import Picture
from agent_kernel.engines.local.media import video
from agent_kernel.engines.local.media.images import FRAMES, MAX_BYTES

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def facts(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = Path(__file__).with_name("video_facts.py")
    command = [torch_python, str(script), str(tmp_path_factory.mktemp("films"))]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("container", ["mp4", "matroska"])
def test_frames_are_taken_from_the_first_to_the_last(facts: dict[str, Any], container: str) -> None:
    bars = facts[container]

    assert len(bars) == FRAMES
    assert bars == sorted(set(bars))
    assert bars[0] <= 2
    assert bars[-1] >= 49


def test_a_short_video_gives_the_frames_it_has(facts: dict[str, Any]) -> None:
    assert 1 <= len(facts["two frames"]) <= 2


@pytest.mark.parametrize("case", ["junk", "empty", "cut"])
def test_what_is_no_video_is_refused(facts: dict[str, Any], case: str) -> None:
    assert facts[case] == "invalid_request"


@pytest.mark.parametrize("case", ["playlist", "stream list"])
def test_a_video_can_not_name_another_file_to_be_read(facts: dict[str, Any], case: str) -> None:
    assert facts[case] == "invalid_request"


def test_frames_are_made_no_larger_than_models_look_at(facts: dict[str, Any]) -> None:
    assert facts["large"] == [1024, 256]


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Isolated and without site-packages this interpreter has neither PyAV nor Pillow.
    monkeypatch.setattr(video, "FLAGS", ("-P", "-S", "-I"))
    with pytest.raises(EngineError, match="pip install av") as caught:
        video.frames(Picture("video/mp4", b"..."))
    assert sys.executable in caught.value.hint


def test_a_video_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="MiB"):
        video.frames(Picture("video/mp4", bytes(MAX_BYTES + 1)))
