"""Tests the file tools: read slices, list, show; and what the model is told about the files of a turn."""

from __future__ import annotations

import dataclasses
import os
import resource
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import pytest

from agent_kernel.core.errors import FileNotFound
from agent_kernel.core.events import EventBody, Notice
from agent_kernel.core.files import File, ProducedFile
from agent_kernel.core.messages import ToolCall
from agent_kernel.core.protocols import ToolContext, ToolOutput
from agent_kernel.core.session import SessionKey
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.sessions.file_registry import FileRegistry
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.sessions.store.sqlite import SqliteStore
from agent_kernel.tools.base.tool_source import ToolSourceContext, gather_tools
from agent_kernel.tools.code.surface_outputs import SurfaceOutputs
from agent_kernel.tools.files import input_files
from agent_kernel.tools.files.document_text import Documents
from agent_kernel.tools.files.file_tools import MAX_SLICE, SLICE, FileTools, ListFiles, ReadFile
from agent_kernel.tools.files.input_files import InputFiles
from tests.tools.files import documents

KEY, OTHER = SessionKey("local", "s"), SessionKey("local", "other")


def context(key: SessionKey = KEY) -> ToolContext:
    return ToolContext(key, "turn-1", 1, ToolCall("c", "read_file", {}), lambda body: None)


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[FileRegistry]:
    store = SqliteStore(tmp_path / "s.db")
    for key in (KEY, OTHER):
        await store.create(key)
    yield FileRegistry(store, tmp_path / "incoming", output_bytes=400 << 20, upload_bytes=200 << 20)
    await store.aclose()


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


class Places:
    """The part of a sandbox that file tools need."""

    def __init__(self, workdir: Path) -> None:
        self._workdir = workdir

    def workdir(self, session: SessionKey) -> Path:
        return self._workdir / session.id


async def keep_file(files: FileRegistry, name: str, data: bytes) -> File:
    (kept,) = await files.keep([ProducedFile(name, data)], context())
    return kept.file


async def brought(files: FileRegistry, name: str, data: bytes) -> File:
    incoming = files.incoming()
    incoming.write(data)
    return await files.receive(KEY, name, incoming.finish())


async def read(files: FileRegistry, workdir: Path | None = None, key: SessionKey = KEY, **given: Any) -> ToolOutput:
    return await ReadFile(files, Documents(), workdir).call(given, context(key))


# ------------------------------------------------------------------------------------------------------ read_file


@pytest.mark.parametrize(
    ("given", "start", "end"),
    [
        ({}, 0, SLICE),
        ({"start": 10}, 10, SLICE + 10),
        ({"start": 10, "end": 12}, 10, 12),
        ({"end": 10**9}, 0, MAX_SLICE),
        ({"start": 99_990, "end": 10**9}, 99_990, 100_000),
        ({"start": 10**9}, 100_000, 100_000),
        ({"start": 12, "end": 10}, 12, 12),
    ],
)
async def test_a_slice_is_counted_in_characters_and_clamped(
    files: FileRegistry, given: dict[str, Any], start: int, end: int
) -> None:
    text = "".join(chr(0x100 + number % 500) for number in range(100_000))
    file = await keep_file(files, "a.txt", text.encode())
    output = await read(files, file_id=file.id, **given)
    head, _, body = output.text.partition("\n")
    assert body == text[start:end]
    assert head.startswith(f"a.txt: characters {start} to {end} of 100000")
    assert ("go on with start=" in head) == (end < 100_000)
    assert output.details == {
        "file_id": file.id,
        "name": "a.txt",
        "format": "txt",
        "start": start,
        "end": end,
        "total_chars": 100_000,
        "max_slice_chars": MAX_SLICE,
    }


async def test_a_text_of_a_hundred_megabytes_is_read_in_little_memory(files: FileRegistry, workdir: Path) -> None:
    with (workdir / "log.txt").open("wb") as log:
        for _ in range(100):
            log.write(b"0123456789abcde\n" * (1 << 16))
    tracemalloc.start()
    output = await read(files, workdir, path="log.txt", start=99 << 20, end=(99 << 20) + 16)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert output.text.endswith(f"of {100 << 20}; go on with start={(99 << 20) + 16}\n0123456789abcde\n")
    assert peak < 16 << 20


async def test_documents_are_read_by_id_and_by_path(files: FileRegistry, workdir: Path) -> None:
    file = await brought(files, "Report.PDF", documents.pdf("Hello there"))
    assert (await read(files, file_id=file.id)).text.endswith("\n[page 1 of 1]\nHello there\n\n")
    (workdir / "b.xlsx").write_bytes(documents.xlsx())
    assert "May\t12.5" in (await read(files, workdir, path="b.xlsx")).text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either a file_id or a path"),
        ({"file_id": "a", "path": "b"}, "either a file_id or a path"),
        ({"file_id": "file-none"}, "no file"),
        ({"path": "none.txt"}, "no file"),
        ({"path": "../secret.txt"}, "without '..'"),
        ({"path": "/etc/passwd"}, "without '..'"),
        ({"path": "link.txt"}, "no file"),
        ({"path": "pipe"}, "no file"),
        ({"path": "image.png"}, "not a text file"),
        ({"path": "sparse.bin"}, "not a text file"),
    ],
)
async def test_what_can_not_be_read_is_said(
    files: FileRegistry, workdir: Path, given: dict[str, Any], words: str
) -> None:
    (workdir.parent / "secret.txt").write_text("secret")
    (workdir / "link.txt").symlink_to(workdir.parent / "secret.txt")
    (workdir / "image.png").write_bytes(b"\x89PNG\x00\xff")
    with (workdir / "sparse.bin").open("wb") as sparse:
        sparse.truncate(1 << 40)
    os.mkfifo(workdir / "pipe")
    output = await read(files, workdir, **given)
    assert output.status == "error"
    assert words in output.text
    assert "secret\n" not in output.text


async def test_a_file_of_another_session_is_not_there(files: FileRegistry) -> None:
    file = await keep_file(files, "a.txt", b"mine")
    output = await read(files, key=OTHER, file_id=file.id)
    assert (output.status, "mine" in output.text) == ("error", False)


async def test_a_text_that_is_no_utf_8_is_read_with_marks(files: FileRegistry) -> None:
    latin = await keep_file(files, "a.csv", "café;1".encode("latin-1"))
    assert (await read(files, file_id=latin.id)).text.endswith("\ncaf\ufffd;1")
    marked = await keep_file(files, "b.txt", b"\xef\xbb\xbfhello")
    assert (await read(files, file_id=marked.id)).text.endswith("of 5\nhello")


# ------------------------------------------------------------------------------------------------------ the others


async def test_files_of_the_session_are_listed(files: FileRegistry) -> None:
    listed = ListFiles(files)
    assert (await listed.call({}, context())).text == "There are no files."
    file = await brought(files, "a.csv", b"x")
    await files.keep([ProducedFile("b.md", b"y"), ProducedFile("c", error="not_produced")], context())
    output = await listed.call({}, context())
    lines = output.text.splitlines()
    assert lines[0] == f"- {file.id}: a.csv (text/csv, 1 bytes), brought by the person in turn 1"
    assert lines[1].endswith("b.md (text/markdown, 1 bytes), made by read_file in turn 1")
    assert lines[2] == "- c: not produced"
    assert [one["name"] for one in output.details["files"]] == ["a.csv", "b.md", "c"]
    assert (await listed.call({}, context(OTHER))).details == {"files": []}


async def test_files_of_the_work_directory_are_shown_on_demand(workdir: Path) -> None:
    (workdir / "deck.pptx").write_bytes(b"slides")
    (workdir / "other.txt").write_text("not asked for")
    output = await SurfaceOutputs(workdir).call({"outputs": [{"name": "deck.pptx"}, {"name": "gone.html"}]}, context())
    assert output.status == "error"
    assert [(file.name, file.format, file.error) for file in output.files] == [
        ("deck.pptx", "pptx", ""),
        ("gone.html", "html", "not_produced"),
    ]
    assert '"status": "error", "error": "not produced"' in output.text


# ------------------------------------------------------------------------------------------------------ inputs


@pytest.mark.parametrize(
    ("names", "safe"),
    [
        (["a b.csv"], ["a_b.csv"]),
        (["../../etc/passwd", "C:\\x\\passwd", "/passwd/"], ["passwd", "passwd-2", "passwd-3"]),
        (["x.tar.gz", "X.tar.gz"], ["x.tar.gz", "X.tar-2.gz"]),
        ([".bashrc", "-rf", "", "..", "/"], ["_bashrc", "_rf", "file", "_.", "file-2"]),
        (["a-2.csv", "a.csv", "a.csv"], ["a-2.csv", "a.csv", "a-3.csv"]),
        (["\x00\n\u202e$(rm)`.py", "bü.txt"], ["___$_rm__.py".replace("$", "_"), "b_.txt"]),
        (["y" * 300 + ".csv"], ["y" * 96 + ".csv"]),
    ],
)
def test_names_in_the_work_directory_are_safe_and_each_is_there_once(names: list[str], safe: list[str]) -> None:
    assert list(input_files.safe_names(names)) == safe


async def offer_files(
    files: FileRegistry, workdir: Path, *ids: str, folder: Path | None = None, **request: Any
) -> tuple[str, list[str], list[EventBody]]:
    """Return the note, the names of the tools, and the events of a turn with these files, beside a notebook in
    ``folder``."""
    events: list[EventBody] = []
    places: Any = Places(workdir)
    reader = Documents()
    tools = FileTools(files, places, reader, always=False, shell=False)
    asked = TurnRequest("look", inputs=ids, **request)
    occasion = ToolSourceContext(KEY, asked, events.append, folder)
    offered = await gather_tools([InputFiles(files, places, reader, shell=False), tools], occasion)
    return "\n".join(note.text for note in offered.notes), [tool.spec.name for tool in offered.tools], events


async def test_what_a_turn_was_given_lies_in_its_work_directory_and_is_told(files: FileRegistry, workdir: Path) -> None:
    table = await brought(files, "my data.csv", b"x,y\n1,2\n")
    picture = await brought(files, "p.png", b"\x89\x00" + bytes(100_000))
    report = await brought(files, "r.pdf", documents.pdf("Hi"))
    note, tools, _ = await offer_files(files, workdir, table.id, picture.id, report.id)
    assert tools == ["read_file", "list_files"]
    lines = note.splitlines()
    assert lines[2:] == [
        f"- my_data.csv (id {table.id}, text/csv, 8 bytes; the person calls it my data.csv), "
        "read by pd.read_csv('my_data.csv'), 1 rows x 2 columns: x int64, y int64",
        "    x,y",
        "    1,2",
        f"- p.png (id {picture.id}, image/png, 100002 bytes)",
        f"- r.pdf (id {report.id}, application/pdf, {report.size} bytes)",
        f"  read_file(file_id='{report.id}') gives its text.",
    ]
    assert (workdir / "s" / "my_data.csv").read_bytes() == b"x,y\n1,2\n"
    assert (workdir / "s" / "p.png").stat().st_size == 100_002
    assert (workdir / "s" / "p.png").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b"region;sales\nNorth;12,5\nEast;4\n", "pd.read_csv('t.csv', sep=';', decimal=',')"),
        (b"region;sales\nNorth;12.5\nEast;4\n", "pd.read_csv('t.csv', sep=';')"),
        (b'"region";"sales"\n"North";"12,5"\n', "pd.read_csv('t.csv', sep=';', decimal=',')"),
        (b"region,note\nNorth,a;b\n", "pd.read_csv('t.csv')"),
        (b'name,"a;b;c"\nx,y\n', "pd.read_csv('t.csv')"),
    ],
)
async def test_a_table_is_read_with_its_own_separator_and_decimal_mark(
    files: FileRegistry, workdir: Path, body: bytes, read: str
) -> None:
    table = await brought(files, "t.csv", body)
    text, _, _ = await offer_files(files, workdir, table.id)
    assert f"bytes), read by {read}, " in text


async def test_a_table_is_described_as_the_files_that_a_cell_names(files: FileRegistry, workdir: Path) -> None:
    rows = "".join(f"{day:02}.02.2025;{('Köln', 'Bonn')[day % 2]};1.{day}0,50\n" for day in range(10, 22))
    table = await brought(files, "t.csv", f"Datum;Filiale;Umsatz\n{rows}01.03.2025;;\n".encode())
    text, _, _ = await offer_files(files, workdir, table.id)
    options = "sep=';', decimal=',', thousands='.', parse_dates=['Datum'], dayfirst=True"
    columns = "13 rows x 3 columns: Datum date, Filiale str, Umsatz float64"
    assert f"read by pd.read_csv('t.csv', {options}), {columns}\n    Filiale values: Köln, Bonn\n" in text
    assert "    missing values: Filiale 1, Umsatz 1\n    Datum;Filiale;Umsatz\n" in text, "the preview follows"
    document = await brought(files, "d.json", b'[{"id": 1, "tags": ["a"]}]')
    text, _, _ = await offer_files(files, workdir, document.id)
    assert "read by json.load(open('d.json')), list of 1, each object {id int, tags list of 1, each str}\n" in text


async def test_a_log_and_rows_of_json_are_described_as_tables(files: FileRegistry, workdir: Path) -> None:
    lines = [f"2025-01-{day:02} 10:00:00 {'ERROR' if day % 4 else 'INFO'} db took {day} ms" for day in range(1, 29)]
    log = await brought(files, "app.log", "\n".join(lines).encode())
    rows = await brought(files, "r.json", b'[{"id": 1, "by": {"name": "Ada"}}, {"id": 2, "by": {"name": "Bob"}}]')
    text, _, _ = await offer_files(files, workdir, log.id, rows.id)
    assert "bytes), read by pd.Series(open('app.log').read().splitlines()).str.extract(r'^(?P<time>" in text
    assert "28 rows x 3 columns: time date, level str, ms int64\n    level values: ERROR, INFO" in text
    assert "read by pd.json_normalize(json.load(open('r.json'))), 2 rows x 2 columns: id int64, by.name str" in text


async def test_a_workbook_is_described_by_its_sheets_and_first_rows(files: FileRegistry, workdir: Path) -> None:
    rows = [["staff of 2025"], [], ["name", "pay"], *([f"n{at}", "€ 1,250.00"] for at in range(2_000))]
    book = await brought(files, "my book.xlsx", documents.workbook({"Staff": rows, "Notes": [["x"]]}))
    text, _, _ = await offer_files(files, workdir, book.id)
    reads = "read by pd.read_excel('my_book.xlsx', skiprows=2), "
    reads += "2000 rows x 2 columns: name str, pay str, sheets: Staff, Notes\n"
    head = "    name,pay\n    n0,€ 1,250.00\n    n1,€ 1,250.00\n    n2,€ 1,250.00\n"
    head += "    pay values: € 1,250.00\n"
    head += "    sheet Notes read by pd.read_excel('my_book.xlsx', sheet_name='Notes'): x\nmy_book['pay'] "
    assert f"the person calls it my book.xlsx), {reads}{head}" in text
    names: dict[str, Any] = {"pd": pd, "my_book": pd.read_excel(workdir / "s" / "my_book.xlsx", skiprows=2)}
    exec(text.partition("Convert it first: ")[2].splitlines()[0], names)
    assert names["pay_number"].sum() == 2_000 * 1_250


async def test_a_workbook_without_a_readable_sheet_is_given_without_its_sheets(
    files: FileRegistry, workdir: Path
) -> None:
    book = await brought(files, "b.xlsx", documents.workbook({"a\nb": [["x"]]}))
    text, _, _ = await offer_files(files, workdir, book.id)
    assert "read by pd.read_excel('b.xlsx')" in text


async def test_files_with_a_common_key_are_described_with_their_merge(files: FileRegistry, workdir: Path) -> None:
    orders = await brought(files, "orders.csv", b"id,customer\n1,Ada\n2,Bob\n3,Ada\n")
    people = await brought(
        files, "people.xlsx", documents.workbook({"P": [["name", "city"], ["Ada", "Rome"], ["Bob", "Oslo"]]})
    )
    text, _, _ = await offer_files(files, workdir, orders.id, people.id)
    merge = "orders.merge(people.drop_duplicates('name'), left_on='customer', right_on='name', how='left')"
    facts = f"\norders and people have common values. Merge them first: orders_merged = {merge}\n"
    assert text.endswith(f"{facts}orders_merged then has the columns id, customer, name, city")


async def test_a_parquet_file_is_described_by_its_columns(files: FileRegistry, workdir: Path) -> None:
    table = await brought(files, "t.parquet", documents.parquet(500))
    text, _, _ = await offer_files(files, workdir, table.id)
    assert "bytes), read by pd.read_parquet('t.parquet'), 500 rows x 2 columns: x int64, name string\n" in text


@pytest.mark.parametrize("body", [b"", b"PK\x03\x04 nothing", documents.bomb()], ids=["empty", "damaged", "bomb"])
async def test_a_workbook_that_cannot_be_read_is_given_without_its_sheets(
    files: FileRegistry, workdir: Path, body: bytes
) -> None:
    book = await brought(files, "b.xlsx", body)
    text, _, _ = await offer_files(files, workdir, book.id)
    assert f"{len(body)} bytes), read by pd.read_excel('b.xlsx')\n" in text


@pytest.mark.parametrize("where", ["draft", "live"])
async def test_a_file_is_saved_beside_the_notebook_in_which_the_code_runs(
    files: FileRegistry, workdir: Path, where: Literal["draft", "live"]
) -> None:
    (folder := workdir / "notebooks").mkdir()
    (folder / "t.csv").write_text("mine")
    table = await brought(files, "t.csv", b"a,b\n" + b"1,2\n" * 4_000)
    book = await brought(files, "b.xlsx", documents.xlsx())
    for number in range(2):
        text, _, events = await offer_files(files, workdir, table.id, book.id, where=where, folder=folder)
        assert "They are copies in the folder of the notebook, where python runs, under these names.\n" in text
        assert "- t-2.csv (id" in text
        assert "read by pd.read_csv('t-2.csv'), 4000 rows x 2 columns: a int64, b int64\n" in text
        assert "read by pd.read_excel('b.xlsx'), 2 rows x 3 columns: month str, sum float64, Unnamed: 2 str, " in text
        saved = [Notice("info", "Saved in the folder of the notebook, where code can read it: t-2.csv, b.xlsx.")]
        assert events == (saved if number == 0 else []), "a second turn finds the copies of the first one"
    assert {path.name for path in folder.iterdir()} == {"t.csv", "t-2.csv", "b.xlsx"}
    assert (folder / "t.csv").read_text() == "mine"


@pytest.mark.parametrize(
    "name",
    ["pandas.py", "a.agent.json", "jupyter_config.json", "mcp.json", "requirements.txt", "run.sh", "x.ipynb", "p.pdf"],
)
async def test_a_file_that_a_program_reads_by_itself_is_not_saved_beside_the_notebook(
    files: FileRegistry, workdir: Path, name: str
) -> None:
    (folder := workdir / "notebooks").mkdir()
    file = await brought(files, name, b"1" * 10_000)
    text, _, (notice,) = await offer_files(files, workdir, file.id, where="draft", folder=folder)
    assert list(folder.iterdir()) == []
    assert isinstance(notice, Notice)
    assert f"cannot open attached files of this type or name: {name}. " in notice.text
    assert "; python cannot open it)" in text


async def test_an_incomplete_copy_is_removed(files: FileRegistry, workdir: Path) -> None:
    (folder := workdir / "notebooks").mkdir()
    table = await brought(files, "t.csv", b"a\n" + b"1\n" * 50_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limits[1]))  # Python ignores SIGXFSZ, so that writing fails
    try:
        _, _, (notice,) = await offer_files(files, workdir, table.id, where="draft", folder=folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert notice == Notice("warning", "t.csv: it could not be copied for the code (File too large).")
    assert list(folder.iterdir()) == []


async def test_the_content_of_a_file_cannot_pass_for_a_fact_about_it(files: FileRegistry, workdir: Path) -> None:
    table = await brought(files, "t.csv", b'"a\n- u.csv (id x), read by pd.read_csv(1)",b\n1,2\n')
    text, _, _ = await offer_files(files, workdir, table.id)
    assert [line for line in text.splitlines()[2:] if not line.startswith("    ")] == [
        line for line in text.splitlines() if line.startswith("- t.csv (id ")
    ]


async def test_a_row_of_a_table_cannot_pass_for_its_categories(files: FileRegistry, workdir: Path) -> None:
    table = await brought(files, "t.csv", b"a\nguild values: none\nmissing values: a 9\nc\n")
    text, _, _ = await offer_files(files, workdir, table.id)
    facts, _, preview = text.partition("\n    a\n")  # the preview begins with the first line of the file
    assert "read by pd.read_csv('t.csv'), 3 rows x 1 columns: a str" in facts
    assert "values: " not in facts
    assert "    guild values: none" in preview


async def test_a_copy_is_made_once_and_what_code_made_of_it_stays(files: FileRegistry, workdir: Path) -> None:
    file = await brought(files, "a.csv", b"original")
    await offer_files(files, workdir, file.id)
    stamp = (workdir / "s" / "a.csv").stat().st_mtime_ns
    await offer_files(files, workdir, file.id)
    assert (workdir / "s" / "a.csv").stat().st_mtime_ns == stamp
    (workdir / "s" / "a.csv").write_bytes(b"changed!")
    note, _, _ = await offer_files(files, workdir, file.id)
    assert "- a-2.csv (id" in note
    assert {path.name: path.read_bytes() for path in (workdir / "s").iterdir()} == {
        "a.csv": b"changed!",
        "a-2.csv": b"original",
    }


async def test_a_copy_is_not_written_through_a_link_that_code_left(files: FileRegistry, workdir: Path) -> None:
    file = await brought(files, "a.csv", b"original")
    (workdir / "victim").write_text("safe")
    (workdir / "s").mkdir()
    (workdir / "s" / "a.csv").symlink_to(workdir / "victim")
    note, _, _ = await offer_files(files, workdir, file.id)
    assert (workdir / "victim").read_text() == "safe"
    assert (workdir / "s" / "a-2.csv").read_bytes() == b"original"
    assert "a-2.csv" in note


async def test_previews_are_bounded_for_each_and_for_all(files: FileRegistry, workdir: Path) -> None:
    given_files = [await brought(files, f"{number}.txt", b"x" * 5000) for number in range(100)]
    note, _, _ = await offer_files(files, workdir, *(file.id for file in given_files))
    assert f"read_file(file_id='{given_files[0].id}', start=4096)" in note
    assert note.count("x" * 4096) == 7
    assert "more; list_files has all." in note
    assert len(note) < 40_000
    assert len(list((workdir / "s").iterdir())) == 100


async def test_a_turn_in_the_notebook_is_told_of_files_without_copies(files: FileRegistry, workdir: Path) -> None:
    file = await brought(files, "a.txt", b"hello")
    note, _, _ = await offer_files(files, workdir, file.id, where="live")
    assert "hello" in note
    assert "work directory" not in note
    assert not (workdir / "s").exists()


async def test_a_file_that_is_gone_is_told_and_one_that_never_was_is_an_error(
    files: FileRegistry, workdir: Path
) -> None:
    (kept,) = await files.keep([ProducedFile("a", error="not_produced")], context())
    note, _, events = await offer_files(files, workdir, kept.file.id)
    assert "not produced" in note
    assert [type(event) for event in events] == [Notice]
    with pytest.raises(FileNotFound):
        await offer_files(files, workdir, "file-none")


async def test_a_copy_that_fails_is_told_and_the_turn_goes_on(files: FileRegistry, workdir: Path) -> None:
    file = await brought(files, "a.txt", b"hello")
    (workdir / "s").write_text("in the way of the directory")
    note, _, events = await offer_files(files, workdir, file.id)
    assert "could not be copied" in note
    assert "    hello" in note
    assert [type(event) for event in events] == [Notice]


async def test_a_request_narrows_the_tools_and_a_server_may_have_them_always(
    files: FileRegistry, workdir: Path
) -> None:
    file = await brought(files, "a.txt", b"hello")
    _, tools, _ = await offer_files(files, workdir, file.id, tools=("read_file",))
    assert tools == ["read_file"]
    _, tools, _ = await offer_files(files, workdir)
    assert tools == []
    places: Any = Places(workdir)
    source = FileTools(files, places, Documents(), always=True, shell=False)
    offered = await source.offer(ToolSourceContext(KEY, TurnRequest("look"), lambda body: None))
    assert [tool.spec.name for tool in offered.tools] == ["read_file", "list_files", "surface_outputs"]
    live = await source.offer(ToolSourceContext(KEY, TurnRequest("look", where="live"), lambda body: None))
    assert [tool.spec.name for tool in live.tools] == ["read_file", "list_files"]
    assert all(tool.spec.kind == "files.read" for tool in offered.tools)


async def test_files_in_memory_are_mounted_and_read_too(tmp_path: Path, workdir: Path) -> None:
    store = MemoryStore()
    await store.create(KEY)
    files = FileRegistry(store, tmp_path / "incoming", output_bytes=1 << 20, upload_bytes=1 << 20)
    file = await brought(files, "a.txt", b"hello" * 10_000)
    await offer_files(files, workdir, file.id)
    assert (workdir / "s" / "a.txt").stat().st_size == 50_000
    assert (await read(files, file_id=file.id, start=49_995)).text.endswith("\nhello")
    assert dataclasses.is_dataclass(file)
    await store.aclose()
