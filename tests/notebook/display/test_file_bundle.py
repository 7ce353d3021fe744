"""Tests how a cell shows the files that a call produced."""

from __future__ import annotations

from typing import Any

import pytest

from agent_kernel.notebook.display.file_bundle import describe_size, files_bundle

FILE = {"id": "file_ab_r0_0", "name": "a <b>.csv", "bytes": 1234}


def test_each_file_is_a_line_with_its_size_and_a_link_on_the_server() -> None:
    missing = {"id": "x", "name": "deck.pptx", "bytes": 0, "code": "not_produced", "message": "not produced"}
    bundle = files_bundle([FILE, missing], "http://127.0.0.1:8888/user/me/", "s '1'")
    assert bundle["text/plain"] == "[file] a <b>.csv, 1.23 KB\n[file] deck.pptx, not produced"
    page = bundle["text/html"]
    assert "href='/user/me/agent/v1/files/file_ab_r0_0/content?session=s%20%271%27'" in page
    assert ">a &lt;b&gt;.csv</a>, 1.23 KB<" in page
    assert page.count("<a ") == 1


def test_of_many_files_the_first_are_lines_and_the_rest_is_counted() -> None:
    bundle = files_bundle([FILE] * 64, "http://h/", "s")
    assert bundle["text/html"].count("<a ") == 20
    assert bundle["text/plain"].endswith("[file] and 44 more files")


@pytest.mark.parametrize(
    ("file", "words"),
    [({"bytes": 0}, "0 bytes"), ({"bytes": 999}, "999 bytes"), ({"bytes": 5_000_000}, "5 MB"), ({"code": "x"}, "x")],
)
def test_a_size_is_said_in_words(file: dict[str, Any], words: str) -> None:
    assert describe_size(file) == words
