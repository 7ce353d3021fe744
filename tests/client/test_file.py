from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.client.file import File
from agent_kernel.core.errors import FileGone, FileNotProduced

FACTS = {"id": "file_a", "name": "a.txt", "mime_type": "text/plain", "bytes": 5, "created_at": 1, "purpose": "x"}


def test_a_text_that_came_along_is_all_there_is() -> None:
    file = File.from_json({**FACTS, "text": "hello"})
    assert (file.as_text(), file.preview, file.as_bytes(), file.is_truncated()) == ("hello", "hello", b"hello", False)


def test_the_preview_of_a_long_text_is_cut_by_characters() -> None:
    assert File.from_json({**FACTS, "bytes": 8196, "text": "é" * 4098}).preview == "é" * 4096


def test_a_large_body_that_did_not_come_along_is_said_to_be_missing() -> None:
    file = File.from_json({**FACTS, "mime_type": "application/octet-stream", "bytes": 64 << 20})
    assert (file.is_truncated(), file.as_bytes(), file.is_text) == (True, None, False)


def test_an_empty_file_is_whole() -> None:
    assert not File.from_json({**FACTS, "bytes": 0}).is_truncated()


async def test_bytes_come_as_base64_and_are_saved(tmp_path: Path) -> None:
    file = File.from_json({**FACTS, "name": "plot.png", "mime_type": "image/png", "data_base64": "AAEC"})
    assert await file.read() == b"\x00\x01\x02"
    assert (await file.save(tmp_path)).name == "plot.png"
    assert (tmp_path / "plot.png").read_bytes() == b"\x00\x01\x02"


@pytest.mark.parametrize("name", ["../../escape.txt", "/etc/escape.txt", "..\\escape.txt", "a/b/escape.txt"])
async def test_a_name_that_a_model_chose_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    saved = await File.from_json({**FACTS, "name": name, "text": "x"}).save(tmp_path)
    assert saved == tmp_path / "escape.txt"


@pytest.mark.parametrize("name", ["..", ".", "", "a/.."])
async def test_a_name_that_is_none_is_the_id(tmp_path: Path, name: str) -> None:
    assert (await File.from_json({**FACTS, "name": name, "text": "x"}).save(tmp_path)).name == "file_a"


async def test_a_file_that_was_not_made_can_not_be_read(tmp_path: Path) -> None:
    file = File.from_json({**FACTS, "bytes": 0, "code": "not_produced", "message": "not produced"})
    with pytest.raises(FileNotProduced, match="not produced"):
        await file.read()
    with pytest.raises(FileNotProduced):
        await file.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_a_body_without_a_server_to_ask_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileGone):
        await File.from_json({**FACTS, "bytes": 9_000_000}).read()


async def test_what_can_not_be_saved_leaves_the_old_file_as_it_is(tmp_path: Path) -> None:
    old = tmp_path / "a.txt"
    old.write_text("old")
    with pytest.raises(FileGone):
        await File.from_json({**FACTS, "bytes": 9_000_000}).save(old)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
