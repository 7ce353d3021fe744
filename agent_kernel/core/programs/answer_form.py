"""Reads the form ``@name[placeholder]`` in which a question demands its values, and finds the values in an output. The
functions have no side effects. InfiAgent-DABench (arXiv 2401.05507) asks for its answers in this form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest

SLOT = re.compile(r"@(\w+)\[([^\[\]\n]*)")
"""Matches a value with a name, ``@mean[12.5]``, without its closing bracket, in a question that demands this form of
the answer or in an output in this form."""
SLOT_VALUE = r"[^\[\]@\n]{1,80}"
MAX_SLOTS = 40
NO_VALUES = frozenset({"nan", "inf", "-inf", "nat", "none", "<na>"})
"""Texts that a program prints for a value that does not exist, in lower case."""
COUNTS = ("no", "one", "two", "three", "four", "five", "six")
DECIMALS = re.compile(
    rf"\b({'|'.join(COUNTS)}|\d)[ -](?:decimals?|Nachkommastellen?|décimales?|decimales)\b", re.IGNORECASE
)
"""Finds the number of decimals that a question asks for."""
PRECISION = re.compile(rf"(?P<whole>\b(?:integers?|whole numbers?)\b)|{DECIMALS.pattern}", re.IGNORECASE)
"""Finds the precision that a question asks for where it describes a value."""
KIND = re.compile(
    r"\b(?:(?P<number>float|integer|number|numeric|decimal|percentage)|string|text)\b"
    r"|\b(?P<options>one of|either|(?:can|must|should) be)\b",
    re.IGNORECASE,
)
"""Finds the kind of a value in its description: a number, or text."""
MAX_KIND = 60
"""Number of characters of a description in which its kind is searched."""
OPTION = re.compile(r"[\"“]([^\"”\n]{1,60})[\"”]")
"""Matches a quoted text in the description of a value. If the value must be one of several texts, the description
quotes each of them."""
MAX_OPTIONS = 6
EXAMPLES = re.compile(r"\b(?:such as|like|for example)\b|\be\.g\.", re.IGNORECASE)
"""Finds words that say that the quoted texts are only examples of the value."""
YES_OR_NO = re.compile(r"yes[\W_]?(?:or)?[\W_]?no", re.IGNORECASE)
"""Matches a placeholder that stands for "yes" or "no"."""
NAME = re.compile(r"(?:^|[\W_])name$", re.IGNORECASE)
"""Matches a placeholder that stands for a name."""
MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[T ]00:00:00")
"""Matches a date as pandas prints it for a column of dates without a time of day."""
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
FRACTION = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def slots_of(question: str) -> dict[str, str]:
    """Return the values that the question demands in the form ``@name[placeholder]``, as a mapping from each name to
    its placeholder, in the order of the question."""
    slots: dict[str, str] = {}
    for name, placeholder in SLOT.findall(question)[:MAX_SLOTS]:
        slots.setdefault(name, placeholder.strip())
    return slots


def slots_regex(names: Iterable[str]) -> str:
    """Return a regular expression for an answer with exactly these values."""
    return " ".join(rf"@{re.escape(name)}\[{SLOT_VALUE}\]" for name in names)


def values_in_form(output: str, question: str, last_line: str = "") -> str:
    """Return the demanded values of an output in the form ``@name[value]``, one per line, each rounded as the question
    describes its placeholder. Return an empty string if a demanded value is missing.

    If the output has none of the names, but its ``last_line`` has one number, or one value after ``@``, for each name,
    these are taken in order: ``@247[@0.87]``, ``@a @5.09``."""
    names = slots_of(question)
    values = {name: value.strip() for name, value in re.findall(rf"@(\w+)\[({SLOT_VALUE})\]", output)}
    if not set(names) & set(values):
        listed = [value for value in re.split(r"[\s,;@()\[\]]+", last_line) if value]
        marked = [value.strip(" ,;[]") for value in last_line.split("@")[1:]]
        is_marked = last_line.startswith("@")
        if len(listed) == len(names) and (is_marked or all(map(NUMBER.fullmatch, listed))):
            values = dict(zip(names, listed, strict=True))
        elif is_marked and len(marked) == len(names) and all(re.fullmatch(SLOT_VALUE, one) for one in marked):
            values = dict(zip(names, marked, strict=True))
    if not names or not set(names) <= set(values):
        return ""
    return "\n".join(f"@{name}[{_as_described(values[name], word, question)}]" for name, word in names.items())


def unusable_value(output: str, question: str) -> str:
    """Return the problem with the first unusable value that ``output`` states in the demanded form: the value has
    several lines, is nan, or is a number although the question describes a text, or the reverse. The text is part of a
    note for the model. Return an empty string if all values are usable."""
    slots = slots_of(question)
    marks = list(re.finditer(r"@(\w+)\[", output))
    for match, after in zip_longest(marks, marks[1:]):
        if match[1] in slots:
            value = output[match.end() : after.start() if after else len(output)].rpartition("]")[0].strip()
            if "\n" in value:
                return f"printed several values for {match[1]}, but the question asks for one"
            placeholder = slots[match[1]]
            value, description = _as_described(value, placeholder, question), _description(placeholder, question)
            if value.lower() in NO_VALUES and value not in OPTION.findall(description):
                return f"printed {value} for {match[1]}"
            if kind := _other_kind(value, placeholder, description):
                return f"printed {value} for {match[1]}, but the question asks for {kind}"
    return ""


def _other_kind(value: str, placeholder: str, description: str) -> str:
    """Return the kind of value that the question asks for ("a number", "text", or a list of options) if ``value`` is of
    another kind. Return an empty string if the kinds agree, or if the question names no kind."""
    kinds = [match.lastgroup or "text" for match in KIND.finditer(description[:MAX_KIND])]
    is_name = bool(NAME.search(placeholder))
    if not kinds and not is_name:
        return ""
    # Text may consist of digits, as an identifier or a year does, but a name does not.
    no_text = "text" if (NUMBER if is_name else FRACTION).fullmatch(value) else ""
    if not kinds:
        return no_text
    if next((kind for kind in kinds if kind != "options"), "text") == "number":
        return "" if re.search(r"\d", value) else "a number"
    options = OPTION.findall(description.split("\n", maxsplit=1)[0])[:MAX_OPTIONS] if "options" in kinds else []
    if len(options) < 2 or EXAMPLES.search(description[:MAX_KIND]):
        return no_text
    is_option = value.casefold() in [option.casefold() for option in options]
    return "" if is_option or any(map(NUMBER.fullmatch, options)) else f"one of: {', '.join(options)}"


def _as_described(value: str, placeholder: str, question: str) -> str:
    """Return the value as the question describes it: a number with as many decimals and a month with as many digits as
    it asks for, a date without midnight, and "yes" or "no" for a truth value. Return any other value unchanged."""
    description = _description(placeholder, question)
    if "YYYY-MM" in description and re.fullmatch(r"\d{4}-\d", value):
        return value.replace("-", "-0")
    if "HH" not in description and (date := MIDNIGHT.fullmatch(value)):
        return date[1]
    if value in ("True", "False"):
        return _yes_or_no(value == "True", placeholder, description) or value
    match = PRECISION.search(description) if FRACTION.fullmatch(value) else None
    if match is None:
        return value
    word = "0" if match["whole"] else match[2].lower()
    decimals = int(word) if word.isdecimal() else COUNTS.index(word)
    return f"{float(value):.{decimals}f}" if len(value.partition(".")[2]) > decimals else value


def _yes_or_no(is_true: bool, placeholder: str, description: str) -> str:
    """Return "yes" or "no" as the question writes it; an empty string if the question does not ask for one of them."""
    options = ["yes", "no"] if YES_OR_NO.fullmatch(placeholder) else OPTION.findall(description[:MAX_KIND])
    word = "yes" if is_true else "no"
    if not {"yes", "no"} <= {option.lower() for option in options}:
        return ""
    return next(option for option in options if option.lower() == word)


def _description(placeholder: str, question: str) -> str:
    """Return the part of the question that describes the placeholder: the text after its last occurrence in quotes.
    Without quotes, an occurrence counts that follows the last demanded value and precedes a verb (``mean_age is ...``).
    Return an empty string if the question does not describe the placeholder."""
    if not placeholder:
        return ""
    word = re.escape(placeholder)
    parts = re.split(rf"[\"'“]{word}[\"'”]", question)
    if len(parts) > 1:
        return parts[-1]
    *_, behind = SLOT.split(question)
    plain = re.search(rf"(?<!\w){word}(?=\s+(?:is|has|must|should|can)\b)", behind)
    return behind[plain.end() :] if plain else ""
