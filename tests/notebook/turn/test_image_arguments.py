from __future__ import annotations

import base64
from pathlib import Path

import matplotlib.figure
import numpy as np
import PIL.Image
import pytest

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.turn import request_builder
from agent_kernel.notebook.turn.request_builder import read_images

PNG = b"\x89PNG\r\n\x1a\n..."


def test_a_file_is_attached_as_it_is_whatever_its_name_says(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"\xff\xd8\xff\xe0...")
    [found] = read_images([str(tmp_path / "photo.png")], {})
    assert found == {"mime": "image/jpeg", "data": base64.b64encode(b"\xff\xd8\xff\xe0...").decode()}


@pytest.mark.parametrize(
    "value",
    [PNG, bytearray(PNG), PIL.Image.new("RGB", (4, 4)), matplotlib.figure.Figure()],
    ids=["bytes", "bytearray", "an image", "a figure"],
)
def test_a_variable_that_holds_a_picture_is_attached(value: object) -> None:
    [found] = read_images(["shown"], {"shown": value})
    assert found["mime"] == "image/png"
    assert base64.b64decode(found["data"]).startswith(PNG[:8])


def test_a_variable_may_hold_the_path_and_comes_before_a_file_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.gif").write_bytes(b"GIF89a")
    assert [found["mime"] for found in read_images(["p", "p"], {"p": tmp_path / "a.gif"})] == ["image/gif"] * 2


@pytest.mark.parametrize(
    ("head", "mime"),
    [(b"RIFF....WEBPVP8 ", "image/webp"), (b"\0\0\0\x18ftypmp42", "video/mp4"), (b"BM..", "image/bmp")],
)
def test_the_kind_is_read_off_the_first_bytes(head: bytes, mime: str) -> None:
    assert read_images(["x"], {"x": head})[0]["mime"] == mime


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.png", "No such file or directory, and there is no variable of that name"),
        ("text", "this is not a PNG"),
        ("array", "a ndarray is not a picture"),
        (".", "Is a directory"),
    ],
)
def test_what_is_no_picture_is_named_in_one_line(name: str, message: str) -> None:
    with pytest.raises(AgentError, match=message) as caught:
        read_images([name], {"text": b"only text", "array": np.zeros(3)})
    assert "\n" not in str(caught.value)


def test_a_turn_takes_only_so_much(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(request_builder, "MAX_BYTES", 30)
    with pytest.raises(AgentError, match="16 pictures"):
        read_images(["x", "x", "x"], {"x": PNG})
    (tmp_path / "large.png").write_bytes(PNG + bytes(99))
    with pytest.raises(AgentError, match="at most"):
        read_images([str(tmp_path / "large.png")], {})
    with pytest.raises(AgentError, match="16 pictures"):
        read_images(["x"] * 17, {"x": b"BM"})
