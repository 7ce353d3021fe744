"""Represents the videos of mistral.rs in messages of agent-kernel: a text with the properties of a video (the note),
followed by its frames as images. The functions have no side effects.

    [video, 2 frames, 1.5 fps, frames 0 30 of 60]

A model reads the note and sees the frames; an export turns both into the same video again.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from agent_kernel.core.messages import Media, Part, Text
from agent_kernel.sessions.export.formats.json_reader import Fields

PNG = "image/png"
MAX_FRAMES = 512
"""Maximum number of frames that are read of a video."""
Video: TypeAlias = dict[str, Any]
_NOTE = re.compile(r"\[video, (\d{1,4}) frames(?:, (\d[\d.e+-]{0,30}) fps, frames (\d[\d ]*) of (\d{1,15}))?\]\Z")


def describe(video: Fields, count: int) -> str:
    """Return the note (a line that states the properties of a video) for the first ``count`` frames of a video. If the
    properties that the video states contradict each other, the note states only the number of frames."""
    facts = video.value
    fps, total, sampled = facts.get("fps"), facts.get("total_num_frames"), facts.get("sampled_indices")
    places = sampled[:count] if isinstance(sampled, list) else []
    sound = len(places) == count and all(_is_count(number) for number in (total, *places))
    if not sound or type(fps) not in (int, float) or not 0 <= fps < 1e9:
        return f"[video, {count} frames]"
    return f"[video, {count} frames, {float(fps)!r} fps, frames {' '.join(map(str, places))} of {total}]"


def split(parts: Sequence[Part], blobs: Mapping[str, bytes]) -> tuple[list[Video], list[Part]]:
    """Return (videos, other parts) of a message. A video is a note with the images that follow it. ``blobs`` holds the
    bytes of the images by hash."""
    videos: list[Video] = []
    rest: list[Part] = []
    at = 0
    while at < len(parts):
        part = parts[at]
        note = _NOTE.search(part.text) if isinstance(part, Text) else None
        frames = _frames(parts[at + 1 : at + 1 + int(note[1])], blobs) if note else []
        if isinstance(part, Text) and note and frames and len(frames) == int(note[1]):
            videos.append(_video(note, frames))
            rest += [Text(part.text[: note.start()])] if note.start() else []
            at += len(frames)
        else:
            rest.append(part)
        at += 1
    return videos, rest


def _frames(parts: Sequence[Part], blobs: Mapping[str, bytes]) -> list[str]:
    """Return the PNG images at the beginning of ``parts`` as base64, up to the first part that is not a PNG image or
    whose bytes are missing."""
    frames: list[str] = []
    for part in parts:
        if not isinstance(part, Media) or part.mime != PNG or part.hash not in blobs:
            break
        frames.append(base64.b64encode(blobs[part.hash]).decode("ascii"))
    return frames


def _video(note: re.Match[str], frames: list[str]) -> Video:
    """Build mistral.rs's video object from a note and its frames. mistral.rs requires all four fields, so missing
    properties get default values."""
    places = [int(number) for number in note[3].split()] if note[3] else list(range(len(frames)))
    try:
        fps = float(note[2] or 1)
    except ValueError:
        fps = 1.0
    total = int(note[4]) if note[4] else len(frames)
    return {"fps": fps, "frames": frames, "total_num_frames": total, "sampled_indices": places}


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 10**15
