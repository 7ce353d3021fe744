"""Finds programs that compute with several tables without merging them, or with neighbouring rows of a table that is
not sorted. The functions have no side effects.

The description of the files of a question, in its hidden context, contains the lines that merge their tables (see
``core.file_facts.table_keys``) and that sort a table by its dates."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from agent_kernel.core.programs.program_edits import ParsedProgram
from agent_kernel.core.programs.syntax_tree import names_in, parse_or_empty
from agent_kernel.engines.local.tool_calling.code_fence_mistakes import MissingLine

FACT = re.compile(
    r"^(?P<tables>[A-Za-z_]\w*(?: and [A-Za-z_]\w*)+) have common values\. Merge them first: "
    r"(?P<line>(?P<merged>\w+_merged) = \S.*)$",
    re.MULTILINE,
)
"""Matches the line that states how code merges tables."""
COMBINES = re.compile(r"\bmerge\b|\bjoin\(|\.map\(|\bconcat\(|\bset_index\(|\bzip\(|\breindex\(|\bin set\(|\bisin\(")
"""Matches code that combines or compares tables in another way."""
ORDER = re.compile(
    r"^(?P<table>[A-Za-z_]\w*) is not in the order of (?P<label>'[^'\\\n]+')\. "
    r"Only if rows are compared with the rows before them: "
    r"(?P<line>(?P=table) = (?P=table)\.sort_values\((?P=label), ignore_index=True\))$",
    re.MULTILINE,
)
"""Matches the line that states how code sorts a table by its dates."""
NEIGHBOURS = re.compile(r"\.(?:diff|shift|rolling|pct_change|expanding)\(")
"""Matches code that computes with neighbouring rows."""
ORDERS = re.compile(
    r"sort_values|sort_index|resample|asfreq|pivot|\.(?:sum|mean|count|size)\(\)\.(?:diff|shift|rolling|pct_change)"
)
"""Matches code that sorts rows, or whose groups are sorted."""
METHODS = frozenset({"merge", "assign", "drop", "drop_duplicates", "dropna", "str", "strip", "lower"})
NODES = (
    *(ast.Module, ast.Assign, ast.Name, ast.Load, ast.Store, ast.Call, ast.Attribute, ast.Constant, ast.Tuple),
    *(ast.keyword, ast.Lambda, ast.arguments, ast.arg, ast.Subscript),
)


def find_missing_merge(code: str, reading: str, hidden: Sequence[str]) -> MissingLine | None:
    """Return the line that merges the tables that the first lines of ``code``, ``reading``, read, if the program
    combines columns of two of them as if their rows were in the same order, or if it uses only some of them and
    combines none; otherwise None. ``hidden`` has the texts of the hidden context."""
    for fact in (match for text in hidden for match in FACT.finditer(text)):
        tables = fact["tables"].split(" and ")
        program = ParsedProgram(code)
        is_read = all(re.search(rf"^{table} = ", reading, re.MULTILINE) for table in tables)
        if not is_read or not _only_merges(fact["line"], tables):
            continue
        if fact["merged"] in names_in(code):
            is_set = re.search(rf"^{fact['merged']} = ", code, re.MULTILINE)
            return None if is_set else MissingLine(f"{fact['line']}\n", is_named=True)
        merges = re.search(r"\bmerge\b|\bjoin\(", code)
        misaligns = not merges and any(_combined_columns(program, tables))
        if misaligns or (not COMBINES.search(code) and _unused_tables(program, tables)):
            return MissingLine(f"{fact['line']}\n", is_named=False)
    return None


def find_missing_order(code: str, reading: str, hidden: Sequence[str]) -> MissingLine | None:
    """Return the line that sorts a table by its dates, if the first lines of ``code``, ``reading``, read it and the
    program computes with neighbouring rows without an order; otherwise None. ``hidden`` has the texts of the hidden
    context."""
    if not NEIGHBOURS.search(code) or ORDERS.search(code):
        return None
    facts = (match for text in hidden for match in ORDER.finditer(text))
    read = (fact for fact in facts if re.search(rf"^{fact['table']} = pd\.read_", reading, re.MULTILINE))
    return next((MissingLine(f"{fact['line']}\n", is_named=True) for fact in read), None)


def _combined_columns(program: ParsedProgram, tables: Sequence[str]) -> Iterator[ast.BinOp]:
    """Yield the operations on columns of two different tables: ``a['x'] * b['y']``."""
    for node in program.expressions:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.Add | ast.Sub):
            left, right = _table_of(node.left, tables), _table_of(node.right, tables)
            if left and right and left != right:
                yield node


def _table_of(node: ast.expr, tables: Sequence[str]) -> str:
    """Return the table from which the expression selects a column; an empty string for anything else, such as a single
    value of the table."""
    is_column = isinstance(node, ast.Subscript)
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if is_column and isinstance(node, ast.Name) and node.id in tables else ""


def _unused_tables(program: ParsedProgram, tables: Sequence[str]) -> list[str]:
    """Return the tables that the program reads from their files and does not use."""
    used = {node.id for node in program.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return [table for table in tables if table not in used]


def _only_merges(line: str, tables: Sequence[str]) -> bool:
    """Return whether the line does nothing but merge the tables. The hidden context also quotes data, which must not
    add code to a program."""
    nodes = list(ast.walk(parse_or_empty(line)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    methods = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return (
        all(isinstance(node, NODES) for node in nodes)
        and names <= {*tables, f"{tables[0]}_merged", "t"}
        and methods <= METHODS
    )
