"""Selects the numbers of a Markdown answer that are worth checking."""

from __future__ import annotations

import re

from agent_kernel.turn.number_check.number_parser import ParsedNumber

CODE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{1,200})\1(?!`)")
VALUES = re.compile(r"[\s\d.,()\[\]{}%+*/:eE\N{MINUS SIGN}-]*")
"""Matches inline code that contains only values: ``41.3``, ``(100, 5)``."""
NOT_SAID = (
    re.compile(r"^[ \t>]*(?:[-*+][ \t]+)?\(?\d{1,3}[.)][ \t]", re.MULTILINE),
    re.compile(r"^ {0,3}#{1,6}[ \t]+\(?\d{1,3}(?:\.\d{1,3}){0,3}[.):]?[ \t]", re.MULTILINE),
    re.compile(r"\]\([^()\s]{0,2000}\)"),
    re.compile(r"\[\^?\d{1,3}\](?!\()"),
    re.compile(
        r"\b(?:fig(?:ure|\.)?|table|step|section|chapter|part|phase|cell|line|page|option|item|no\.|nr\.|abb(?:\.|ildung)"
        r"|tabelle|schritt|abschnitt|kapitel|teil|zelle|zeile|seite|punkt|figura|tabla|paso|étape|tableau|ligne|página)"
        r"[ \N{NO-BREAK SPACE}]\d{1,4}(?:\.\d{1,3})?\b(?![%.,]\d|%)",
        re.IGNORECASE,
    ),
    re.compile(r"第\d{1,4}"),
)
"""Match numbers that state no fact: numbers of list items, headings, links and footnotes, and references such as
"figure 3"."""
SPACED = re.compile(r"(?<![\w.,])\d{1,3}(?: \d{3})+(?![\w])")
"""Matches numbers with spaces between groups of digits: 12 345."""
YEARS = range(1800, 2200)
COUNTED = (0.0, 1.0, 2.0)


def blank_non_prose(answer: str) -> str:
    """Replace code and enumeration numbers with spaces; the length stays the same."""
    answer = CODE.sub(_blank, answer)
    answer = INLINE.sub(lambda match: match[0] if VALUES.fullmatch(match[2]) else _blank(match), answer)
    for pattern in NOT_SAID:
        answer = pattern.sub(_blank, answer)
    return SPACED.sub(lambda match: match[0].replace(" ", "\N{NO-BREAK SPACE}"), answer)


def is_small_count(number: ParsedNumber) -> bool:
    """Return whether the number is a plain 0, 1 or 2, which is too common to be checked."""
    return number.plain and number.readings[0].value in COUNTED and number.text.isdecimal()


def may_be_year(number: ParsedNumber) -> bool:
    return number.plain and number.text.isdecimal() and len(number.text) == 4 and int(number.text) in YEARS


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])
