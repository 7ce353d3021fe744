from __future__ import annotations

import io
from pathlib import Path

import pytest

from agent_kernel import InputFile
from agent_kernel.client.input_file import MAX_URL_BYTES, input_file
from agent_kernel.client.multipart_form import MultipartForm
from agent_kernel.core.errors import FileTooLarge, InvalidRequest


def test_a_data_url_has_its_bytes_and_its_type() -> None:
    file = InputFile.from_url("data:text/plain;base64,aGVsbG8=")
    assert (file.source, file.mime_type) == (b"hello", "text/plain")
    assert InputFile.from_url("data:,a%20b").source == b"a b"


@pytest.mark.parametrize("url", ["http://127.0.0.1/file.txt", "file:///etc/passwd", "data:nothing", "data:;base64,%%%"])
def test_no_other_url_is_followed(url: str) -> None:
    with pytest.raises(InvalidRequest):
        InputFile.from_url(url)


def test_too_much_data_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(FileTooLarge):
        InputFile.from_url("data:text/plain;base64," + "!" * (MAX_URL_BYTES * 4 // 3 + 8))


@pytest.mark.parametrize(
    ("name", "format", "mime"),
    [
        ("plot.png", "png", "image/png"),
        ("data.csv", "csv", "text/csv"),
        ("report.MD", "md", "text/markdown"),
        ("noext", "", "application/octet-stream"),
        ("map.geojson", "geojson", "application/json"),
    ],
)
def test_the_name_says_what_it_is(name: str, format: str, mime: str) -> None:
    file = InputFile.from_bytes(b"", name)
    assert (file.format, file.mime_type) == (format, mime)


def test_what_is_given_is_taken_for_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"1")
    assert input_file(path).name == input_file(str(path)).name == "a.csv"
    assert input_file(b"x").source == b"x"
    with path.open("rb") as opened:
        assert input_file(opened).name == "a.csv"
    with pytest.raises(InvalidRequest, match="no file"):
        input_file(tmp_path / "b.csv")
    with pytest.raises(InvalidRequest, match="int"):
        input_file(3)  # type: ignore[arg-type]


async def test_a_form_is_as_long_as_it_says_and_lends_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(600_000))
    form = MultipartForm({"purpose": "user_data"}, InputFile.from_path(path))
    body = b"".join([piece async for piece in form.pieces()])
    assert int(form.headers["Content-Length"]) == len(body)
    opened = io.BytesIO(b"abc")
    lent = MultipartForm({}, InputFile.from_file(opened, "x"))
    assert b"abc" in b"".join([piece async for piece in lent.pieces()])
    assert "Content-Length" not in lent.headers
    assert not opened.closed


async def test_a_name_can_not_write_headers() -> None:
    form = MultipartForm({}, InputFile('a\r\nX: y"; filename="b', b"", "text/plain"))
    head = b"".join([piece async for piece in form.pieces()])
    assert b"\r\nX: y" not in head
    assert b'filename="a  X: y\\"; filename=\\"b"' in head
