"""Chooses the format in which a conversation is exported by the suffix of the file."""

from __future__ import annotations

from pathlib import Path

from agent_kernel.core.errors import InvalidRequest

DEFAULT = "agent-kernel"
SUFFIXES = {".json": DEFAULT, ".jsonl": "jsonl", ".md": "markdown", ".ipynb": "notebook"}


def format_of_file(path: Path | None) -> str:
    """Return the format of a file by its suffix, and ``DEFAULT`` for no file or no suffix. Raises InvalidRequest for
    another suffix."""
    suffix = path.suffix.lower() if path is not None else ""
    if suffix and suffix not in SUFFIXES:
        raise InvalidRequest(f"No format has the suffix {suffix}.", hint=f"Use {', '.join(SUFFIXES)}, or --format.")
    return SUFFIXES.get(suffix, DEFAULT)
