"""Tests that files of a session are exported and imported, in every format that contains a session, and that invalid
ones are refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import nbformat
import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.files import File
from agent_kernel.core.seams.session_store import SessionStore
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.contract_tests.files import LARGE, bytes_of, file
from agent_kernel.sessions.export import store_copy
from agent_kernel.sessions.export.formats import mistralrs_files
from agent_kernel.sessions.export.formats.json_reader import Fields
from agent_kernel.sessions.export.import_export import copy_session, export_session, import_session
from agent_kernel.sessions.export.transcript import export, parse
from agent_kernel.sessions.store.memory import MemoryStore
from tests.sessions.talk import KEY, whole_turns

HUGE = b"\xff" * 5000


async def store_files(store: SessionStore) -> list[File]:
    """Store a session with a text, a binary file and a file that was not produced."""
    await whole_turns(store, 1)
    absent = File("file-3", "b.txt", "text/plain", 0, 3.5, error="not_produced", message="not produced")
    made = [
        (file("file-1", b"hello", 1.25, preview="hello", tool="python", round=2, turn=1), b"hello"),
        (file("file_ab_r0_1", LARGE, 2.0, mime="image/png"), LARGE),
        (absent, None),
    ]
    await store.add_files(KEY, made)  # type: ignore[attr-defined]  # all of ours keep files
    return [one for one, _ in made]


@pytest.mark.parametrize("format", ["agent-kernel", "jsonl", "mistralrs"])
async def test_what_leaves_with_a_session_comes_back(store: SessionStore, format: str) -> None:
    files = await store_files(store)
    written = await export_session(store, KEY, format)
    come = await import_session(store, "local", written.document, trusted=True, id="copy")
    kept: list[File] = await store.files(come.session.key)  # type: ignore[attr-defined]
    assert kept == files
    assert await bytes_of(store, come.session.key, "file_ab_r0_1") == LARGE  # type: ignore[arg-type]
    assert come.preview.files == 3


async def test_large_ones_lie_beside_a_notebook_under_their_hash(store: SessionStore) -> None:
    await store_files(store)
    whole = await store_copy.read_snapshot(store, KEY)
    assert whole is not None
    written = export(whole, inline_bytes=1000)
    assert written.files == {hashlib.sha256(LARGE).hexdigest(): LARGE}
    read = parse(written.document)
    assert read.absent == tuple(written.files)
    assert read.with_files(written.files).files == whole.files
    assert export(read.with_files(written.files), inline_bytes=1000) == written


async def test_what_is_too_large_for_a_document_stays_named_and_a_copy_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_copy, "DOCUMENT_BYTES", 4000)
    store = MemoryStore()
    await whole_turns(store, 1)
    await store.add_files(KEY, [(file("file-1", HUGE, name="huge"), HUGE), (file("file-2"), b"hello")])
    copy = SessionKey("local", "copy")
    await copy_session(store, KEY, copy)
    assert await bytes_of(store, copy, "file-1") == HUGE
    written = await export_session(store, KEY)
    come = await import_session(store, "local", written.document)
    assert come.preview.left_out["files without bytes"] == 1
    one, two = await store.files(come.session.key)
    assert (one.name, one.error, one.size) == ("huge", "elided", 0)
    assert "5000 bytes" in one.message
    assert (two.error, two.size) == ("", 5)
    await store.aclose()


async def test_a_page_names_the_files_and_what_has_no_place_for_them_counts_them(store: SessionStore) -> None:
    await store_files(store)
    page = (await export_session(store, KEY, "markdown")).document.decode()
    assert "## Files\n\nThis document does not contain them, only their names.\n\n- `a.txt`, 5 bytes\n" in page
    notebook = nbformat.reads((await export_session(store, KEY, "notebook")).document.decode(), as_version=4)
    last = "This notebook does not contain the files of the conversation: `a.txt`, "
    assert notebook.cells[-1].source.startswith(last)
    for format in ("openai", "notebook", "markdown"):
        assert (await export_session(store, KEY, format)).left_out["files"] == 3


def list_fields(**facts: Any) -> Fields:
    one = {"id": "file-1", "name": "a", "bytes": 5, "created_at": 1, "text": "hello"}
    return Fields({"files": [{**one, **facts}, {**one, "id": "file-2"}]}, "document")


@pytest.mark.parametrize(
    "facts",
    [
        {"id": "file-2"},
        {"hash": "0" * 64},
        {"hash": "x"},
        {"data_base64": "?", "text": None},
        {"name": 5},
        {"source": {"round": -1}},
        {"created": 1e300},
        {"bytes": -1, "text": None, "hash": "0" * 64},
    ],
)
def test_what_is_wrong_with_a_file_is_refused_by_its_place(facts: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"document\.files\[[01]\]"):
        list(mistralrs_files.read(list_fields(**facts).each("files")))


def test_facts_that_nobody_vouches_for_are_made_harmless() -> None:
    odd = {"id": "../x", "name": "a\r\n\u202e\ud800" + "b" * 300, "mime_type": "text/html\r\nX: y", "format": "<b>"}
    (made, data), _ = mistralrs_files.read(
        list_fields(**odd, purpose="\x00", source={"tool": "\x1b[31m"}, bytes=10**9).each("files")
    )
    assert data == b"hello"
    assert (made.size, made.mime, made.format, made.purpose) == (5, "application/octet-stream", "", "agent_output")
    assert made.id.startswith("file-")
    assert len(made.id) == 37
    assert (made.name, made.tool) == ("b" * 255, "_[31m")


def test_bytes_that_are_no_text_are_base64() -> None:
    body = mistralrs_files.write(file("file-1", b"\xff", mime="text/plain"), b"\xff")
    assert "text" not in body
    assert base64.b64decode(body["data_base64"]) == b"\xff"
    assert json.loads(json.dumps(body)) == body
