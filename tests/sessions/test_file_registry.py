"""Tests that files of tools are stored with their session, however it ends, and that uploaded files are found where
they were uploaded.
"""

from __future__ import annotations

import base64
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.errors import FileGone, FileNotFound, FileNotProduced, FileTooLarge, StoreFull
from agent_kernel.core.file_receiver import STALE_S, FileReceiver, ReceivedFile
from agent_kernel.core.files import (
    INLINE_BYTES,
    ProducedFile,
    clean_name,
    cut_bytes,
    describe_files,
    format_of,
    is_text,
    mime_of,
)
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext
from agent_kernel.core.session import SessionKey
from agent_kernel.sessions.file_registry import FileRegistry, make_id
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.sessions.tables.quota import Quota

KEY = SessionKey("local", "s")
OTHER = SessionKey("local", "other")
CONTEXT = ToolContext(KEY, "turn-1", 2, ToolCall("c", "python", {}), lambda body: None, 3)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "s.db", quota=Quota(bytes=40 << 20))
    for key in (KEY, OTHER):
        await made.create(key)
    yield made
    await made.aclose()


@pytest.fixture
def registry(store: SqliteStore, tmp_path: Path) -> FileRegistry:
    return FileRegistry(store, tmp_path / "incoming", output_bytes=20 << 20, upload_bytes=1000)


def receive_file(registry: FileRegistry, *chunks: bytes) -> ReceivedFile:
    with closing(registry.incoming()) as incoming:
        for chunk in chunks:
            incoming.write(chunk)
        return incoming.finish()


async def body(registry: FileRegistry, key: SessionKey, id: str) -> bytes:
    _, found = await registry.open(key, id)
    return found.read_bytes() if isinstance(found, Path) else found


# ------------------------------------------------------------------------------------------------------ from tools


async def test_a_produced_file_is_kept_with_its_body_and_where_it_comes_from(registry: FileRegistry) -> None:
    text, binary = await registry.keep(
        [ProducedFile("a/b.CSV", b"x,y\n"), ProducedFile("p", b"\x89\xff", "PNG")], CONTEXT
    )
    assert text.wire == {
        "id": make_id("turn-1", 1, 0),
        "name": "a/b.CSV",
        "mime_type": "text/csv",
        "bytes": 4,
        "created_at": int(text.file.created),
        "purpose": "agent_output",
        "source": {"tool": "python", "round": 1, "turn": 3},
        "format": "csv",
        "preview": "x,y\n",
        "text": "x,y\n",
    }
    assert (binary.wire["mime_type"], binary.wire["format"]) == ("image/png", "png")
    assert base64.b64decode(binary.wire["data_base64"]) == b"\x89\xff"
    assert binary.file.id == make_id("turn-1", 1, 1)
    assert await registry.files(KEY) == [text.file, binary.file]
    assert await body(registry, KEY, binary.file.id) == b"\x89\xff"


async def test_ids_are_not_given_twice_and_look_like_mistral_rs_writes_them(registry: FileRegistry) -> None:
    for _ in range(2):
        await registry.keep([ProducedFile("a", b"1"), ProducedFile("b", b"2")], CONTEXT)
    ids = [file.id for file in await registry.files(KEY)]
    assert ids == [make_id("turn-1", 1, number) for number in range(4)]
    assert all(
        id.startswith("file_") and id.endswith(f"_r1_{number}") and len(id) == 22 for number, id in enumerate(ids)
    )


async def test_a_large_body_stays_out_of_the_wire_and_so_does_what_is_too_much_together(
    registry: FileRegistry,
) -> None:
    half = b"x" * (INLINE_BYTES // 2 + 1)
    files = [
        ProducedFile("large.txt", half + half),
        ProducedFile("1.txt", half),
        ProducedFile("2.txt", half),
        ProducedFile("3", b"x"),
    ]
    kept = await registry.keep(files, CONTEXT)
    assert ["text" in one.wire for one in kept] == [False, True, False, True]
    assert kept[0].wire["bytes"] == len(half) * 2
    assert kept[0].wire["preview"] == "x" * 4096
    assert await body(registry, KEY, kept[0].file.id) == half + half


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda root: ProducedFile("a", root / "missing", root=root), "vanished"),
        (lambda root: ProducedFile("a", root / "folder", root=root), "vanished"),
        (lambda root: ProducedFile("a", root / "out", root=root), "vanished"),
        (lambda root: ProducedFile("a", root / "sparse", root=root), "too_large"),
        (lambda root: ProducedFile("a", b"x" * ((20 << 20) + 1)), "too_large"),
        (lambda root: ProducedFile("a", error="not_produced"), "not_produced"),
    ],
)
async def test_what_can_not_be_kept_is_a_file_that_says_why(
    registry: FileRegistry, tmp_path: Path, make: Callable[[Path], ProducedFile], code: str
) -> None:
    root = tmp_path / "work"
    (root / "folder").mkdir(parents=True)
    (root / "out").symlink_to("/etc/passwd")
    with (root / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 40)
    bad, good = await registry.keep([make(root), ProducedFile("b", b"fine")], CONTEXT)
    assert (bad.file.error, bad.file.size, bad.wire["code"]) == (code, 0, code)
    assert bad.wire["message"]
    assert not bad.wire.keys() & {"text", "data_base64"}
    assert good.wire["text"] == "fine"
    with pytest.raises(FileNotProduced):
        await registry.open(KEY, bad.file.id)
    assert list((tmp_path / "incoming").iterdir()) == []


async def test_a_full_quota_is_told_and_the_next_file_still_has_its_chance(registry: FileRegistry) -> None:
    names = [ProducedFile(f"{number}", b"x" * (15 << 20)) for number in range(3)]
    kept = await registry.keep([*names, ProducedFile("small", b"x")], CONTEXT)
    assert [one.file.error for one in kept] == ["", "", "quota_exceeded", ""]


async def test_names_that_would_break_a_line_or_the_store_are_cleaned(registry: FileRegistry, tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_bytes(b"1")
    odd = ["a\nb", "\ud800\u202e", "x" * 300 + ".txt", " "]
    kept = await registry.keep([ProducedFile(name, b"1") for name in odd], CONTEXT)
    assert [one.file.name for one in kept] == ["a_b", "__", "x" * 251 + ".txt", "file"]


async def test_a_file_made_a_megabyte_at_a_time_is_never_whole_in_memory(
    registry: FileRegistry, tmp_path: Path
) -> None:
    (tmp_path / "big.bin").write_bytes(bytes(19 << 20))
    tracemalloc.start()
    (kept,) = await registry.keep([ProducedFile("big.bin", tmp_path / "big.bin")], CONTEXT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept.file.size == 19 << 20
    assert peak < 8 << 20


# ------------------------------------------------------------------------------------------------------ from people


async def test_an_upload_becomes_a_file_of_the_session(registry: FileRegistry) -> None:
    file = await registry.receive(KEY, "notes", receive_file(registry, b"caf\xc3", b"\xa9"), purpose="assistants")
    assert (file.mime, file.preview, file.purpose, file.tool) == ("text/plain", "café", "assistants", "user_upload")
    assert (file.id[:5], len(file.id)) == ("file-", 37)
    assert await body(registry, KEY, file.id) == "café".encode()
    binary = await registry.receive(KEY, "x.bin", receive_file(registry, b"caf\xc3"), mime="application/x-odd")
    assert (binary.mime, binary.preview) == ("application/x-odd", "")


def test_an_upload_that_is_too_large_or_given_up_leaves_nothing(registry: FileRegistry, tmp_path: Path) -> None:
    incoming = registry.incoming()
    incoming.write(b"x" * 1000)
    with pytest.raises(FileTooLarge, match="at most"):
        incoming.write(b"x")
    incoming.close()
    registry.incoming().close()
    assert list((tmp_path / "incoming").iterdir()) == []


async def test_a_full_disk_is_told_and_the_turn_goes_on(
    registry: FileRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.open
    with monkeypatch.context() as full:
        full.setattr(os, "open", lambda path, flags, mode=0o777, **more: really("/dev/full", os.O_WRONLY))
        with pytest.raises(StoreFull, match="could not be written"):
            receive_file(registry, b"x")
        (kept,) = await registry.keep([ProducedFile("a", b"x")], CONTEXT)
    assert (kept.file.error, await registry.files(KEY)) == ("store_full", [kept.file])


def test_what_a_crashed_process_left_goes_after_a_while(tmp_path: Path) -> None:
    for name, age in (("old.part", STALE_S + 10), ("new.part", 0)):
        path = tmp_path / name
        path.touch()
        stamp = path.stat().st_mtime - age
        os.utime(path, (stamp, stamp))
    FileReceiver(tmp_path, 10).close()
    assert [path.name for path in tmp_path.iterdir()] == ["new.part"]


async def test_a_file_is_read_in_its_own_session_only_until_it_is_attached_to_another(registry: FileRegistry) -> None:
    file = await registry.receive(KEY, "a.txt", receive_file(registry, b"hello"))
    with pytest.raises(FileNotFound):
        await registry.open(OTHER, file.id)
    for _ in range(2):
        assert (await registry.attach(OTHER, KEY, file.id)).id == file.id
    assert await registry.remove(KEY, file.id)
    assert await body(registry, OTHER, file.id) == b"hello"
    assert await registry.sessions_of("local", file.id) == [OTHER]
    with pytest.raises(FileNotFound):
        await registry.attach(OTHER, KEY, "file-none")


async def test_a_file_whose_bytes_are_gone_says_so(registry: FileRegistry, tmp_path: Path) -> None:
    (kept,) = await registry.keep([ProducedFile("a.bin", b"x" * 20_000)], CONTEXT)
    for path in (tmp_path / "s.db.blobs").rglob("*"):
        if path.is_file():
            path.unlink()
    with pytest.raises(FileGone, match="no longer available"):
        await registry.open(KEY, kept.file.id)


async def test_a_store_without_files_has_no_registry(tmp_path: Path) -> None:
    class Plain:
        pass

    assert FileRegistry.of(Plain(), tmp_path, 1, 1) is None  # type: ignore[arg-type]  # a store of somebody else
    store = MemoryStore()
    assert FileRegistry.of(store, tmp_path, 1, 1) is not None
    await store.aclose()


# ------------------------------------------------------------------------------------------------------ values


def table(*rows: tuple[Callable[..., Any], Iterable[Any], Any]) -> list[Any]:
    return [pytest.param(*row, id=f"{row[0].__name__}-{number}") for number, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("function", "given", "wanted"),
    table(
        (cut_bytes, ("héllo", 10), "héllo"),
        (cut_bytes, ("héllo", 2), "h"),
        (cut_bytes, ("héllo", 3), "hé"),
        (format_of, ("plot.png",), "png"),
        (format_of, ("report.MD",), "md"),
        (format_of, ("noext",), ""),
        (mime_of, ("csv",), "text/csv"),
        (mime_of, ("PNG",), "image/png"),
        (mime_of, ("markdown",), "text/markdown"),
        (mime_of, ("geojson",), "application/json"),
        (mime_of, ("unknown_",), "application/octet-stream"),
        (is_text, ("image/svg+xml",), True),
        (is_text, ("application/json",), True),
        (is_text, ("image/png",), False),
        (clean_name, ("a/b c.txt",), "a/b c.txt"),
    ),
)
def test_facts_of_a_file_follow_from_its_name(function: Callable[..., Any], given: Iterable[Any], wanted: Any) -> None:
    assert function(*given) == wanted


async def test_a_model_is_told_how_texts_begin_and_of_binaries_their_facts(registry: FileRegistry) -> None:
    files = [ProducedFile(f"{number}.txt", b"line\n" * 300) for number in range(6)]
    kept = await registry.keep(
        [ProducedFile("p.png", b"\x89\xff"), *files, ProducedFile("m", error="not_produced")], CONTEXT
    )
    text = describe_files([one.file for one in kept])
    assert f"- p.png (image/png, 2 bytes, id {kept[0].file.id})\n- 0.txt" in text
    assert "- m: not produced" in text
    assert text.count("    line") == 4 * 205
    assert len(text) < 4 * 1024 * 2 + 1000
    many = describe_files([kept[0].file] * 64)
    assert many.count("\n") == 21
    assert many.endswith("\n- and 44 more: list_files has all")


async def test_a_file_goes_by_itself_when_its_time_has_come(store: SqliteStore, tmp_path: Path) -> None:
    now = [1_000.0]
    registry = FileRegistry(store, tmp_path / "in", output_bytes=9_000, upload_bytes=1000, clock=lambda: now[0])
    brief = await registry.receive(KEY, "a.txt", receive_file(registry, b"brief"), lasts_s=60)
    lasting = await registry.receive(KEY, "b.txt", receive_file(registry, b"lasting"))
    assert (brief.expires, lasting.expires) == (1_060.0, 0.0)
    assert [file.expires for file in await store.files(KEY)] == [1_060.0, 0.0], "it is kept with the file"
    now[0] = 1_059.9
    assert (await registry.open(KEY, brief.id))[0] == brief
    now[0] = 1_060.0
    with pytest.raises(FileNotFound):
        await registry.open(KEY, brief.id)
    assert [file.id for file in await registry.files(KEY)] == [lasting.id]
    assert [file.id for _, file in await registry.everywhere("local", None)] == [lasting.id]
    assert [file.id for file in await store.files(KEY)] == [lasting.id], "nothing of it is left in the store"
