"""Builds EBNF expressions over decimal digits for ranges of numbers. The functions have no side effects.

Numbers are written without exponent and leading zeros. The expressions accept no number outside the range.
"""

from __future__ import annotations

from decimal import Decimal

from agent_kernel.engines.local.grammar.ebnf import either, literal, sequence

MAX_DIGITS = 15
"""Maximum number of digits of an integer without a bound. A double represents all such integers exactly."""
MAX_DECIMALS = 15
LIMIT = 10**MAX_DIGITS - 1


def integer(low: int | None, high: int | None) -> str | None:
    """Return an expression for the integers from ``low`` to ``high``, both inclusive, or None if there are none."""
    if low is None and high is None:
        return f'("-"? {natural()})'
    least = low if low is not None else -max(LIMIT, abs(high or 0) + LIMIT)
    most = high if high is not None else max(LIMIT, abs(least) + LIMIT)
    if least > most:
        return None
    parts = []
    if least < 0:
        parts.append(sequence(literal("-"), _naturals(max(1, -most), -least)))
    if most >= 0:
        parts.append(_naturals(max(0, least), most))
    return either(*parts)


def natural() -> str:
    return f'("0" | [1-9] [0-9]{{0,{MAX_DIGITS - 1}}})'


def number(low: Decimal | None, high: Decimal | None, *, above: bool = False, below: bool = False) -> str | None:
    """Return an expression for the numbers from ``low`` to ``high``, or None if there are none. ``above`` excludes
    ``low`` itself, ``below`` excludes ``high`` itself. If the bounds have n decimals, numbers that differ from an
    excluded bound by less than 10**-(n + 1) are excluded too."""
    if low is None and high is None:
        return f'("-"? {natural()} ("." [0-9]{{1,{MAX_DECIMALS}}})?)'
    places = max(0, *(-int(bound.normalize().as_tuple().exponent) for bound in (low, high) if bound is not None))
    # Work in units of the last decimal. One more decimal makes room for the first number beyond an excluded bound.
    places += above or below
    scale = 10**places
    least = int(low * scale) + above if low is not None else None
    most = int(high * scale) - below if high is not None else None
    if least is not None and most is not None and least > most:
        return None
    parts = []
    if least is None or least < 0:
        # The digits of a negative number get smaller as the number gets larger, so the bounds change places.
        fewest, greatest = max(0, -(most or 0)), None if least is None else -least
        parts.append(sequence(literal("-"), _decimals(fewest, greatest, places)))
    if most is None or most >= 0:
        parts.append(_decimals(max(0, least or 0), most, places))
    return either(*parts)


def _naturals(low: int, high: int) -> str:
    """Return an expression for the integers from ``low`` to ``high`` without leading zeros, for 0 <= low <= high."""
    return either(*_split_by_width(low, high))


def _split_by_width(low: int, high: int) -> list[str]:
    """Return one expression for each number of digits of the integers from ``low`` to ``high``."""
    parts = []
    for width in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (width - 1) if width > 1 else 0)
        last = min(high, 10**width - 1)
        parts.append(_same_width(str(first), str(last)))
    return parts


def _same_width(low: str, high: str) -> str:
    """Return an expression for the digit strings from ``low`` to ``high``, which have the same length."""
    if not low:
        return '""'
    if low == high:
        return literal(low)
    width = len(low) - 1
    # If the remaining digits may be any, one character class for the first digit is enough.
    if low[1:] == "0" * width and high[1:] == "9" * width:
        return sequence(f"[{low[0]}-{high[0]}]", _any_digits(width))
    # If the first digits are equal, only the remaining digits are compared.
    if low[0] == high[0]:
        return sequence(literal(low[0]), _same_width(low[1:], high[1:]))
    # The first digits differ: the remaining digits are limited for the lowest and the highest first digit, and free for
    # those in between.
    parts = [sequence(literal(low[0]), _same_width(low[1:], "9" * width))]
    if int(high[0]) - int(low[0]) > 1:
        parts.append(sequence(f"[{int(low[0]) + 1}-{int(high[0]) - 1}]", _any_digits(width)))
    parts.append(sequence(literal(high[0]), _same_width("0" * width, high[1:])))
    return either(*parts)


def _any_digits(width: int) -> str:
    return f"[0-9]{{{width}}}" if width else '""'


def _decimals(low: int, high: int | None, places: int) -> str:
    """Return an expression for the decimal numbers from ``low`` to ``high``, or without an upper limit. Both limits are
    >= 0 and are counted in units of the last of ``places`` decimals."""
    scale = 10**places
    parts = []
    first, first_part = divmod(low, scale)
    last, last_part = divmod(high, scale) if high is not None else (max(LIMIT, first + LIMIT) + 1, 0)
    if first == last:
        return _cell(first, first_part, last_part, places)
    if high is not None:
        parts.append(_cell(last, 0, last_part, places))
    if first_part:
        parts.append(_cell(first, first_part, scale, places))
        first += 1
    if first < last:
        # The fraction is repeated in each alternative. For (A | B) followed by an optional fraction, the xgrammar
        # inside openvino-genai 2026.4 accepts any number of digits if A is a prefix of B (15 of 100 numbers).
        fraction = f'("." [0-9]{{1,{MAX_DECIMALS}}})?'
        parts += [sequence(whole, fraction) for whole in _split_by_width(first, last - 1)]
    return either(*parts)


def _cell(whole: int, low: int, high: int, places: int) -> str:
    """Return an expression for the numbers whose integer part is ``whole`` and whose fraction is from ``low`` to
    ``high``, in units of the last of ``places`` decimals. More digits may follow if the number stays below the upper
    limit, and digits may be omitted at the end if they are zero."""
    parts = [sequence(literal(str(whole)), '(".0")?')] if low == 0 else []
    for fewer in range(1, places + 1):
        unit = 10 ** (places - fewer)
        first, last = -(-low // unit), min(high // unit, 10**fewer - 1)
        if first <= last:
            parts.append(sequence(literal(f"{whole}."), _same_width_padded(first, last, fewer)))
    if places and low < high:
        between = _same_width_padded(low, min(high, 10**places) - 1, places)
        parts.append(sequence(literal(f"{whole}."), between, f"[0-9]{{1,{max(1, MAX_DECIMALS - places)}}}"))
    return either(*parts)


def _same_width_padded(low: int, high: int, width: int) -> str:
    return _same_width(str(low).zfill(width), str(high).zfill(width))
