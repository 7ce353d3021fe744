"""Renders matplotlib animations as animated PNG; clients without support show the first frame. Runs inside the jail:
standard library only.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from typing import Any

MAX_FRAMES = 100
MAX_S = 20.0
DPI = 80.0
_OURS = "_agent_kernel_film"


class Enough(Exception):
    """Raised to end the rendering once MAX_FRAMES frames are rendered or MAX_S seconds have passed."""


def film(animation: Any, max_bytes: int) -> bytes | None:
    """Render at most MAX_FRAMES frames within MAX_S seconds and return an animated PNG. If it has more than
    ``max_bytes`` bytes, only every second, fourth, ... frame is kept. Returns None for fewer than two frames. Omitted
    frames are reported on standard error."""
    library = sys.modules["matplotlib.animation"]
    writer = _writer(library)
    with contextlib.suppress(Enough):
        animation.save("film.png", writer=writer, dpi=min(DPI, float(animation._fig.get_dpi())))
    frames, pause = writer._frames, int(getattr(animation, "_interval", 100) or 100)
    if getattr(writer, "stopped", False):
        sys.stderr.write(f"The animation is shown up to its frame {len(frames)}." + "\n")
    step = 1
    while len(frames[::step]) > 1:
        data = _png(frames[::step], pause * step)
        if len(data) <= max_bytes:
            return data
        step *= 2
    sys.stderr.write("The animation is too large: its first frame is shown." + "\n")
    return None


def is_ours(writer: Any) -> bool:
    return bool(getattr(writer, _OURS, False))


def _writer(library: Any) -> Any:
    until = time.monotonic() + MAX_S

    class Film(library.PillowWriter):  # type: ignore[misc]  # a class of a library that is there only inside
        def grab_frame(self, **options: Any) -> None:
            if len(self._frames) >= MAX_FRAMES or time.monotonic() > until:
                self.stopped = True
                raise Enough
            super().grab_frame(**options)

        def finish(self) -> None: ...

    writer = Film()
    setattr(writer, _OURS, True)
    return writer


def _png(frames: list[Any], pause: int) -> bytes:
    buffer = io.BytesIO()
    # With the disposal "background" every frame is a complete picture, so clients may receive them one by one.
    moving: dict[str, Any] = {"save_all": True, "append_images": frames[1:], "duration": pause, "loop": 0}
    frames[0].save(buffer, "PNG", disposal=1, **moving)
    return buffer.getvalue()
