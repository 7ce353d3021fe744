"""Feeds damaged documents and uploads: the result is text or a readable error, in bounded time, and nothing remains."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agent_kernel.core.errors import AgentKernelError, InvalidRequest
from agent_kernel.core.file_receiver import FileReceiver
from agent_kernel.tools.files.document_text import Documents
from jupyter_ext.api.http.upload import Upload
from tests.jupyter_ext.api.http.test_upload import TYPE, form, part
from tests.soak.conftest import Soak
from tests.tools.files import documents

HONEST = {
    "pdf": documents.pdf("Hello there", "Second"),
    "xlsx": documents.xlsx(),
    "docx": documents.word(),
    "ipynb": documents.notebook(),
    "parquet": documents.parquet(50),
}
UPLOADS_AT_ONCE = 200


def damage(rng: random.Random, right: bytes) -> bytes:
    """Return the bytes with some replaced, removed, duplicated or inserted."""
    body = bytearray(right)
    for _ in range(rng.randrange(6)):
        at = rng.randrange(len(body) + 1)
        body[at : at + rng.randrange(64)] = rng.choice(
            (rng.randbytes(rng.randrange(24)), bytes(body[at : at + 64]) * 2)
        )
    return bytes(body[: rng.randrange(len(body) + 1)] if rng.random() < 0.2 else body)


async def read_one(rng: random.Random) -> str:
    format = rng.choice(sorted(HONEST))
    try:
        await Documents().text(format, damage(rng, HONEST[format]), None)
    except InvalidRequest as error:
        words = error.message
    else:
        return f"{format} read"
    assert "\n" not in words
    return f"{format} refused"


def upload_one(rng: random.Random, directory: Path) -> str:
    body = damage(rng, form(part("purpose", b"p"), part("file", bytes(rng.randrange(2000)), "a.txt", "text/plain")))
    upload = Upload(TYPE, lambda: FileReceiver(directory, 1000))
    pieces = rng.randrange(1, 500)
    try:
        for start in range(0, len(body), pieces):
            upload.feed(body[start : start + pieces])
        upload.finish()
    except AgentKernelError:
        return "uploads refused"
    finally:
        upload.close()
    return "uploads taken"


@pytest.mark.soak(0.03)
async def test_damaged_documents(soak: Soak, tmp_path: Path) -> None:
    while soak.running:
        soak.counts[await read_one(soak.random)] += 1
        for _ in range(UPLOADS_AT_ONCE):
            soak.counts[upload_one(soak.random, tmp_path)] += 1
        assert list(tmp_path.iterdir()) == []
