"""In text that a person reads before a decision, replaces invisible characters, and characters that reverse the
direction of the text, by their code points, such as U+202E.

Everything that asks a person for a decision uses ``mark_invisible``: the notebook cell, the terminal, the panel, MCP
and the API.
"""

from __future__ import annotations

import re

_EMOJI = "\u00a9\u00ae\u203c\u2049\u2100-\u27ff\u2900-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_ACCENTS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
INVISIBLE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\xa0\xad"  # controls except tab and newline; no-break space, soft hyphen
    "\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # joiners and fillers of scripts
    "\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\ufeff"  # spaces, zero width, directions, invisible signs
    "\ud800-\udfff\ue000-\uf8ff\ufff0-\ufffc"  # halves of characters, private use, annotations
    "\U00013430-\U0001345f\U00016fe4\U0001bca0-\U0001bca3"  # controls of hieroglyphs and of shorthand, a filler
    "\U0001d159\U0001d173-\U0001d17a"  # musical symbols: an empty note head, beams and slurs
    "\U000e0000-\U0010ffff"  # tags, variation selectors, private use
    "\ufe00-\ufe0d"
    "]"
    # U+FE0F selects the emoji form of the symbol before it and is then visible; after any other character it is
    # invisible.
    f"|(?<![{_EMOJI}])[\ufe0e\ufe0f]"
    # Many accents on one letter cover the lines above and below; no script needs more than two.
    f"|(?<=[{_ACCENTS}][{_ACCENTS}])[{_ACCENTS}]"
)


def mark_invisible(text: str) -> str:
    """Return the text with each invisible character replaced by its code point, as ``[U+202E]``, and with newlines in
    place of all kinds of line ends."""
    return INVISIBLE.sub(lambda found: f"[{_code_point(found[0])}]", text.replace("\r\n", "\n"))


def find_invisible(text: str) -> tuple[str, ...]:
    """Return the code points of the invisible characters, each once, in the order of their first use."""
    return tuple(dict.fromkeys(_code_point(character) for character in INVISIBLE.findall(text.replace("\r\n", "\n"))))


def _code_point(char: str) -> str:
    return f"U+{ord(char):04X}"
