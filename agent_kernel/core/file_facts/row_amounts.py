"""Recognizes a table whose rows have a quantity and a price but no amount, and writes the line of code that computes
the amounts.

A small model that is asked for the revenue otherwise sums the prices. The code-fence protocol for small models puts the
line into code that lacks it. Standard library only, without imports from this package: the server sends the source of
this file into kernels that do not have it.
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


def _words_of_label(label: str) -> str:
    """Return the words of a label in lower case: ``UnitPrice`` and ``unit_price`` are ``unit price``."""
    return " ".join(re.findall(r"[^\W\d_]+", CAMEL.sub(" ", label).lower()))
