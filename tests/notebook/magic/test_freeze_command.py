"""Tests what ``%agent freeze`` reports when its file cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.magic import written_file


def test_a_read_only_file_system_is_named_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    notebook = tmp_path / "a.ipynb"
    notebook.touch()
    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)  # such a file system refuses this even if there is no file
    with pytest.raises(AgentError, match=r"a.frozen.ipynb cannot be written: Read-only file system\."):
        written_file.write_file(tmp_path / "a.frozen.ipynb", b"{}", notebook=notebook, replace=False)
