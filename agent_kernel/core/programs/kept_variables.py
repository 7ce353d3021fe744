"""Keeps the tables of the user: a program that narrows a table of the notebook to some of its rows puts these rows into
a new variable. The functions have no side effects.

For a question such as "the median speed of the trips longer than 5 km", a small model often writes ``trips =
trips[trips['km'] > 5]``. In the notebook, the table would then lack the other rows, and the next question about it
would get a wrong answer."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Collection, Iterator

from agent_kernel.core.programs.program_edits import Edit, ParsedProgram, is_condition
from agent_kernel.core.programs.question_mistakes import result_names
from agent_kernel.core.programs.table_facts import MAX_QUESTION

CHANGES = re.compile(
    r"\b(?:drop|remov|delet|filter|exclud|discard|restrict|trim|clean|overwrit|replac|updat|chang|modif|dedup|fix|limit"
    r"|lösch|entfern|bereinig|änder|ersetz|supprim|élimin|elimin|borr|limpi)\w*"
    r"|\b(?:keep|leave|throw|get|cut) (?:only|out|away|rid|off)\b|\bonly keep\b|\bin ?place\b",
    re.IGNORECASE,
)
"""Finds words with which a question asks to change a table."""
SELECTING = frozenset({"query", "head", "tail", "nlargest", "nsmallest", "sample", "dropna", "drop_duplicates"})
"""Methods that return some of the rows of a table."""
AGGREGATING = frozenset({"groupby", "pivot_table", "pivot", "value_counts", "agg", "resample", "describe", "merge"})
"""Methods that return another table."""
FIELD = re.compile(r"\{[^{}]*\}")
"""Matches a field of an f-string."""


def with_kept_variables(code: str, question: str, variables: Collection[str]) -> str:
    """Return the code with a new variable in place of each of ``variables`` that a top-level statement narrows to some
    of its rows or aggregates, and the new variable in all later statements. ``variables`` are the variables that exist
    in the notebook before the program runs. The code is returned unchanged if the question names the variable as the
    result or asks for a change, or if the program later sets a column of the variable."""
    if CHANGES.search(question[:MAX_QUESTION]):
        return code
    for name in (name for name in variables if name not in result_names(question)):
        program = ParsedProgram(code)
        statement = next((one for one in program.statements if _narrows(one, name)), None)
        if isinstance(statement, ast.Assign) and not _is_changed_later(program, statement, name):
            new = _free_name(f"{name}_selected", program)
            target, after = program.span(statement.targets[0]), program.span(statement)[1]
            edits = [(*target, new), *_rename_edits(program, name, new, after)]
            code = program.apply_edits(edits) or code
    return code


def _narrows(statement: ast.stmt, name: str) -> bool:
    """Return whether the statement assigns rows of the table ``name``, or values computed from it, to ``name``."""
    if not isinstance(statement, ast.Assign) or [ast.unparse(one) for one in statement.targets] != [name]:
        return False
    value, narrows = statement.value, False
    while isinstance(value, ast.Call | ast.Attribute | ast.Subscript):
        if isinstance(value, ast.Attribute):
            narrows |= value.attr in SELECTING | AGGREGATING
        elif isinstance(value, ast.Subscript):
            narrows |= is_condition(value.slice)
        value = value.func if isinstance(value, ast.Call) else value.value
    return narrows and isinstance(value, ast.Name) and value.id == name


def _is_changed_later(program: ParsedProgram, statement: ast.Assign, name: str) -> bool:
    """Return whether the program sets a column of the variable after the statement. It may then mean to change the
    table."""
    for node in program.nodes:
        if not isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load):
            continue
        root: ast.expr = node
        while isinstance(root, ast.Subscript | ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id == name and root.lineno > statement.lineno:
            return True
    return False


def _rename_edits(program: ParsedProgram, name: str, new: str, after: int) -> Iterator[Edit]:
    """Yield edits that rename the variable after the position ``after``, also in the fields of f-strings, which the
    tokens of Python before 3.12 have as one text."""
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(program.code).readline):
        is_attribute, previous = previous == ".", token.string
        if token.type not in (tokenize.NAME, tokenize.STRING):
            continue
        at = program.line_starts[token.start[0] - 1] + token.start[1]
        if at < after:
            continue
        if token.string == name and not is_attribute:
            yield (at, at + len(name), new)
        elif token.type == tokenize.STRING and re.match(r"\w*f", token.string, re.IGNORECASE):
            text = FIELD.sub(lambda field: re.sub(rf"(?<![\w.'\"]){name}(?![\w'\"])", new, field[0]), token.string)
            yield (at, at + len(token.string), text)


def _free_name(name: str, program: ParsedProgram) -> str:
    used = {node.id for node in program.nodes if isinstance(node, ast.Name)}
    while name in used:
        name += "_2"
    return name
