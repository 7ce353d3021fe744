"""Describes a parquet file by its columns, and states how pandas reads it or a workbook.

A kernel reads the files that a prompt names itself; for the files that go with a message, the server has a separate
process for it (``tools.files.document_worker``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent_kernel.core.file_facts.quoted_text import one_line
from agent_kernel.core.file_facts.text_file import (
    FileFacts,
    computed_columns_of,
    extension_of,
    reads_by,
)

BY_PANDAS = {"parquet": "read_parquet", "xlsx": "read_excel", "xlsm": "read_excel", "xls": "read_excel"}
ARROW_NUMBER = re.compile(r"u?int|float|double|decimal")
"""Matches the beginning of the names of Arrow's types of numbers."""


def reads_by_pandas(name: str, *options: str) -> str:
    """Return the text that states how pandas reads the file ``name``, whose extension is one of ``BY_PANDAS``."""
    return reads_by(f"pd.{BY_PANDAS[extension_of(name)]}({', '.join([repr(name), *options])})")


def parquet_facts(name: str, described: str, columns: Iterable[tuple[str, str]]) -> FileFacts:
    """Return the facts about a parquet file. ``described`` states its numbers of rows and columns and lists the
    columns; ``columns`` has their names and types."""
    numbers = [label for label, kind in columns if ARROW_NUMBER.match(kind)]
    dates = [label for label, kind in columns if kind.startswith(("timestamp", "date"))]
    computed = computed_columns_of(name, numbers, dates)
    return FileFacts("table", one_line(f"{reads_by_pandas(name)}, {described}"), conversions=computed)
