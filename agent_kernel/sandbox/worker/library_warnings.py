"""Shortens warnings of libraries to one line, and turns warnings about assignments without effect into errors.

Standard library only: the user's kernel, its drafts and the sandbox worker use it.
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
"""The start of the text of pandas' ChainedAssignmentError, a warning that an assignment changes nothing. Earlier
versions of pandas, in which it does change the table, use another text."""


def install() -> Any:
    """Shorten the warnings of this process to one line, and make warnings about assignments without an effect raise an
    error. Returns the new warnings filter."""
    if warnings.formatwarning.__module__ == "warnings":  # a format of a library or the user stays
        warnings.formatwarning = format_warning
    warnings.filterwarnings("error", message=NO_EFFECT)
    return warnings.filters[0]


@contextlib.contextmanager
def install_for_run() -> Iterator[None]:
    """Context manager that applies ``install`` in its body only. Filters that the code in the body adds stay in force
    afterwards."""
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
    """Format a warning as ``line 3: UserWarning: text``, without a path. The line number is left out for code in files,
    that is, in libraries."""
    place = "" if os.path.exists(filename) else f"line {lineno}: "
    return f"{place}{category.__name__}: {short_text(str(message))}\n"


def short_text(message: str) -> str:
    """Return the first line of a warning and its last paragraph, without links. The last paragraph usually has the
    advice."""
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", message.strip())]
    selected = [part for part in paragraphs if "://" not in part] or paragraphs[:1]
    text = selected[0] if len(selected) == 1 else f"{message.strip().splitlines()[0].strip()} {selected[-1]}"
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ..."
