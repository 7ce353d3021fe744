"""Writes the files that the commands of ``%agent`` create."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from agent_kernel.notebook.kernel.one_line_errors import AgentError


def write_file(path: Path, data: bytes, *, notebook: Path | None = None, replace: bool) -> None:
    """Write the file atomically. ``replace`` allows replacing an existing file, which keeps its permissions. A new
    file gets the permissions of ``notebook``, if that is given. If ``path`` is the notebook itself and a symbolic
    link, the target of the link is written. With a notebook, any other link is refused: its name was derived from
    that of the notebook, and a downloaded folder may contain a link that leads elsewhere."""
    if notebook is not None and path.is_symlink() and path != notebook:
        raise AgentError(f"{path} is a symbolic link, which is not followed. Remove it first.")
    if path.exists() and not replace:
        raise AgentError(f"{path} exists already; choose another name, or add --yes to replace it.")
    real = path.resolve()
    beside = real.with_name(f".{os.getpid()}.{real.name}"[:60])
    model = real if real.exists() else notebook
    try:
        beside.touch(0o666 if model is None else 0o600)
        beside.write_bytes(data)
        if model is not None:
            shutil.copymode(model, beside)
        beside.replace(real)
    except OSError as error:
        with contextlib.suppress(OSError):  # a read-only file system refuses to remove even what does not exist
            beside.unlink()
        raise AgentError(f"{path} cannot be written: {error.strerror}.") from None
