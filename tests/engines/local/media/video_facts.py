"""Prints which frames are taken of videos, as JSON. Runs in an interpreter that has PyAV, with which it also makes the
videos.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import av
import PIL.Image

from agent_kernel.core.errors import AgentKernelError
from agent_kernel.engines.local.backend import Picture
from agent_kernel.engines.local.media.video import frames

WIDTH, HEIGHT = 64, 48


def film(count: int, container: str, width: int = WIDTH, height: int = HEIGHT) -> bytes:
    """Return a video of a white bar that grows by one pixel each frame."""
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream: Any = file.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for at in range(count):
            image = PIL.Image.new("RGB", (width, height))
            image.paste((255, 255, 255), (0, 0, at + 1, height))
            for packet in stream.encode(av.VideoFrame.from_image(image)):
                file.mux(packet)
        for packet in stream.encode():
            file.mux(packet)
    return out.getvalue()


def bars(data: bytes) -> list[int] | str:
    """Return the length of the bar in each frame that was taken, or the code of the error."""
    try:
        found = [PIL.Image.open(io.BytesIO(frame.data)).convert("L") for frame in frames(Picture("video/mp4", data))]
    except AgentKernelError as error:
        return error.code
    rows = [image.crop((0, 10, image.width, 11)).tobytes() for image in found]
    return [sum(shade > 128 for shade in row) for row in rows]


def main() -> None:
    secret = Path(sys.argv[1]) / "secret.mp4"
    secret.write_bytes(film(20, "mp4"))
    whole = film(50, "mp4")
    large = frames(Picture("video/mp4", film(2, "mp4", 2048, 512)))
    facts = {
        "mp4": bars(whole),
        "matroska": bars(film(50, "matroska")),
        "two frames": bars(film(2, "mp4")),
        "cut": bars(whole[: len(whole) // 2]),
        "junk": bars(b"no video " * 999),
        "empty": bars(b""),
        "playlist": bars(b"ffconcat version 1.0\nfile '" + bytes(secret) + b"'\n"),
        "stream list": bars(b"#EXTM3U\n#EXTINF:2,\nfile://" + bytes(secret) + b"\n#EXT-X-ENDLIST\n"),
        "large": PIL.Image.open(io.BytesIO(large[0].data)).size,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
