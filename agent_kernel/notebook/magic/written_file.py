"""Writes the files that commands of ``%agent`` make."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from agent_kernel.notebook.kernel.one_line_errors import AgentError


def write_file(path: Path, data: bytes, *, like: Path | None = None, over: bool) -> None:
    """Write the file atomically. An existing file is replaced only with ``over`` and keeps its permissions; a new file
    gets the permissions of ``like``, the notebook, if one is given. If the notebook itself is written and is a symbolic
    link, its target is written. A link with a name that the user has not given is refused: it may come with a folder of
    a stranger."""
    if like is not None and path.is_symlink() and path != like:
        raise AgentError(f"{path} is a symbolic link, which is not followed. Remove it first.")
    if path.exists() and not over:
        raise AgentError(f"{path} exists already; choose another name, or add --yes to replace it.")
    real = path.resolve()
    beside = real.with_name(f".{os.getpid()}.{real.name}"[:60])
    model = real if real.exists() else like
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
