"""Postpones the import of a grammar library that Jupyter Server does not need, which saves a second at its start."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

NAME = "rfc3987_syntax"


def defer_iri_grammar() -> None:
    """Postpone the import of ``rfc3987_syntax`` until something is checked with it.

    Jupyter Server imports jsonschema, which imports this package for the formats ``iri`` and ``iri-reference``. Its
    import builds some thirty parsers and takes as long as everything else of the server together, and no schema of
    Jupyter uses these formats. Does nothing if the package is imported already.
    """
    deferred = ModuleType(NAME)
    deferred.is_valid_syntax = _is_valid_syntax  # type: ignore[attr-defined]
    sys.modules.setdefault(NAME, deferred)


def _is_valid_syntax(term: str, value: str) -> bool:
    package = sys.modules.get(NAME)
    if getattr(package, "is_valid_syntax", None) is _is_valid_syntax:
        del sys.modules[NAME]
    return bool(importlib.import_module(NAME).is_valid_syntax(term, value))
