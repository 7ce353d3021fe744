"""Documents for tests: ordinary ones, and some that attack their reader."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence

import docx
import openpyxl
import pyarrow
import pyarrow.parquet

TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
RELS = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"'
    ' Target="word/document.xml"/></Relationships>'
)
SPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def save_document(save: Callable[[io.BytesIO], object]) -> bytes:
    made = io.BytesIO()
    save(made)
    return made.getvalue()


def pdf(*pages: str) -> bytes:
    """Return a PDF, written by hand, with one line of text on each page."""
    kids = " ".join(f"{3 + 2 * number} 0 R" for number in range(len(pages)))
    font = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    objects = ["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>"]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Resources<</Font<</F1 {font}>>>>"
            f"/Contents {4 + 2 * number} 0 R>>"
        )
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    body, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, start=1):
        places.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer<</Size {len(objects) + 1}/Root 1 0 R>>\n"
    return body + f"{end}startxref\n{len(body)}\n%%EOF".encode()


def xlsx() -> bytes:
    return workbook({"Sales": [["month", "sum"], ["May", 12.5], [None, None, "far"]]})


def workbook(sheets: Mapping[str, Sequence[Sequence[object]]]) -> bytes:
    """Return a workbook that has these rows in each of its sheets."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    return save_document(book.save)


def word() -> bytes:
    document = docx.Document()
    document.add_heading("Report", 2)
    document.add_paragraph("It was a good May.")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "a", "b"
    document.add_paragraph("The end.")
    return save_document(document.save)


def notebook() -> bytes:
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "printed\n"},
        {"output_type": "display_data", "data": {"image/png": "AAAA"}, "metadata": {}},
        {"output_type": "error", "ename": "ValueError", "evalue": "bad", "traceback": []},
    ]
    code = {"id": "b", "cell_type": "code", "source": "1 + 1", "metadata": {}, "outputs": outputs, "execution_count": 1}
    cells = [{"id": "a", "cell_type": "markdown", "source": "# Title", "metadata": {}}, code]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}).encode()


def parquet(rows: int) -> bytes:
    table = pyarrow.table({"x": list(range(rows)), "name": ["é"] * rows})
    return save_document(lambda made: pyarrow.parquet.write_table(table, made))


def package(document: bytes) -> bytes:
    """Return a docx file whose main part is ``document``."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("[Content_Types].xml", TYPES)
        parts.writestr("_rels/.rels", RELS)
        parts.writestr("word/document.xml", document)
    return made.getvalue()


def bomb() -> bytes:
    """Return a docx file of some 100 kB that unpacks to 100 MB of one letter."""
    text = b"<w:t>" + b"A" * (100 << 20) + b"</w:t>"
    return package(f"<w:document {SPACE}><w:body>".encode() + text + b"</w:body></w:document>")


def laughs() -> bytes:
    """Return a docx file with nested XML entities (a "billion laughs" attack)."""
    entities = '<!ENTITY a0 "haha">' + "".join(
        f'<!ENTITY a{number} "{f"&a{number - 1};" * 10}">' for number in range(1, 10)
    )
    head = f'<?xml version="1.0"?><!DOCTYPE w:document [{entities}]>'
    return package(
        f"{head}<w:document {SPACE}><w:body><w:p><w:r><w:t>&a9;</w:t></w:r></w:p></w:body></w:document>".encode()
    )


def nested() -> bytes:
    """Return a docx file with 100,000 nested elements."""
    return package(f"<w:document {SPACE}>".encode() + b"<w:body>" * 100_000 + b"</w:body>" * 100_000 + b"</w:document>")


def many_parts() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as parts:
        for number in range(10_001):
            parts.writestr(f"{number}", b"")
    return made.getvalue()


def outside() -> bytes:
    """Return a docx file with an XML entity that refers to a file of this machine."""
    head = '<?xml version="1.0"?><!DOCTYPE w:document [<!ENTITY secret SYSTEM "file:///etc/hostname">]>'
    return package(
        f"{head}<w:document {SPACE}><w:body><w:p><w:r><w:t>[&secret;]</w:t></w:r></w:p></w:body></w:document>".encode()
    )
