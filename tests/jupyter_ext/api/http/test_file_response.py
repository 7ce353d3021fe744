"""Tests which part of a file is sent, and with which headers."""

from __future__ import annotations

import pytest

from agent_kernel.core.files import File
from jupyter_ext.api.http.file_response import ByteRange, disposition, headers, span


def file(name: str = "a.txt", mime: str = "text/plain") -> File:
    return File("file-1", name, mime, 10, 0.0, hash="ab")


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (None, ByteRange(0, 10)),
        ("bytes=0-", ByteRange(0, 10)),
        ("bytes=2-4", ByteRange(2, 5)),
        ("bytes=9-9", ByteRange(9, 10)),
        ("bytes=2-400", ByteRange(2, 10)),
        ("bytes=-3", ByteRange(7, 10)),
        ("bytes=-30", ByteRange(0, 10)),
        ("bytes=10-", None),
        ("bytes=-0", None),
        ("bytes=4-2", ByteRange(0, 10)),
        ("bytes=0-1,3-4", ByteRange(0, 10)),
        ("bytes=-", ByteRange(0, 10)),
        ("lines=1-2", ByteRange(0, 10)),
        ("bytes=" + "9" * 400 + "-", ByteRange(0, 10)),
    ],
)
def test_a_range_is_what_is_sent(header: str | None, wanted: ByteRange | None) -> None:
    assert span(header, 10) == wanted


def test_of_an_empty_file_there_is_no_part() -> None:
    assert span(None, 0) == ByteRange(0, 0)
    assert span("bytes=0-", 0) is None


@pytest.mark.parametrize(
    ("name", "mime", "wanted"),
    [
        ("a/b c.png", "image/png", "inline; filename=\"b c.png\"; filename*=UTF-8''b%20c.png"),
        ('é".svg', "image/svg+xml", "attachment; filename=\"__.svg\"; filename*=UTF-8''%C3%A9%22.svg"),
        ("x.html", "text/html", "attachment; filename=\"x.html\"; filename*=UTF-8''x.html"),
        ("x.pdf", "application/pdf", "attachment; filename=\"x.pdf\"; filename*=UTF-8''x.pdf"),
        ("a/", "text/plain", "inline; filename=\"file\"; filename*=UTF-8''file"),
    ],
)
def test_only_what_runs_nothing_is_shown_in_place(name: str, mime: str, wanted: str) -> None:
    assert disposition(file(name, mime)) == wanted


def test_no_browser_runs_what_a_file_holds() -> None:
    told = headers(file(mime="text/html"))
    assert told["Content-Security-Policy"].startswith("sandbox;")
    assert told["X-Content-Type-Options"] == "nosniff"
    assert told["ETag"] == '"ab"'
    assert told["Content-Type"] == "text/html; charset=utf-8"
