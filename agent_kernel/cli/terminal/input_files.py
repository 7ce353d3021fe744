"""Stores the user's files in a session, so that they go with a question."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from agent_kernel.cli.base.command import Argument, argument
from agent_kernel.cli.terminal.standard_input import CHUNK, PipedData
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.file_receiver import FileReceiver, ReceivedFile
from agent_kernel.core.session import SessionKey

STDIN = "-"
FILE_NAME = re.compile(r"(?<![\w./-])[\w./-]{1,200}\.[A-Za-z]\w{0,9}(?!\w)")
MAX_SEARCHED = 4_000
"""Maximum number of characters of a question that are searched for names of files."""


def file_argument(help: str) -> Argument:
    """Return the option ``--file``, which may be repeated; its values are in ``files``."""
    return argument("-f", "--file", dest="files", metavar="FILE", action="append", default=[], help=help)


def list_files_left_out(question: str, attached: Iterable[str]) -> list[str]:
    """Return the existing files that the question names and that are not among the ``attached`` ones."""
    names = dict.fromkeys(FILE_NAME.findall(question[:MAX_SEARCHED]))
    attached_paths = {os.path.realpath(file) for file in attached}
    return [name for name in names if os.path.isfile(name) and os.path.realpath(name) not in attached_paths]


def check_file(file: str) -> None:
    """Raise InvalidRequest if there is no regular file with this name."""
    if not os.path.exists(file):
        raise InvalidRequest(f"There is no file {file}.")
    if not os.path.isfile(file):
        raise InvalidRequest(f"{file} is not a regular file.")


async def give_files(
    runtime: Any, key: SessionKey, files: Sequence[str], piped: PipedData | None = None
) -> tuple[str, ...]:
    """Store the files in the session and return their ids, in the same order. The file - is ``piped``. Raises
    InvalidRequest if a file cannot be read."""
    if not files:
        return ()
    if runtime.files is None:
        raise InvalidRequest("The configured session store cannot store files, so --file cannot be used.")
    received: list[tuple[str, ReceivedFile]] = []
    given: list[str] = []
    try:  # all files are read before the session exists, so that a missing one leaves no empty session
        for file in files:
            if file == STDIN and piped is not None:
                name = piped.name
                arrived = await asyncio.to_thread(_copy, runtime.files.incoming(), piped.body)
            else:
                name = Path(file).name
                arrived = await asyncio.to_thread(_receive, runtime.files.incoming(), file)
            received.append((name, arrived))
        await runtime.store.create(key)
        for name, arrived in received:
            given.append((await runtime.files.receive(key, name, arrived)).id)
    finally:
        for _, arrived in received:
            arrived.remove()
    return tuple(given)


def _receive(incoming: FileReceiver, file: str) -> ReceivedFile:
    try:
        check_file(file)
        with Path(file).open("rb") as source:
            return _copy(incoming, source)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}.") from None
    finally:
        incoming.close()


def _copy(incoming: FileReceiver, source: IO[bytes]) -> ReceivedFile:
    try:
        while chunk := source.read(CHUNK):
            incoming.write(chunk)
        return incoming.finish()
    finally:
        incoming.close()
