"""An animation of a page, made of screenshots: what a person does lasts as long as the script says, what the program
does lasts as long as it takes."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image, ImageChops
from playwright.sync_api import Page

COLOURS = 128
STEP_MS = 20
"""GIF counts hundredths of a second, and browsers slow frames of less than two of them down."""
BETWEEN_MS = 250
"""Between two looks at a page that is waited for. A screenshot takes the time of a processor from the model."""


@dataclass
class Frame:
    image: Image.Image
    shown_ms: float


@dataclass
class Film:
    """Frames of ``page``; one that shows what the frame before it shows makes that frame last longer."""

    page: Page
    frames: list[Frame] = field(default_factory=list)

    def show(self, shown_ms: float) -> None:
        """Show the page as it is now for ``shown_ms``."""
        # Without animations a cursor does not blink: a blink would be a frame of its own.
        picture = self.page.screenshot(animations="disabled", caret="initial")
        image = Image.open(io.BytesIO(picture)).convert("RGB")
        if self.frames and ImageChops.difference(self.frames[-1].image, image).getbbox() is None:
            self.frames[-1].shown_ms += shown_ms
        else:
            self.frames.append(Frame(image, shown_ms))

    def type(self, words: str, key_ms: float = 55) -> None:
        """Type ``words`` key by key, each shown for ``key_ms``."""
        for key in words:
            self.page.keyboard.press("Enter" if key == "\n" else key)
            self.show(key_ms)

    def watch(self, ended: Callable[[], bool], *, longest_ms: float, timeout_ms: float, still_ms: float) -> None:
        """Show the page until ``ended``, in real time. No frame lasts longer than ``still_ms``, and if the whole lasts
        longer than ``longest_ms``, it is shown faster."""
        first, began = len(self.frames), time.monotonic()
        seen = began
        while True:
            over = ended()
            self.show(0)
            now = time.monotonic()
            self.frames[-1].shown_ms += (now - seen) * 1000
            seen = now
            if over:
                break
            if (now - began) * 1000 > timeout_ms:
                raise TimeoutError(f"The page did not show what was waited for within {timeout_ms / 1000:.0f} s.")
            self.page.wait_for_timeout(BETWEEN_MS)
        watched = self.frames[first:]
        for frame in watched:
            frame.shown_ms = min(frame.shown_ms, still_ms)
        total = sum(frame.shown_ms for frame in watched)
        for frame in watched:
            frame.shown_ms *= min(1.0, longest_ms / total)

    def write(self, path: Path) -> None:
        """As a GIF that repeats, with one palette for all frames."""
        frames = with_visible_durations(self.frames)
        palette = common_palette([frame.image for frame in frames])
        images = [frame.image.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
        path.parent.mkdir(parents=True, exist_ok=True)
        images[0].save(
            path,
            save_all=True,
            append_images=images[1:],
            duration=[round(frame.shown_ms / 10) * 10 for frame in frames],
            loop=0,
            optimize=False,
        )


def with_visible_durations(frames: list[Frame]) -> list[Frame]:
    """Leave out frames that are too short for a browser; the frame after such a frame gets its time."""
    kept: list[Frame] = []
    for frame in frames:
        if kept and kept[-1].shown_ms < STEP_MS:
            kept[-1] = Frame(frame.image, kept[-1].shown_ms + frame.shown_ms)
        else:
            kept.append(Frame(frame.image, frame.shown_ms))
    return kept


def common_palette(images: list[Image.Image]) -> Image.Image:
    """The palette of a sheet with a few of the images: the first, the last, and some between."""
    chosen = images[:: max(1, len(images) // 6)] + images[-1:]
    width, height = images[0].size
    sheet = Image.new("RGB", (width, height * len(chosen)))
    for number, image in enumerate(chosen):
        sheet.paste(image, (0, number * height))
    return sheet.quantize(COLOURS, method=Image.Quantize.MEDIANCUT)
