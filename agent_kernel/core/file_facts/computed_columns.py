"""Recognizes a table whose rows have a quantity and a price but no amount, or a start and an end but no duration, and
writes the line of code that computes this column.

A small model that is asked for the revenue otherwise sums the prices, and one that is asked how long something takes
computes with the dates. The code-fence protocol for small models puts the line into code that lacks it. Standard
library only, without imports from this package: the server sends the source of this file into kernels that do not have
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# Names of columns in lower case, with one space between their words.
QUANTITY = re.compile(
    r"(?:order(?:ed)? )?(?:quantity|qty|units|pieces|menge|anzahl|stückzahl|quantité|cantidad)(?: (?:sold|ordered))?"
)
PRICE = re.compile(
    r"(?:(?:unit|item|sale|sales|selling|list) )?price(?: per (?:unit|item|piece))?(?: (?:each|eur|usd|gbp|chf))?"
    r"|(?:einzel|stück)?preis|prix(?: unitaire)?|precio(?: unitario)?"
)
AMOUNT = re.compile(
    r"\b(?:revenue|sales|turnover|amount|total|subtotal|value|sum|spent|umsatz|betrag|summe|gesamt\w*|montant|importe)\b"
)
"""Matches the name of a column that may already have the amount. ``sales price`` is a price."""
START = re.compile(
    r"\b(?:start|begin|began|open|create|order|ship|sent|send|admi|depart|request|book|report|pick|check ?in|hire|loan"
    r"|rent|from|received|beginn|anfang|eingang|aufnahme|von|début|inicio)"
)
"""Matches a word of a label in lower case that names the start of something."""
END = re.compile(
    r"\b(?:deliv|return|end|clos|resolv|discharg|arriv|finish|complet|done|drop|check ?out|solved|until|to$|ende"
    r"|ausgang|entlass|bis|fin\b)"
)
"""Matches a word of a label in lower case that names the end of something."""
DURATION = re.compile(r"\b(?:duration|days|hours|minutes|seconds|length|dauer|tage|durée|duración)\b")
"""Matches the label of a column that may already have the duration."""
CAMEL = re.compile(r"(?<=[a-zà-ÿ])(?=[A-Z])")


def describe_amount(table: str, labels: Iterable[object]) -> str:
    """Return a text that says how code computes the amounts of the rows of ``table``. Return an empty string if the
    table has not exactly one column of quantities and one of prices, or if a column may have the amounts. ``labels``
    are the columns with numbers."""
    words = {label: _words_of_label(label) for label in labels if isinstance(label, str)}
    quantities = [label for label, text in words.items() if QUANTITY.fullmatch(text)]
    prices = [label for label, text in words.items() if PRICE.fullmatch(text)]
    amounts = [label for label, text in words.items() if label not in prices and AMOUNT.search(text)]
    if len(quantities) != 1 or len(prices) != 1 or amounts:
        return ""
    line = f"{table}['amount'] = {table}[{quantities[0]!r}] * {table}[{prices[0]!r}]"
    return f"{table} has no column of amounts (revenue, sales, spending). Compute it first: {line}"


def describe_duration(table: str, dates: Iterable[object], numbers: Iterable[object]) -> str:
    """Return a text that says how code computes the durations of the rows of ``table`` in days. Return an empty string
    if the table has not exactly one column with starts and one with ends among ``dates``, the columns with dates, or
    if a column of ``numbers`` may have the durations."""
    words = {label: _words_of_label(label) for label in dates if isinstance(label, str)}
    ends = [label for label, text in words.items() if END.search(text)]
    starts = [label for label, text in words.items() if START.search(text) and label not in ends]
    durations = [label for label in numbers if isinstance(label, str) and DURATION.search(_words_of_label(label))]
    if len(words) != 2 or len(ends) != 1 or len(starts) != 1 or durations:
        return ""
    line = f"{table}['days'] = ({table}[{ends[0]!r}] - {table}[{starts[0]!r}]).dt.total_seconds() / 86400"
    return f"{table} has no column of durations. Compute it first: {line}"


def _words_of_label(label: str) -> str:
    """Return the words of a label in lower case: ``UnitPrice`` and ``unit_price`` are ``unit price``."""
    return " ".join(re.findall(r"[^\W\d_]+", CAMEL.sub(" ", label).lower()))
