"""How warnings of libraries appear while code of the agent runs: one short line each, and an error where the code has
had no effect. Standard library only: a user's kernel, its drafts and the sandbox worker all use it.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from typing import Any

MAX_CHARS = 300
NO_EFFECT = r"A value is being set on a copy of a DataFrame or Series through chained assignment"
"""How the text of pandas' ChainedAssignmentError begins, which is a warning: the assignment changes nothing. Earlier
versions of pandas, in which it does change the table, warn in other words."""


def install() -> Any:
    """Shorten the warnings of this process and raise those about assignments without an effect. Return the filter."""
    if warnings.formatwarning.__module__ == "warnings":  # not where a library or the user has a format of their own
        warnings.formatwarning = format_warning
    warnings.filterwarnings("error", message=NO_EFFECT)
    return warnings.filters[0]


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """As ``install``, for the time of one run. Filters that the code sets stay."""
    before = warnings.formatwarning
    own = install()
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the code has reset the filters
            warnings.filters.remove(own)  # type: ignore[attr-defined]  # typeshed declares a Sequence; it is a list
        if warnings.formatwarning is format_warning:
            warnings.formatwarning = before


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """``line 3: UserWarning: text``, without the path; the line only where it is one of the code that runs."""
    place = "" if os.path.exists(filename) else f"line {lineno}: "
    return f"{place}{category.__name__}: {short_text(str(message))}\n"


def short_text(message: str) -> str:
    """The first line of a warning and its last paragraph, which is usually the advice, without links."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", message.strip())]
    kept = [part for part in paragraphs if "://" not in part] or paragraphs[:1]
    text = kept[0] if len(kept) == 1 else f"{message.strip().splitlines()[0].strip()} {kept[-1]}"
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ..."
