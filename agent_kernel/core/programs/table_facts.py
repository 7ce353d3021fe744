"""Reads the columns and values of a table from the facts about it, which are the description that the model is shown.
The functions have no side effects."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from agent_kernel.core.programs.syntax_tree import parse

MAX_QUESTION = 4_000
"""Maximum number of characters of a question that are searched."""
COLUMNS = re.compile(r"\d+ rows x \d+ columns: ([^\n]+)")
"""Matches the columns and their types in the description of a table or a file."""
VALUES = re.compile(r"^[ \t]*(?P<label>\S.*?) values: (?P<values>\S.*)$", re.MULTILINE)
"""Matches the distinct values of a column in the description of a table or a file."""
WIDE_TABLE = re.compile(
    r"^(?P<table>\w+) has one column for each (?P<period>\w+): (?P<labels>\[.*\])\."
    r" Its other columns are (?P<others>\[.*\])\.$",
    re.MULTILINE,
)
"""Matches the fact that the columns of a table are periods."""
FORM_OF_TABLE = re.compile(r"\b(?:long|melt\w*|reshape\w*|unpivot\w*|tidy|wide|pivot\w*|transpos\w*)\b", re.IGNORECASE)
"""Finds words with which a question asks for a form of the table itself."""
MIN_VALUE = 4
"""A value with fewer characters is often an ordinary word of a question."""


def column_labels(facts: Sequence[str]) -> list[str]:
    """Return the labels of the columns that ``facts``, the descriptions of tables and files, list."""
    listed = [column for text in facts for match in COLUMNS.finditer(text) for column in match[1].split(", ")]
    labels = (column.rpartition(" ")[0].strip() for column in listed)
    return list(filter(None, labels))


def column_values(facts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each column whose distinct values the facts list, with these values as a text without line ends and
    carriage returns. The text becomes a comment in a program, and Python ends a comment at either of them."""
    for match in (match for text in facts for match in VALUES.finditer(text)):
        yield match["label"], " ".join(match["values"].split())


def select_named_values(question: str, table: str, facts: Sequence[str]) -> str:
    """Return a statement for each value of a column that the question names in another form, which selects its rows:
    ``app_errors = app[app['level'] == 'ERROR']``. ``table`` is the variable with the table."""
    labels, lines = column_labels(facts), {}
    for label, value in ((label, value) for label, text in column_values(facts) for value in text.split(", ")):
        word = word_for(question[:MAX_QUESTION], value) if label in labels and len(value) >= MIN_VALUE else ""
        name = f"{table}_{word.lower()}"
        # A value that ends with dots is the beginning of a longer one.
        if word not in ("", value) and name.isidentifier() and not value.endswith("..."):
            lines[name] = f"{name} = {table}[{table}[{label!r}] == {value!r}]\n"
    return "".join(lines.values())


def long_table(question: str, table: str, facts: Sequence[str]) -> str:
    """Return the lines that make a table with one row for each period of ``table``, whose columns are the periods
    according to the texts ``facts``. Return an empty string if they are not, or if the question names one of these
    columns or asks for a form of the table."""
    question = question[:MAX_QUESTION]
    if FORM_OF_TABLE.search(question):
        return ""
    found = [match for text in facts for match in WIDE_TABLE.finditer(text)]
    for match in (match for match in found if match["table"] == table or len(found) == 1):
        labels, others = _texts_in(match["labels"]), _texts_in(match["others"])
        if not labels or not others:
            return ""
        # The word "may" is rarely the month.
        if any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", question, 0 if one == "May" else re.I) for one in labels):
            return ""
        period, name = match["period"], f"{table}_long"
        value = next(one for one in ("value", "amount", "measured") if one not in others)
        line = f"{name} = {table}.melt({others!r}, {labels!r}, var_name={period!r}, value_name={value!r})"
        if period == "year":
            return f"{line}.astype({{'year': int}})\n"
        # The names of months would be sorted by the alphabet.
        column = f"{name}[{period!r}]"
        return f"{line}\n{column} = pd.Categorical({column}, {column}.unique(), ordered=True)\n"
    return ""


def _texts_in(code: str) -> list[str]:
    """Return the texts of a list that is written as Python code; an empty list for any other code. The code may be a
    quotation of data."""
    tree = parse(code)
    statement = tree.body[0] if tree is not None and len(tree.body) == 1 else None
    elements = statement.value.elts if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.List) else []
    texts = [one.value for one in elements if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return texts if len(texts) == len(elements) else []


def word_for(text: str, value: str) -> str:
    """Return the word of the text that is the value, also in another form: "errors" for ERROR, "viewed" for view.
    Return an empty string if there is none."""
    ending = "(?:e?s|e?d|ings?)?" if value.isalpha() else ""
    match = re.search(rf"(?<![\w'./-]){re.escape(value)}{ending}(?![\w'/-]|\.\w)", text, re.IGNORECASE)
    return match[0] if match else ""
