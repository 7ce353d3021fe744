"""Tests that an upload is read in pieces of any size, and that errors say what is wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.errors import FileTooLarge, InvalidRequest
from agent_kernel.core.file_receiver import FileReceiver
from jupyter_ext.api.http.upload import MAX_PARTS, Upload

TYPE = "multipart/form-data; boundary=b"


def part(name: str, data: bytes, filename: str | None = None, mime: str = "") -> bytes:
    file = f'; filename="{filename}"' if filename is not None else ""
    kind = f"Content-Type: {mime}\r\n" if mime else ""
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{file}\r\n{kind}\r\n'.encode() + data + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--b--\r\n"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def parse_upload(directory: Path, body: bytes, *, pieces: int = 1 << 20, type: str = TYPE) -> Upload:
    with closing(Upload(type, lambda: FileReceiver(directory, 1000))) as upload:
        for start in range(0, len(body), pieces):
            upload.feed(body[start : start + pieces])
        arrived = upload.finish()
        assert arrived.path.read_bytes().decode("latin-1") == arrived.preview
    return upload


GOOD = form(part("purpose", b"user_data"), part("file", b"hello\r\n-b-\r\n", "a b.txt", "text/plain"))


@settings(max_examples=30)
@given(st.integers(1, 200))
def test_a_form_in_pieces_of_any_size_is_the_same_form(pieces: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        upload = parse_upload(Path(directory), GOOD, pieces=pieces)
    assert (upload.filename, upload.mime, upload.fields) == ("a b.txt", "text/plain", {"purpose": "user_data"})
    assert upload.arrived is not None
    assert upload.arrived.size == len(b"hello\r\n-b-\r\n")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("C:\\x\\a.csv", "a.csv"),
        ("../../etc/passwd", "passwd"),
        ("bücher.txt", "bücher.txt"),
        ("dir/", "file"),
        ("", "file"),
    ],
)
def test_of_the_name_only_the_last_part_counts(directory: Path, sent: str, kept: str) -> None:
    body = form(part("purpose", b"p"), part("file", b"x", sent))
    assert parse_upload(directory, body).filename == kept


@pytest.mark.parametrize(
    ("body", "type", "words"),
    [
        (b"{}", "application/json", "multipart/form-data"),
        (b"{}", "", "multipart/form-data"),
        (b"{}", "multipart/form-data", "multipart/form-data"),
        (b"nonsense", TYPE, "not valid multipart/form-data"),
        (form(part("purpose", b"p")), TYPE, "lacks the field file"),
        (form(part("file", b"x", "a")), TYPE, "lacks the field purpose"),
        (form(part("purpose", b"p"), part("file", b"x", "a"), part("file", b"y", "b")), TYPE, "one file"),
        (GOOD[:-10], TYPE, "ended before"),
        (form(part("file", b"x", "a")) + b"", "multipart/form-data; boundary=" + "c" * 500, "not valid|ended before"),
        (form(*[part(f"p{number}", b"") for number in range(MAX_PARTS + 1)]), TYPE, "parts"),
        (b"--b\r\n" + b"X: y\r\n" * 50, TYPE, "multipart/form-data"),
        (b"--b\r\nX: " + b"y" * 10_000, TYPE, "multipart/form-data"),
    ],
)
def test_what_is_wrong_with_a_form_is_said(directory: Path, body: bytes, type: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        parse_upload(directory, body, type=type)


def test_what_is_too_large_is_refused_and_the_rest_is_dropped(directory: Path) -> None:
    for body in (
        form(part("purpose", b"p"), part("file", b"x" * 1001, "a")),
        form(part("purpose", b"p" * 1001), part("file", b"x", "a")),
    ):
        with pytest.raises(FileTooLarge, match="at most"):
            parse_upload(directory, body, pieces=100)
