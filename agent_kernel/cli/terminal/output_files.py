"""Writes the files that a turn produces into a directory of the user."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Any

from agent_kernel.cli.terminal.terminal_answer import TerminalAnswer
from agent_kernel.core.session import SessionKey


def make_writable_directory(directory: Path) -> None:
    """Make the directory, unless it exists. Raises OSError with its path if no file can be created in it."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(directory)) from error


async def save_files(runtime: Any, key: SessionKey, answer: TerminalAnswer, directory: Path, saved: list[Path]) -> None:
    """Write the files and the figures of the turn into a directory and add their paths to ``saved``. An existing file
    is never overwritten; the new file gets a number in its name instead. Raises OSError, which leaves no incomplete
    file."""
    for file in answer.files:
        _, body = await runtime.files.open(key, file["id"])
        data = body if isinstance(body, bytes) else await asyncio.to_thread(body.read_bytes)
        saved.append(await asyncio.to_thread(_write_new, directory, Path(file["name"]), data))
    for name, data in answer.figures:
        saved.append(await asyncio.to_thread(_write_new, directory, Path(name), data))


def _write_new(directory: Path, name: Path, data: bytes) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = directory / (name.name if number == 1 else f"{name.stem}-{number}{name.suffix}")
        try:
            target = path.open("xb")
        except FileExistsError:
            continue
        try:
            with target:
                target.write(data)
            return path
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from error
    raise AssertionError("unreachable")
