from __future__ import annotations

import io
import itertools
import struct
import zlib

import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.engines.local.backend import Picture
from agent_kernel.engines.local.media import images
from agent_kernel.engines.local.media.images import FRAMES, MAX_BYTES, evenly, frames, open_image


def encode_image(image: PIL.Image.Image, kind: str = "PNG", **how: object) -> Picture:
    out = io.BytesIO()
    image.save(out, kind, **how)
    return Picture(f"image/{kind.lower()}", out.getvalue())


def animation(count: int, kind: str) -> Picture:
    shades = [PIL.Image.new("RGB", (20, 10), (at * 4, 0, 0)) for at in range(count)]
    return encode_image(shades[0], kind, save_all=True, append_images=shades[1:], duration=50, lossless=True)


def claiming(width: int, height: int) -> Picture:
    """Return a PNG whose header states these dimensions, with hardly any data."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 10)) + chunk(b"IEND", b"")
    return Picture("image/png", b"\x89PNG\r\n\x1a\n" + body)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1", "I;16", "CMYK"])
def test_pictures_of_every_mode_become_rgb(mode: str) -> None:
    image = open_image(encode_image(PIL.Image.new("L", (8, 6), 100).convert(mode), "TIFF"))

    assert (image.mode, image.size) == ("RGB", (8, 6))


def test_what_is_transparent_is_white() -> None:
    assert open_image(encode_image(PIL.Image.new("RGBA", (2, 2), (0, 0, 0, 0)))).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_an_animation_is_shown_as_a_few_frames_from_the_first_to_the_last(kind: str) -> None:
    shown = [open_image(frame).getpixel((3, 3))[0] for frame in frames(animation(30, kind))]

    assert len(shown) == FRAMES
    assert shown == sorted(shown)
    assert shown[0] < 8
    assert shown[-1] > 108


def test_a_still_picture_stays_as_it_came() -> None:
    still = encode_image(PIL.Image.new("RGB", (5, 5)), "JPEG")

    assert frames(still) == [still]


@given(st.integers(1, 500), st.integers(2, 20))
def test_frames_are_taken_evenly(count: int, wanted: int) -> None:
    taken = evenly(count, wanted)
    steps = [later - earlier for earlier, later in itertools.pairwise(taken)]

    assert len(taken) == min(count, wanted)
    assert (taken[0], taken[-1]) == (0, count - 1)
    assert not steps or max(steps) - min(steps) <= 1
    assert all(step > 0 for step in steps)


@pytest.mark.parametrize("size", [(50_000, 50_000), (1_000_000, 60), (2**31 - 1, 2**31 - 1)])
def test_a_picture_that_claims_to_be_huge_is_not_opened(size: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest):
        open_image(claiming(*size))


def test_an_animation_that_is_too_much_to_draw_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_ANIMATION_PIXELS", 30 * 20 * 10 - 1)

    with pytest.raises(InvalidRequest, match="more than this server decodes"):
        frames(animation(30, "GIF"))


def test_a_file_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="MiB"):
        open_image(Picture("image/png", b"\x89PNG\r\n\x1a\n" + bytes(MAX_BYTES)))


@pytest.mark.parametrize("head", [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"P6 9 9 255\n", b"<svg/>"])
def test_decoders_that_nobody_needs_stay_shut(head: bytes) -> None:
    with pytest.raises(InvalidRequest):
        open_image(Picture("image/png", head + bytes(300)))


WHOLE = [
    encode_image(PIL.Image.effect_noise((24, 24), 90.0), kind).data for kind in ("PNG", "JPEG", "GIF", "WEBP", "BMP")
]


@given(st.sampled_from(WHOLE), st.integers(0, 3000), st.binary(max_size=12))
def test_whatever_a_file_holds_it_is_a_picture_or_a_refusal(whole: bytes, at: int, patch: bytes) -> None:
    at = min(at, len(whole))
    for data in (whole[:at] + patch, whole[:at] + patch + whole[at + len(patch) :]):
        try:
            for frame in frames(Picture("image/png", data)):
                assert open_image(frame).mode == "RGB"
        except InvalidRequest:
            pass
