"""Parses the text that follows a number: percent, thousand, million, a unit with a prefix, or an ordinal suffix."""

from __future__ import annotations

import re

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
