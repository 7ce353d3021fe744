"""The files that commands of ``%agent`` make are written whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic.written_file import write_file


@pytest.mark.parametrize("exists", [True, False])
def test_on_a_full_disk_the_old_file_stays_and_no_part_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "talk.json"
    if exists:
        path.write_text("old")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(AgentError, match=r"talk\.json cannot be written: No space left on device\."):
        write_file(path, b"new text", replace=True)
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("talk.json", "old")] * exists


def test_a_file_with_a_long_name_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("\N{GRINNING FACE}" * 60 + ".json")
    write_file(path, b"text", replace=False)
    assert path.read_bytes() == b"text"
    with pytest.raises(AgentError, match="exists already"):
        write_file(path, b"other", replace=False)
