"""``python -P video_worker.py COUNT`` reads a video from standard input and writes frames of it as PNG files, each
preceded by its length. It runs in a separate process, sets its own limits, and imports only the standard library and
PyAV.
"""

from __future__ import annotations

import io
import resource
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

NO_LIBRARY = 3
"""The exit code if PyAV or Pillow cannot be imported."""
CPU_S = 30
MEMORY = 4 * 2**30
MAX_PIXELS = 40_000_000
MAX_SIDE = 1024
"""Largest width and height of a frame in pixels. Larger frames are scaled down, because models use about one million
pixels."""
LENGTH = struct.Struct(">I")


def main() -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        import av
        import PIL.Image  # noqa: F401  what ``to_image`` needs
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        return NO_LIBRARY
    # Only the given bytes are read: formats that refer to other files or addresses are disabled.
    options = {"protocol_whitelist": "pipe"}
    with av.open(io.BytesIO(sys.stdin.buffer.read()), options=options) as container:
        stream = container.streams.video[0]
        if stream.width * stream.height > MAX_PIXELS:
            sys.stderr.write(f"the frames have {stream.width} x {stream.height} pixels\n")
            return 1
        for frame in sample_frames(container, stream, int(sys.argv[1])):
            write(frame)
    return 0


def sample_frames(container: Any, stream: Any, count: int) -> Iterator[Any]:
    """Yield up to ``count`` frames that are evenly spaced over the length of the video, including the first and the
    last. If the length is unknown, yield every eighth frame from the beginning."""
    length = float(stream.duration * stream.time_base) if stream.duration else float(container.duration or 0) / 1e6
    if not length:
        for at, frame in enumerate(container.decode(stream)):
            if at % 8 == 0:
                yield frame
            if at >= 8 * (count - 1):
                return
    last = None
    for at in range(count):
        frame = frame_at(container, stream, length * at / (count - 1) if length else 0.0)
        if frame is not None and frame.pts != last:
            last = frame.pts
            yield frame


def frame_at(container: Any, stream: Any, second: float) -> Any:
    """Return the first frame at or after ``second``, or the last frame of the video if there is none."""
    start = stream.start_time or 0
    container.seek(start + int(second / stream.time_base), stream=stream)
    frame = None
    for frame in container.decode(stream):
        if frame.pts is None or frame.pts >= start + int(second / stream.time_base):
            break
    return frame


def write(frame: Any) -> None:
    scale = min(1.0, MAX_SIDE / max(frame.width, frame.height))
    width, height = max(1, int(frame.width * scale)), max(1, int(frame.height * scale))
    out = io.BytesIO()
    frame.reformat(width=width, height=height, format="rgb24").to_image().save(out, "PNG", compress_level=1)
    sys.stdout.buffer.write(LENGTH.pack(out.tell()) + out.getvalue())


if __name__ == "__main__":
    sys.exit(main())
