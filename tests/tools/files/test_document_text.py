"""Tests that documents are converted to text in a separate process, and that an attack on the reader gives an error and
no damage.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.tools.files import document_text as module
from agent_kernel.tools.files.document_text import Documents
from tests.tools.files import documents


@pytest.mark.parametrize(
    ("format", "body", "wanted"),
    [
        ("pdf", documents.pdf("Hello there", "Second"), "[page 1 of 2]\nHello there\n\n[page 2 of 2]\nSecond\n\n"),
        ("xlsx", documents.xlsx(), "[sheet Sales]\nmonth\tsum\nMay\t12.5\n\t\tfar\n\n"),
        ("docx", documents.word(), "## Report\nIt was a good May.\na\tb\n\nThe end.\n"),
        (
            "ipynb",
            documents.notebook(),
            "[cell 1, markdown]\n# Title\n\n[cell 2, code]\n1 + 1\n[output]\nprinted\n\n[output: image/png]\n"
            "[error]\nValueError: bad\n\n",
        ),
    ],
    ids=["pdf", "xlsx", "docx", "ipynb"],
)
async def test_a_document_is_read_as_text(format: str, body: bytes, wanted: str) -> None:
    assert await Documents().text(format, body, "k") == wanted


async def test_of_a_table_in_columns_the_first_rows_are_read() -> None:
    text = await Documents().text("parquet", documents.parquet(500), "k")
    assert text.startswith("[500 rows x 2 columns: x int64, name string]\n0\té\n1\té\n")
    assert text.splitlines()[-1] == "99\té"


async def test_a_workbook_of_several_sheets_begins_with_their_names_and_a_cell_stays_in_its_line() -> None:
    book = documents.workbook({"Sales": [["a\nb", "c\td"]], "Costs": [[1]]})
    text = await Documents().text("xlsx", book, "k")
    assert text == "[sheets: Sales, Costs]\n[sheet Sales]\na b\tc d\n\n[sheet Costs]\n1\n\n"


async def test_a_reader_stops_after_the_characters_that_are_wanted() -> None:
    read = Documents()
    book = documents.workbook({"Sales": [[number, "x" * 50] for number in range(200)]})
    beginning = await read.text("xlsx", book, "k", 120)
    assert beginning == (await read.text("xlsx", book, "k"))[:120] + "\n[cut off after 120 characters]"


@pytest.mark.parametrize(
    ("format", "body", "words"),
    [
        ("docx", documents.bomb(), "expands to more data"),
        ("xlsx", documents.bomb(), "expands to more data"),
        ("docx", documents.laughs(), "cannot be read"),
        ("docx", documents.nested(), "cannot be read"),
        ("docx", documents.many_parts(), "expands to more data"),
        ("docx", b"PK\x03\x04 nothing", "cannot be read"),
        ("pdf", b"%PDF-1.4\n" + b"\xff" * 1000, "cannot be read"),
        ("xlsx", b"", "cannot be read"),
        ("ipynb", b"[" * 200_000, "cannot be read"),
        ("ipynb", b'{"nbformat": 4, "cells": 5}', "cannot be read"),
        ("parquet", b"PAR1" + bytes(100) + b"PAR1", "cannot be read"),
    ],
    ids=["bomb", "bomb as xlsx", "laughs", "nested", "parts", "zip", "pdf", "empty", "deep json", "json", "parquet"],
)
async def test_a_document_made_to_break_a_reader_is_an_answer(format: str, body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        await Documents().text(format, body, "k")


async def test_a_document_can_not_bring_in_files_of_this_machine() -> None:
    text = await Documents().text("docx", documents.outside(), "k")
    assert text.strip("[]\n") == ""


async def test_a_reader_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ntime.sleep(60)")
    monkeypatch.setattr(module, "PROGRAM", str(slow))
    with pytest.raises(InvalidRequest, match="took longer"):
        await Documents(timeout_s=0.2).text("pdf", b"", "k")


async def test_a_reader_that_takes_too_much_memory_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    greedy = tmp_path / "greedy.py"
    greedy.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(module.PROGRAM).parent)!r})\n"
        "import document_worker as reader\n"
        "reader.READERS = {'pdf': lambda file: iter([bytearray(reader.MEMORY).hex()])}\n"
        "sys.exit(reader.main('pdf'))"
    )
    monkeypatch.setattr(module, "PROGRAM", str(greedy))
    with pytest.raises(InvalidRequest, match="more memory"):
        await Documents().text("pdf", b"", "k")


@pytest.mark.parametrize("mib", [512, 1350])
async def test_a_table_in_columns_is_read_in_a_part_of_the_allowed_addresses(
    mib: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Arrow's own allocator reserves 1 GiB where it can, threads the more the more cores there are, and the process
    aborts where nothing is left for the rest: with two cores at 1350 MiB, with many at the allowed 2 GiB."""
    modest = tmp_path / "modest.py"
    modest.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(module.PROGRAM).parent)!r})\n"
        f"import document_worker as reader\nreader.MEMORY = {mib} << 20\nsys.exit(reader.main('parquet'))"
    )
    monkeypatch.setattr(module, "PROGRAM", str(modest))
    assert "99\té" in await Documents().text("parquet", documents.parquet(500), "k")


async def test_a_library_that_is_missing_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare = tmp_path / "bare.py"
    bare.write_text(
        "import sys\nsys.modules['pypdf'] = None\n"
        f"sys.path.insert(0, {str(Path(module.PROGRAM).parent)!r})\n"
        "import document_worker\nsys.exit(document_worker.main('pdf'))"
    )
    monkeypatch.setattr(module, "PROGRAM", str(bare))
    with pytest.raises(InvalidRequest, match="needs pypdf") as refused:
        await Documents().text("pdf", documents.pdf("x"), "k")
    assert refused.value.hint == 'pip install "agent-kernel[documents]"'


async def test_a_text_is_remembered_by_its_content_and_the_oldest_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 60)
    read = Documents()
    first = await read.text("pdf", documents.pdf("first page of it"), 1)
    monkeypatch.setattr(module, "PROGRAM", "/no/such/program")
    assert await read.text("pdf", b"", 1) == first
    monkeypatch.undo()
    monkeypatch.setattr(module, "REMEMBERED", 60)
    await read.text("pdf", documents.pdf("second page of it"), 2)
    with pytest.raises(InvalidRequest):
        await read.text("pdf", b"", 1)


async def test_what_is_too_large_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1 << 20)
    with pytest.raises(InvalidRequest, match="more than 1 MiB"):
        await Documents().text("pdf", bytes((1 << 20) + 1), "k")
