"""Recognizes text in the columns of a table that must be converted before code computes with it, and writes the line
of code that converts it.

Standard library only, without imports from this package: the server sends the source of this file into kernels that do
not have it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

NUMBER_IN_TEXT = re.compile(
    r"(?P<before>[^\w\s.,+()-]{0,3}|[A-Z]{3})\s*[-+]?"
    r"(?P<number>(?:\d{1,3}(?:[.,' ]\d{3})+|\d+)(?:[.,]\d+)?)\s*(?P<after>[^\d.,()-]{0,8})"
)
"""Matches a text with one number: ``$1,240``, ``3.5 kg``, ``1.250,00``, ``12%``."""
DECIMAL_COMMA = re.compile(r"(?:\d{1,3}(?:[.' ]\d{3})+|\d+),(?:\d{1,2}|\d{4,})")
"""Matches a number whose decimal sign can only be a comma."""
DECIMAL_POINT = re.compile(r"(?:\d{1,3}(?:[,' ]\d{3})+|\d+)\.(?:\d{1,2}|\d{4,})|\d{1,3}(?:,\d{3}){2,}")
"""Matches a number whose decimal sign can only be a point."""
THREE_DIGITS = re.compile(r"\d{1,3}\.\d{3}")
TIME = re.compile(r"\d{1,3}:[0-5]\d:[0-5]\d(?:\.\d+)?")
"""Matches a duration or a time of day with seconds: ``3:41:07``."""
TRUTH_VALUES = frozenset({"y", "n", "yes", "no", "t", "f", "true", "false"})
"""Words that stand beside 0 and 1 in a column of truth values, so that they are not missing numbers."""
UNITS: dict[str, dict[str, float]] = {
    "kg": {"g": 0.001, "mg": 0.000001, "t": 1000},
    "l": {"ml": 0.001, "cl": 0.01, "dl": 0.1, "hl": 100},
    "m": {"mm": 0.001, "cm": 0.01, "km": 1000},
    "min": {"s": 1 / 60, "sec": 1 / 60, "h": 60, "hr": 60, "hrs": 60, "hour": 60, "hours": 60, "mins": 1, "minutes": 1},
    "kwh": {"wh": 0.001, "mwh": 1000},
    "mb": {"kb": 0.001, "gb": 1000, "tb": 1_000_000},
}
"""Units in lower case to which numbers are converted, each with the other units and what one of them is in it."""
DAY_AND_MONTH = re.compile(r"(?P<day>\d{1,2})[./-](?P<month>\d{1,2})[./-]\d{4}(?: \d{1,2}:\d\d(?::\d\d)?)?")


def pandas_names(header: Sequence[str]) -> list[str]:
    """Return the names that pandas gives to the columns of a file: an empty name gets the number of its column, and a
    repeated name gets the number of its repetition."""
    names: list[str] = []
    for at, label in enumerate(header):
        first = name = label or f"Unnamed: {at}"
        repeated = 0
        while name in names:
            repeated += 1
            name = f"{first}.{repeated}"
        names.append(name)
    return names


def describe_conversion(frame: str, label: Any, cells: Sequence[Any]) -> str:
    """Describe text that must be converted before it is compared or computed with: numbers, dates, times, true and
    false, or values that differ in case and spaces only. Return an empty string if there is none. ``cells`` are values
    of the column ``label`` of the data frame ``frame``, without missing ones.

    A model that is shown ``price='$1,240'`` computes with the text, or compares it, and gets an error or a wrong
    result. The code-fence protocol for small models puts the line into code that lacks it."""
    is_plain = all(type(cell) in (str, bool, int, float) for cell in cells)
    texts = [cell for cell in dict.fromkeys(cells) if type(cell) is str] if is_plain else []
    if not texts or type(label) is not str:
        return ""
    name, place = re.sub(r"\W", "_", label), f"{frame}[{label!r}]"
    name = name if name.isidentifier() else f"column_{name}"
    mixed = any(type(cell) is not str for cell in cells)
    days = [match for text in texts if (match := DAY_AND_MONTH.fullmatch(text.strip())) and int(match["month"]) <= 12]
    folded = {text.strip().casefold() for text in texts}
    problem, line = "holds text", ""
    if not mixed and (units := _units_of(texts)):
        number = f"pd.to_numeric({place}.str.replace(r'[^\\d.-]', '', regex=True), errors='coerce')"
        factor = f"{place}.str.extract(r'([A-Za-z]+)')[0].str.lower().map({units})"
        problem, line = "holds several units", f"{name}_{next(iter(units))} = {number} * {factor}"
    elif numbers := _numbers_from(place, texts, mixed=mixed):
        # "10%" becomes 10. The name tells the model and the user that it is not the fraction 0.1.
        line = f"{name}_{'percent' if any('%' in text for text in texts) else 'number'} = {numbers}"
    elif len(days) == len(texts) and any(int(match["day"]) > 12 or "." in match[0] for match in days):
        line = f"{name}_date = pd.to_datetime({place}, dayfirst=True)"
    elif not mixed and _are_times(texts):
        line = f"{name}_time = pd.to_timedelta({place}, errors='coerce')"
    elif not mixed and (len(folded) < len(texts) or folded <= {"true", "false"}):
        problem = _describe_differences(texts, folded) or problem
        lower = f"{place}.str.strip().str.lower()"
        line = f"{name}_true = {lower} == 'true'" if folded <= {"true", "false"} else f"{name}_lower = {lower}"
    return f"{place} {problem}. Convert it first: {line}" if line else ""


def _units_of(texts: Sequence[str]) -> dict[str, float]:
    """Return the units of numbers in several units of the same kind ("2.5 kg", "300 g"), each with what one of them is
    in the first one; nothing if the texts are anything else. A comma may be a decimal sign, so texts with commas are
    not such numbers."""
    matches = [re.fullmatch(r"\s*-?\d+(?:\.\d+)?\s*([A-Za-z]+)\s*", text) for text in texts]
    found = {match[1].lower() for match in matches if match}
    others = (text for text, match in zip(texts, matches, strict=True) if not match)
    if len(found) < 2 or any(re.search(r"\d", text) for text in others):
        return {}
    kinds = ({unit: 1, **parts} for unit, parts in UNITS.items())
    kind = next((kind for kind in kinds if found <= kind.keys()), {})
    return {unit: factor for at, (unit, factor) in enumerate(kind.items()) if at == 0 or unit in found}


def _are_times(texts: Sequence[str]) -> bool:
    """Return whether most of the texts are durations or times of day, and the other texts have no digits ("did not
    start")."""
    others = [text for text in texts if not TIME.fullmatch(text.strip())]
    return 2 * len(others) < len(texts) and not any(re.search(r"\d", text) for text in others)


def _describe_differences(texts: Sequence[str], folded: Collection[str]) -> str:
    """Describe how some of the ``texts`` differ although they mean the same; an empty string if none do. ``folded`` are
    the same texts in lower case and without outer spaces."""
    if len(folded) == len(texts):
        return ""
    if len({text.casefold() for text in texts}) == len(folded):
        return "has equal values in different case"
    if len({text.strip() for text in texts}) == len(folded):
        return "has equal values in different spaces"
    return "has equal values in different case or spaces"


def _numbers_from(place: str, texts: Sequence[str], *, mixed: bool) -> str:
    """Return an expression that converts the column ``place``, whose text cells are ``texts``, to numbers; an empty
    string if the texts are not numbers. ``mixed`` means that other cells of the column already contain numbers. Words
    without digits ("absent") become missing values."""
    matches = [(text, NUMBER_IN_TEXT.fullmatch(text.strip())) for text in texts]
    numbers = [match for _, match in matches if match]
    if any(match is None and re.search(r"\d", text) for text, match in matches):
        return ""
    if mixed and not numbers:
        return f"pd.to_numeric({place}, errors='coerce')"
    if any(match is None and text.strip().casefold() in TRUTH_VALUES for text, match in matches):
        return ""
    units = {(match["before"], match["after"].strip().casefold()) for match in numbers}
    # The texts must have one unit, which some cells may lack. A text of digits with a leading zero is an identifier,
    # not a number.
    identifiers = any(re.match(r"0\d", match["number"]) for match in numbers)
    if len(numbers) * 2 < len(texts) or len(units - {("", "")}) > 1 or identifiers:
        return ""
    text = f"{place}.astype(str)" if mixed else place
    written = [match["number"] for match in numbers]
    has_decimal_comma = any(DECIMAL_COMMA.fullmatch(number) or number.count(".") > 1 for number in written)
    if has_decimal_comma and (mixed or any(DECIMAL_POINT.fullmatch(number) for number in written)):
        return ""
    with_point = [number for number in written if "." in number]
    if with_point and not any("," in number for number in written) and all(map(THREE_DIGITS.fullmatch, with_point)):
        return ""  # 1.150 means 1150 or 1.15
    if has_decimal_comma:
        digits = f"{text}.str.replace(r'[^\\d,-]', '', regex=True).str.replace(',', '.')"
    else:
        digits = f"{text}.str.replace(r'[^\\d.-]', '', regex=True)"
    return f"pd.to_numeric({digits}, errors='coerce')"
