"""Infers what pandas makes of each column of a text file: its type, its distinct values and its missing values. The
functions take the cells as texts and have no side effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime

MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
DATE = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?"
    rf"|\d{{4}}/\d\d/\d\d|\d\d?[ -]{MONTH}[ -]\d{{4}}|{MONTH} \d\d?,? \d{{4}}"
)
"""Matches a date that pandas recognises without being told its form."""
DAY_FIRST = re.compile(r"(\d?\d)(?:\.(\d?\d)\.|/(\d?\d)/)\d{4}(?: \d?\d:\d\d(?::\d\d)?(?: [AaPp][Mm])?)?")
"""Matches a date that begins with the day. For dates with slashes it is certain that the day comes first only if at
least one of the days is above 12."""
DECIMAL_COMMA = re.compile(r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)(?:,\d+)?")
WITH_COMMA = re.compile(r"[^\w,.]{0,3}[\d.]+,\d+[^\d,.]{0,4}")
"""Matches a number with a decimal comma, also with a sign or a unit: ``13,7 %``."""
GROUPED = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+|[+-]?\d{1,3}")
"""Matches a whole number whose thousands may be separated by points."""
THOUSANDS = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
TYPED_ROWS = 200
"""Number of rows from which the type of a column is inferred. Rows after these are not examined."""
MAX_VALUES = 8
"""Maximum number of distinct values of a column that are listed; a column with more values is not listed. The
description of a data frame has the same limit."""
MAX_LISTED = 10
"""Maximum number of columns whose values are listed."""
VALUE = 40
"""Maximum characters of a listed value; a longer value is shortened."""
TYPES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("int64", lambda text: bool(re.fullmatch(r"[+-]?\d{1,18}", text))),
    ("float64", lambda text: bool(re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|inf", text))),
    ("bool", lambda text: text in ("True", "False", "true", "false", "TRUE", "FALSE")),
    ("date", lambda text: bool(DATE.fullmatch(text))),
)
MISSING = frozenset(
    {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"}
    | {"NULL", "NaN", "None", "n/a", "nan", "null"}
)
"""The texts that ``pandas.read_csv`` reads as a missing value."""


def number_options(cells: Sequence[Sequence[str]], kinds: list[str], separator: str) -> list[str]:
    """Return the arguments with which pandas reads numbers that have a decimal comma or separated thousands. Changes
    ``kinds`` in place: the kinds of these columns become float64 or int64."""
    options: list[str] = []
    written = DECIMAL_COMMA if separator != "," else THOUSANDS
    has_commas = any(any(column) and all(map(WITH_COMMA.fullmatch, filter(None, column))) for column in cells)
    for at, column in enumerate(cells):
        present = [text for cell in column if (text := cell.strip()) not in MISSING]
        # Where other numbers have a decimal comma, 47.569 is a whole number.
        groups = separator != "," and has_commas and kinds[at] == "float64" and all(map(GROUPED.fullmatch, present))
        if not (kinds[at] == "str" or groups) or not present or not all(map(written.fullmatch, present)):
            continue
        fraction, group = (",", ".") if written is DECIMAL_COMMA else (".", ",")
        options += [f"decimal={fraction!r}"] if fraction == "," else []
        options += [f"thousands={group!r}"] if any(group in text for text in present) else []
        whole = len(present) == len(column) and not any(fraction in text for text in present)
        kinds[at] = "int64" if whole else "float64"
    return list(dict.fromkeys(options))


def column_type(cells: Sequence[str]) -> str:
    present = [text for cell in cells if (text := cell.strip()) not in MISSING]
    if not present:
        return "str"
    kind = next((name for name, fits in TYPES if all(map(fits, present))), "str")
    days = [match for text in present if (match := DAY_FIRST.fullmatch(text))]
    if kind == "str" and len(days) == len(present):
        return _date_type(days)
    (_, is_integer), (_, is_decimal) = TYPES[:2]
    if kind == "str" and all(is_integer(text) or is_decimal(text) for text in present):
        return "float64"
    return "float64" if kind == "int64" and len(present) < len(cells) else kind


def is_pandas_time(text: str) -> bool:
    """Return whether pandas can convert the ISO text to ``datetime64[ns]``: the day and the hour exist, and the year is
    in its range. Files often have 9999-12-31 for "never", with which the conversion would fail."""
    try:
        return 1678 <= datetime.fromisoformat(text.replace(",", ".")).year <= 2261
    except ValueError:
        return False


def has_several_forms(dates: Sequence[str]) -> bool:
    """Return whether dates are written in several forms. pandas reads the form from the first date, and leaves a column
    with other forms as text unless it is told ``date_format="mixed"``."""
    present = (text for cell in dates if (text := cell.strip()) not in MISSING)
    return len({re.sub(r"\d+", "0", re.sub(r"[A-Za-z]+", "a", text)) for text in present}) > 1


def _date_type(dates: Sequence[re.Match[str]]) -> str:
    """Return ``date`` (the month comes first), ``day first``, or ``str`` if no number above 12 shows the order."""
    is_month_first = all(match[3] and int(match[1]) <= 12 for match in dates)
    if is_month_first and any(int(match[3]) > 12 for match in dates):
        return "date"
    return "day first" if any(match[2] or int(match[1]) > 12 for match in dates) else "str"


def describe_values(columns: Sequence[str], cells: Sequence[Sequence[str]], kinds: Sequence[str]) -> list[str]:
    """Return one line with the distinct values of each column of text that has few of them, and one line with the
    numbers of missing values, in the words in which a data frame is described. ``cells`` has all cells of each
    column."""
    lines: list[str] = []
    for label, column, kind in zip(columns, cells, kinds, strict=True):
        values = _few_values(column) if kind == "str" else []
        if values and len(lines) < MAX_LISTED:
            lines.append(f"{label} values: {', '.join(values)}")
    counts = {label: sum(cell in MISSING for cell in column) for label, column in zip(columns, cells, strict=True)}
    missing = [f"{label} {count}" for label, count in counts.items() if count]
    return [*lines, f"missing values: {', '.join(missing)}"] if missing else lines


def _few_values(column: Sequence[str]) -> list[str]:
    """Return the distinct values of a column in the order of their first rows; an empty list if there are more than
    MAX_VALUES, or if they occur less than twice on average, as names do."""
    values: dict[str, None] = {}
    for cell in column:
        if cell not in MISSING and cell not in values:
            if len(values) == MAX_VALUES:
                return []
            values[cell] = None
    if 2 * len(values) > sum(cell not in MISSING for cell in column):
        return []
    return [value if len(value) <= VALUE else f"{value[:VALUE]}..." for value in values]
