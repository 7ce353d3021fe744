"""Finds numbers in text as people and programs write them, in any language: their positions and the values they can
mean.

One spelling can mean several values (``1,234`` is 1234 or 1.234; ``7%`` is 7 or 0.07), so a number has several
readings. Text that only looks like a number (a date, a time, a version, an identifier, a list item number) is ignored.
The run time is linear in the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_DIGITS = 60
"""Maximum number of digits of a number. Longer ones are ignored, because people do not read them."""
MINUS = "-\N{MINUS SIGN}"
SIGN = "[+\\-\N{MINUS SIGN}]"
SPACES = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
ARABIC_POINT, ARABIC_COMMA = "\N{ARABIC DECIMAL SEPARATOR}", "\N{ARABIC THOUSANDS SEPARATOR}"
GROUPING = f"{APOSTROPHES}_{SPACES}{ARABIC_COMMA}"
"""Characters that only occur between groups of digits."""
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")

NUMBER = re.compile(
    rf"(?P<sign>{SIGN}?)"
    rf"(?P<digits>\d+(?:[.,{GROUPING}{ARABIC_POINT}]\d+)*|\.\d+)"
    rf"(?P<power>[eE]{SIGN}?\d{{1,3}}(?![\w.])"
    rf"|[ ]?(?:[×x·⋅*]|\\times|\\cdot)[ ]?10(?:\^\{{?{SIGN}?\d{{1,3}}\}}?|\*\*{SIGN}?\d{{1,3}}|[⁻⁺]?[⁰¹²³⁴-⁹]{{1,3}}))?"
)
WHOLE = re.compile(rf"[.,{ARABIC_POINT}]")
GROUPED = re.compile(r"\d{1,3}(\D)\d{3}(?:\1\d{3})*|\d{1,2}(?:,\d{2})+,\d{3}")
"""Matches digits in groups: 1,234,567 and the Indian form 12,34,567."""
AFTER = ("_", "^", "#", "\\", "§")
"""Characters before an index, an exponent, or a reference number."""
ABOUT = "~≈∼≃"
NO_NUMBERS = (
    re.compile(r"\b[a-zA-Z][a-zA-Z+.-]{1,20}://[^\s<>)\]]+"),
    re.compile(r"(?<!\d\.)\b\d++(?:\.\d++){2,}+(?![.,]\d)"),
    re.compile(
        r"\b\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?\b"
    ),
    re.compile(r"\b\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\b"),
    re.compile(r"\b\d{4}年(?:\d{1,2}月)?(?:\d{1,2}日)?"),
    re.compile(r"\b\d{1,2}(?:st|nd|rd|th|er|[.º])?\s(?:de\s)?[^\W\d_]{3,12}\.?,?\s(?:de\s)?(?:19|20)\d{2}\b"),
    re.compile(r"\b[^\W\d_]{3,12}\.?\s\d{1,2}(?:st|nd|rd|th)?,?\s(?:19|20)\d{2}\b"),
)
"""Match links, versions, dates and times, which are not numbers. A number with dots between groups of three digits does
not match."""
DOTTED_GROUPS = re.compile(r"\d{1,3}(?:\.\d{3})+")
SPACE = "[ \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}]?"
SUFFIX = re.compile(rf"{SPACE}(?P<sign>[%％‰])|\s?(?P<word>[^\W\d_]{{1,12}})")
PER_CENT = re.compile(r"\s?(?:per|pour|por|par)\s?(?:cent|ciento|cento)\b", re.IGNORECASE)
PREFIXED = re.compile(r"(?P<prefix>Ki|Mi|Gi|Ti|[kKMGTmµμun])(?P<base>B|bit|bps|bytes?|Wh?|Hz|V|A|J|N|Pa|eV|[gstlLm])")
PREFIXES = {
    "k": (1e3, 2.0**10),
    "K": (1e3, 2.0**10),
    "M": (1e6, 2.0**20),
    "G": (1e9, 2.0**30),
    "T": (1e12, 2.0**40),
    "Ki": (2.0**10,),
    "Mi": (2.0**20,),
    "Gi": (2.0**30,),
    "Ti": (2.0**40,),
    "m": (1e-3,),
    "µ": (1e-6,),
    "μ": (1e-6,),
    "u": (1e-6,),
    "n": (1e-9,),
}
"""Factors of unit prefixes; for bytes ``k`` may also be 1024."""
ALPHABETS_WITH_SPACES = 0x2E80
"""First code point of the scripts (Chinese, Japanese, Korean) in which a unit follows a number without a space."""


@dataclass(frozen=True, slots=True)
class NumberReading:
    """One value of a number, without sign; ``half`` is half of its last written digit, the tolerance for rounding."""

    value: float
    half: float


@dataclass(frozen=True, slots=True)
class ParsedNumber:
    """A number in a text. ``sign`` is -1, 1, or 0 if none is written. ``plain`` means digits only, without a unit."""

    start: int
    end: int
    text: str
    sign: int
    readings: tuple[NumberReading, ...]
    plain: bool


def parse_numbers(text: str, *, lists: bool = False) -> Iterator[ParsedNumber]:
    """Yield the numbers of a text in order.

    With ``lists`` the text is program output, in which ``1,234`` may also be the two numbers 1 and 234; then all three
    numbers are yielded.
    """
    text = blank_non_numbers(text)
    for match in NUMBER.finditer(text):
        numbers = _parse_match(text, match, program=lists)
        if numbers is not None:
            yield numbers
        if "," in match["digits"] and (lists or numbers is None) and not _continues(text, match):
            yield from _parse_list(match)


def _parse_list(match: re.Match[str]) -> Iterator[ParsedNumber]:
    """Yield the parts of a list such as ``1,2.5,3``."""
    start = match.start("digits")
    for part in match["digits"].split(","):
        if part.isdecimal() or part.replace(".", "", 1).isdecimal():
            whole, _, rest = part.partition(".")
            yield ParsedNumber(start, start + len(part), part, 0, (_decimal(whole, rest),), True)
        start += len(part) + 1


def blank_non_numbers(text: str) -> str:
    """Return the text with spaces in place of parts that look like numbers but are none, such as dates and versions;
    its length stays the same."""
    for pattern in NO_NUMBERS:
        text = pattern.sub(_spaces, text)
    return text


def _spaces(match: re.Match[str]) -> str:
    return match[0] if DOTTED_GROUPS.fullmatch(match[0]) else " " * len(match[0])


def _parse_match(text: str, match: re.Match[str], *, program: bool) -> ParsedNumber | None:
    start, end = match.span()
    if end - start > MAX_DIGITS or _continues(text, match):
        return None
    sign = 0
    if match["sign"]:
        if start and (text[start - 1].isalnum() or text[start - 1] in ")]}%"):
            start += 1  # the sign belongs to a range, a difference or a name
        else:
            sign = -1 if match["sign"] in MINUS else 1
    values = _values(match["digits"], program=program)
    power = match["power"] or ""
    if power:
        values = [_apply_exponent(value, power) for value in values]
    tail = "" if power else text[end : end + 16]
    behind = suffix(tail, integer=match["digits"].isdecimal())
    if not values or behind is None:
        return None
    unit, scales = behind
    if start and text[max(0, start - 2) : start].rstrip()[-1:] in (*ABOUT,):
        values = [_widen_tolerance(value, match["digits"]) for value in values]
    readings = [NumberReading(value.value * scale, value.half * scale) for value in values for scale in (1.0, *scales)]
    if not all(math.isfinite(reading.half + reading.value) for reading in readings):
        return None
    end += len(unit)
    return ParsedNumber(start, end, text[start:end], sign, tuple(readings), not (unit or power or sign))


def _continues(text: str, match: re.Match[str]) -> bool:
    """Return whether the digits are part of an identifier, an index or an exponent."""
    first = match.start() + len(match["sign"])
    before = text[first - 1 : first]
    if match["sign"]:
        outer = text[match.start() - 1 : match.start()] if match.start() else ""
        if _is_letter(outer) or outer in ("_", "^"):
            return True
    elif _is_letter(before) or before in AFTER or text[max(0, first - 2) : first] in ("_{", "^{"):
        return True
    return text[match.end() : match.end() + 1] == "_" or (
        len(match["digits"]) > 1 and match["digits"][0] == "0" and match["digits"].isdecimal()
    )


def _is_letter(char: str) -> bool:
    return bool(char) and char.isalpha() and ord(char) < ALPHABETS_WITH_SPACES


def _values(digits: str, *, program: bool) -> list[NumberReading]:
    """Return the possible values of digits with separators; empty if they are a list without spaces, such as ``1,2,3``.

    With ``program`` (program output), 1.234 is never read as a thousand.
    """
    for char in GROUPING:
        if char in digits:
            if GROUPED.fullmatch(WHOLE.split(digits, maxsplit=1)[0]) is None:
                return []
            digits = digits.replace(char, "")
    digits = digits.replace(ARABIC_POINT, ".")
    points, commas = digits.count("."), digits.count(",")
    if not points and not commas:
        return [_decimal(digits, "")]
    if points and commas:
        return _parse_both_marks(digits)
    mark = "." if points else ","
    whole, _, part = digits.partition(mark)
    readings = [_decimal(whole, part)] if points + commas == 1 else []
    if GROUPED.fullmatch(digits) and not whole.startswith("0") and not (program and points == 1):
        readings.append(_decimal(digits.replace(mark, ""), ""))
    return readings


def _parse_both_marks(digits: str) -> list[NumberReading]:
    """Parse a number that contains both a comma and a dot: the separator that comes last is the decimal one, and the
    other separates groups of digits."""
    decimal = max(".,", key=digits.rfind)
    other = "," if decimal == "." else "."
    whole, _, part = digits.rpartition(decimal)
    if decimal in whole or GROUPED.fullmatch(whole) is None:
        return []
    return [_decimal(whole.replace(other, ""), part)]


def _decimal(whole: str, part: str) -> NumberReading:
    return NumberReading(float(f"{whole or 0}.{part or 0}"), 0.5 * 10.0 ** -len(part) if part else 0.5)


def _apply_exponent(value: NumberReading, power: str) -> NumberReading:
    behind = power[1:] if power[0] in "eE" else power.partition("10")[2]
    exponent = behind.strip("^*{}").translate(SUPERSCRIPTS).replace("\N{MINUS SIGN}", "-")
    scale = float(f"1e{exponent}")
    return NumberReading(value.value * scale, value.half * scale)


def _widen_tolerance(value: NumberReading, digits: str) -> NumberReading:
    """Return the value with a wider tolerance, for a number that is marked as approximate: ``~12,000`` is rounded to
    its last non-zero digit."""
    bare = re.sub(r"\D", "", digits)
    zeros = len(bare) - len(bare.rstrip("0"))
    return NumberReading(value.value, value.half * 10.0**zeros) if value.half == 0.5 and zeros < len(bare) else value


# Parses the text that follows a number: percent, thousand, million, a unit with a prefix, or an ordinal suffix.


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


ORDINALS = _word_set("st nd rd th er ère re e ème eme nde de ste º ª ° o a й я е го ый ая ое")
PERCENT = _word_set("percent prozent procent процент процента процентов pct")
SCALES = (
    (_word_set("k K tsd thousand thousands tausend mille mil tys тыс 千"), (1e3,)),
    (_word_set("万 萬 만"), (1e4,)),
    (_word_set("lakh lakhs"), (1e5,)),
    (_word_set("m M mn mln mio million millions millionen millón millones milione milioni"), (1e6,)),
    (_word_set("milhão milhões miljoen miljoner млн"), (1e6,)),
    (_word_set("crore crores"), (1e7,)),
    (_word_set("亿 億 억"), (1e8,)),
    (_word_set("bn B G mrd milliarde milliarden milliard milliards miljard miliardi млрд"), (1e9,)),
    (_word_set("billion billions billionen"), (1e9, 1e12)),
    (_word_set("T tn trillion trillions bio"), (1e12,)),
)
BY_WORD = {word: scales for words, scales in SCALES for word in words}


def suffix(tail: str, *, integer: bool) -> tuple[str, tuple[float, ...]] | None:
    """Parse the text after a number. Return (the part of ``tail`` that belongs to the number, the factors that this
    part may stand for); None if the number is an ordinal such as 3rd."""
    if words := PER_CENT.match(tail):
        return words[0], (0.01,)
    match = SUFFIX.match(tail)
    if match is None:
        return "", ()
    if match["sign"]:
        return match[0], (0.001,) if match["sign"] == "‰" else (0.01,)
    word = match["word"]
    if integer and word in ORDINALS and tail.startswith(word):
        return None
    if ord(word[0]) >= ALPHABETS_WITH_SPACES:
        word = word[0]
    scales = (0.01,) if word.lower() in PERCENT else _scales(word)
    return (tail[: match.start("word") + len(word)], scales) if scales else ("", ())


def _scales(word: str) -> tuple[float, ...]:
    found = BY_WORD.get(word) or (BY_WORD.get(word.lower()) if len(word) > 1 else None)
    if found is not None:
        return found
    unit = PREFIXED.fullmatch(word)
    if unit is None:
        return ()
    scales = PREFIXES[unit["prefix"]]
    return scales if unit["base"] in ("B", "byte", "bytes") else scales[:1]
