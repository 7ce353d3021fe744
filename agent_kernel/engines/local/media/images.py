"""Decodes images up to a maximum size, and takes a few frames of animations. Needs Pillow."""

from __future__ import annotations

import io
from typing import Any

from agent_kernel.core.errors import EngineError, InvalidRequest
from agent_kernel.engines.local.backend import Picture

MAX_BYTES = 20 * 2**20
MAX_PIXELS = 40_000_000
"""Largest number of pixels of an image or frame; decoded, they take 120 MB of memory. A file of a few KB can state far
more pixels."""
MAX_ANIMATION_PIXELS = 600_000_000
"""Largest number of pixels of all frames of an animation together. All frames count, since decoding a frame requires
the frames before it."""
FRAMES = 8
"""Number of evenly spaced frames taken from an animation or a video. Small models can use only a few pictures at
once."""
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
"""The only image formats whose decoders Pillow may use. The first bytes of a file determine its format."""


def open_image(picture: Picture) -> Any:
    """Decode a picture as an RGB image; transparent parts become white. Raises InvalidRequest if it is not an image or
    is too large."""
    image = _image(picture)
    try:
        return _rgb(image)
    except Exception as error:  # a decoder may raise anything, see _unreadable
        raise _unreadable(error) from error


def frames(picture: Picture) -> list[Picture]:
    """Return the picture unchanged in a list. If it is an animation, return up to FRAMES of its frames as PNG,
    including the first and the last. Raises InvalidRequest."""
    image = _image(picture)
    count = int(getattr(image, "n_frames", 1))
    if count == 1:
        open_image(picture)
        return [picture]
    if count * image.width * image.height > MAX_ANIMATION_PIXELS:
        raise InvalidRequest(
            f"The animation has {count} frames of {image.width} x {image.height}: more than this server decodes.",
            hint="Send a shorter animation, or single frames.",
        )
    chosen_frames = []
    try:
        for at in evenly(count, FRAMES):
            image.seek(at)
            chosen_frames.append(Picture("image/png", png(_rgb(image))))
    except Exception as error:  # a decoder may raise anything, see _unreadable
        raise _unreadable(error) from error
    return chosen_frames


def evenly(count: int, limit: int) -> list[int]:
    """Return up to ``limit`` evenly spaced positions from 0 to ``count`` - 1, including the first and the last."""
    if count <= limit:
        return list(range(count))
    return [round(at * (count - 1) / (limit - 1)) for at in range(limit)]


def png(image: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def _image(picture: Picture) -> Any:
    """Open the picture by reading only its header, so that its size is checked before anything is decoded. Raises
    InvalidRequest, or EngineError if Pillow is missing."""
    if len(picture.data) > MAX_BYTES:
        raise InvalidRequest(f"The image has {len(picture.data) / 2**20:.0f} MiB; the limit is {MAX_BYTES // 2**20}.")
    try:
        import PIL.Image
        import PIL.ImageSequence
    except ImportError as error:
        raise EngineError(
            f"Pillow cannot be imported in this environment: {error}",
            hint="Install it with: agent-kernel model setup gpu",
        ) from error
    try:
        image = PIL.Image.open(io.BytesIO(picture.data), formats=FORMATS)
    except Exception as error:  # a decoder may raise anything, see _unreadable
        raise _unreadable(error) from error
    if image.width * image.height > MAX_PIXELS:
        raise InvalidRequest(
            f"The image has {image.width} x {image.height} pixels; the limit is {MAX_PIXELS // 10**6} million.",
            hint="Send a smaller image: models use about one million pixels.",
        )
    return image


def _rgb(image: Any) -> Any:
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        white = clear.copy()
        white.paste((255, 255, 255, 255), (0, 0, *clear.size))
        white.alpha_composite(clear)
        image = white
    return image.convert("RGB")


def _unreadable(error: Exception) -> InvalidRequest:
    """Convert an error of an image decoder to an InvalidRequest. A hostile file can cause errors of many types, such as
    OSError, SyntaxError, ValueError and struct.error."""
    if type(error).__name__ in ("DecompressionBombError", "DecompressionBombWarning"):
        return InvalidRequest("The image was not opened, because it would be far larger than its file suggests.")
    words = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return InvalidRequest(f"The image cannot be read: {words}", hint="Send the image as PNG or JPEG.")
