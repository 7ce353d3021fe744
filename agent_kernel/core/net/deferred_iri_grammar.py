"""Postpones the import of a grammar library. Jupyter Server and model workers import it but do not need it, and start a
second faster without it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

NAME = "rfc3987_syntax"


def defer_iri_grammar() -> None:
    """Postpone the import of ``rfc3987_syntax`` until a value is checked with it.

    Jupyter Server and model workers import jsonschema, which imports this package for the formats ``iri`` and
    ``iri-reference``. These formats are rarely used, but the import builds some thirty parsers and takes as long as the
    rest of the server's start. Does nothing if the package is imported already.
    """
    deferred = ModuleType(NAME)
    deferred.is_valid_syntax = _is_valid_syntax  # type: ignore[attr-defined]
    sys.modules.setdefault(NAME, deferred)


def _is_valid_syntax(term: str, value: str) -> bool:
    package = sys.modules.get(NAME)
    if getattr(package, "is_valid_syntax", None) is _is_valid_syntax:
        del sys.modules[NAME]
    return bool(importlib.import_module(NAME).is_valid_syntax(term, value))
