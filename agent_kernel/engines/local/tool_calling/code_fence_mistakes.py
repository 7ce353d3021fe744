"""Finds two mistakes of a small model that end with no error: a program that prints many rows for a question for one
value, and one that computes with the text of a column as if it were numbers. The functions have no side effects.

The facts about a table, in the hidden context of a question, contain the lines that convert such columns (see
``text_columns``)."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent_kernel.engines.local.tool_calling.code_fence_fallback_answer import EACH, rows_of

ONE_VALUE = re.compile(
    r"\b(?:how (?:many|much)|total|sum|average|mean|median|share|percentage|number of|(?:high|low|larg|small|bigg|long"
    r"|short|old|young|new|late|earli|great|fast|slow|few|hott|cold|wett|b)est|most|least|worst|maximum|minimum"
    r"|wie ?viele?|summe|gesamt\w*|durchschnitt\w*|mittelwert|anteil|höchste\w*|niedrigste\w*|größte\w*|kleinste\w*"
    r"|längste\w*|kürzeste\w*|meiste\w*|wenigste\w*"
    r"|combien|somme|moyenne|médiane|le plus|la plus|cuánt[oa]s?|suma|promedio|media|mediana|el más|la más)\b",
    re.I,
)
"""Finds words in a question that ask for one value, or for the one row with a highest or lowest value."""
MANY_ROWS = 6
"""The smallest number of rows that is too many for a question that asks for one value."""
LENGTH = re.compile(r"^(?:.*\bLength: (\d+).*|\[(\d+) rows x \d+ columns\])$", re.MULTILINE)
"""Finds the number of rows of which pandas shows only the first and the last."""
CONVERSION = re.compile(
    r"^(?P<place>(?P<frame>[A-Za-z_]\w*)\['(?P<label>[^'\\\n]+)'\]) (?P<problem>holds text|has equal values)[\w ]*\. "
    r"Convert it first: (?P<line>(?P<name>\w+) = (?:"
    r"pd\.to_numeric\((?P=place)(?:\.astype\(str\))?"
    r"(?:\.str\.replace\(r'\[\^\\d[.,]-\]', '', regex=True\)(?:\.str\.replace\(',', '\.'\))?)?, errors='coerce'\)"
    r"|pd\.to_datetime\((?P=place), dayfirst=True\)"
    r"|(?P=place)\.str\.strip\(\)\.str\.lower\(\)(?: == 'true')?))$",
    re.MULTILINE,
)
"""Matches the fact that a column must be converted before it is computed with or compared. It matches only the lines
that ``describe_conversion`` makes, because the facts also quote data, and data must not add code to a program."""
CONVERTS = re.compile(r"\bto_(?:numeric|datetime)\b|\.(?:str|map|apply|replace|transform)\b|\bint\(")
USES_NUMBERS = re.compile(
    r"\.(?:sum|mean|median|std|var|min|max|idxm\w+|quantile|describe|corr|cumsum|plot|hist|nlargest|nsmallest|agg"
    r"|sort_values)\b|[<>*/+]|\b(?:sum|min|max|sorted|mean|median)\("
)
"""Finds computations, and comparisons of order, for which text gives an error or a wrong result."""
COMPARES = re.compile(
    r"==|!=|\.(?:isin|value_counts|groupby|unique|nunique|drop_duplicates|mode|contains|startswith|endswith|match)\b"
)
IGNORES_CASE = re.compile(
    r"\.(?:lower|upper|title|capitalize|casefold|map|apply|replace|transform)\b|\bcase ?= ?False|IGNORECASE"
)


def surplus_rows(output: str, question: str) -> int:
    """Return the number of rows of ``output`` if the question asks for one value and the rows are too many for that;
    otherwise 0. A question for one value per group ("mean salary per department") is answered by several rows."""
    if EACH.search(question) or not ONE_VALUE.search(question):
        return 0
    lengths = [int(first or second) for first, second in LENGTH.findall(output)]
    rows = lengths[-1] if lengths else len(rows_of(output))
    return rows if rows >= MANY_ROWS else 0


@dataclass(frozen=True, slots=True)
class MissingConversion:
    """The line, with its line break, that a program lacks. ``is_named`` means that the program uses the variable that
    the line sets, so that the line in front of it completes the program."""

    line: str
    is_named: bool


def find_missing_conversion(code: str, hidden: Sequence[str]) -> MissingConversion | None:
    """Return the conversion of the first column that ``code`` computes with, or compares, without converting it; None
    if there is none. ``hidden`` has the texts of the hidden context."""
    names = _names_in(code)
    for fact in (match for text in hidden for match in CONVERSION.finditer(text)):
        label, name, frame = re.escape(fact["label"]), fact["name"], fact["frame"]
        line = f"{fact['line']}\n"
        described = re.compile(rf"^(?:[\w ]+: )?{frame}: \w*DataFrame\b", re.MULTILINE)
        exists = frame in names or any(map(described.search, hidden))
        if name in names and exists and not re.search(rf"\b{name} *=(?!=)", code):
            return MissingConversion(line, is_named=True)
        # A model may also take the converted column for one of the table: packs['weight_number'].
        uses_column = re.compile(rf"(['\"]){label}(?:_\w+)?\1|\.{label}\b")
        lines = [text for text in code.splitlines() if frame in names and uses_column.search(text)]
        uses, converts = (USES_NUMBERS, CONVERTS) if fact["problem"] == "holds text" else (COMPARES, IGNORES_CASE)
        if any(map(uses.search, lines)) and not any(map(converts.search, lines)) and line not in code:
            return MissingConversion(line, is_named=False)
    return None


def _names_in(code: str) -> set[str]:
    """Return the names of variables that the code uses or sets; none if it is no valid code."""
    try:
        return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
