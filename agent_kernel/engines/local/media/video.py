"""Takes a few frames of a video in a separate process, so that a hostile file can harm only that process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.engines.local.backend import Picture
from agent_kernel.engines.local.media import video_worker
from agent_kernel.engines.local.media.images import FRAMES, MAX_BYTES

PROGRAM = Path(video_worker.__file__)
FLAGS = ("-P",)
"""Python's option ``-P``: the worker does not import modules from the directory of its program."""
WAIT_S = 60.0


def frames(video: Picture) -> list[Picture]:
    """Return up to FRAMES frames of a video as PNG. All formats that FFmpeg reads are accepted. Blocking. Raises
    InvalidRequest if it cannot be read as a video, and EngineError if PyAV is missing."""
    if len(video.data) > MAX_BYTES:
        raise InvalidRequest(f"The video has {len(video.data) / 2**20:.0f} MiB; the limit is {MAX_BYTES // 2**20}.")
    command = [sys.executable, *FLAGS, str(PROGRAM), str(FRAMES)]
    try:
        completed = subprocess.run(command, input=video.data, capture_output=True, timeout=WAIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise InvalidRequest("The video takes too long to read.", hint="Send a shorter video.") from error
    words = (completed.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {completed.returncode}"])[
        -1
    ][:200]
    if completed.returncode == video_worker.NO_LIBRARY:
        raise EngineError(
            f"Videos cannot be read here: {words}",
            hint=f"Install PyAV where the model runs: {sys.executable} -m pip install av",
        )
    pictures = _pictures(completed.stdout)
    if completed.returncode or not pictures:
        raise InvalidRequest(
            f"The video cannot be read: {words}", hint=("Send the video as MP4 or WebM, or send single frames.")
        )
    return pictures


def _pictures(data: bytes) -> list[Picture]:
    pictures: list[Picture] = []
    size = video_worker.LENGTH.size
    while len(data) >= size:
        (length,) = video_worker.LENGTH.unpack(data[:size])
        pictures.append(Picture("image/png", data[size : size + length]))
        data = data[size + length :]
    return pictures
