"""Recognises a table with one column for each month, year, quarter, week or weekday.

A small model computes with such columns as if each were a different quantity. The code-fence protocol for small models
adds the same values with one row for each period."""

from __future__ import annotations

import re
from collections.abc import Sequence

MIN_PERIODS = 3
"""Minimum number of columns with periods, without which a table is not wide."""
MAX_PERIODS = 60
"""Maximum number of columns with periods. The line of code names each of them."""
MONTHS = (
    r"jan(?:uary|uar|vier)?|feb(?:ruary|ruar)?|f[ée]v(?:rier)?|mar(?:ch|s)?|märz?|mrz|apr(?:il)?|avr(?:il)?|may|mai|june?|juni?"
    r"|juin|july?|juli|juil(?:let)?|aug(?:ust)?|ao[uû]t|sept?(?:ember|embre)?|o[ck]t(?:ober|obre)?|nov(?:ember|embre)?"
    r"|d[eé][cz](?:ember|embre)?"
)
YEAR = r"(?:19|20)\d\d"
PERIODS = {
    "month": re.compile(rf"(?:{MONTHS})\.?(?:[ _-]?(?:{YEAR}|\d\d))?|{YEAR}[-_/](?:0[1-9]|1[0-2])", re.IGNORECASE),
    "year": re.compile(YEAR),
    "quarter": re.compile(rf"(?:{YEAR}[ _-]?)?Q[1-4](?:[ _-]?{YEAR})?", re.IGNORECASE),
    "week": re.compile(r"(?:W|KW|week)[ _-]?\d{1,2}", re.IGNORECASE),
    "weekday": re.compile(r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?", re.IGNORECASE),
}
"""Patterns for the labels of the columns by their kind of period."""
TOTAL = re.compile(r"(?:grand )?total|sum|year|ytd|average|avg|mean|gesamt|summe", re.IGNORECASE)
"""Matches the label of a column that is computed from those of the periods."""


def describe_wide_table(table: str, labels: Sequence[str], numbers: Sequence[str]) -> str:
    """Return the line that says which columns of ``table`` are periods; an empty string if it has not at least
    MIN_PERIODS of one kind and another column. ``numbers`` are the labels of the columns with numbers."""
    for period, pattern in PERIODS.items():
        columns = [label for label in numbers if pattern.fullmatch(label.strip())]
        others = [label for label in labels if label not in columns and not TOTAL.fullmatch(label.strip())]
        has_other_numbers = any(label in numbers for label in others[1:])
        if MIN_PERIODS <= len(columns) <= MAX_PERIODS and others and not has_other_numbers:
            return f"{table} has one column for each {period}: {columns!r}. Its other columns are {others!r}."
    return ""
