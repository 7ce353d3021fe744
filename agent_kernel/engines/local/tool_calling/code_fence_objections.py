"""Decides whether a small model must try again although its program succeeded: the program printed many rows for a
question for one value, or it used text of a column as if it were numbers. The functions have no side effects.

The facts about a table, in the hidden context of a question, contain the expressions that convert such columns (see
``variable_summary``)."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    r"\w+\['(?P<label>[^'\n]+)'\] (?P<problem>holds text|has equal values)\b.*?\. Convert it first: (?P<line>(?P<name>\w+) = .+)"
)
"""Matches the fact that a column must be converted before it is computed with or compared."""
CONVERTS = re.compile(r"\bto_(?:numeric|datetime)\b|\.(?:str|map|apply|replace|transform)\b|\bint\(")
USES_NUMBERS = re.compile(
    r"\.(?:sum|mean|median|std|var|min|max|idxm\w+|quantile|describe|corr|cumsum|plot|hist|nlargest|nsmallest|agg"
    r"|sort_values)\b|[<>*/+]|\b(?:sum|min|max|sorted|mean|median)\("
)
"""Finds computations, and comparisons of order, for which text gives an error or a wrong result."""
COMPARES = re.compile(r"==|!=|\.(?:isin|value_counts|groupby|unique|nunique|drop_duplicates|mode)\b")


def surplus_rows(output: str, question: str) -> int:
    """Return the number of rows of ``output`` if the question asks for one value and the rows are too many for that;
    otherwise 0. A question for one value per group ("mean salary per department") is answered by several rows."""
    if EACH.search(question) or not ONE_VALUE.search(question):
        return 0
    lengths = [int(first or second) for first, second in LENGTH.findall(output)]
    rows = lengths[-1] if lengths else len(rows_of(output))
    return rows if rows >= MANY_ROWS else 0


def find_missing_conversion(code: str, hidden: Sequence[str]) -> re.Match[str] | None:
    """Return the CONVERSION of the first column that ``code`` computes with, or compares, without converting it; None
    if there is none. ``hidden`` has the texts of the hidden context."""
    for fact in (match for text in hidden for match in CONVERSION.finditer(text)):
        label, name = re.escape(fact["label"]), fact["name"]
        if re.search(rf"\b{name}\b", code) and not re.search(rf"\b{name}\b['\"\]]* =(?!=)", code):
            return fact  # the code uses the converted column without making it
        lines = [line for line in code.splitlines() if re.search(rf"(['\"]){label}\1|\.{label}\b", line)]
        uses = USES_NUMBERS if fact["problem"] == "holds text" else COMPARES
        if any(uses.search(line) for line in lines) and not any(CONVERTS.search(line) for line in lines):
            return fact
    return None
