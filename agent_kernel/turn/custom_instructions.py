"""Collects the instructions that a person writes for every turn: the setting ``instructions``, AGENTS.md in a trusted
folder, the instructions that the request carries, and those of the conversation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_kernel.core.trusted_folders import TrustStore

FILE = "AGENTS.md"
MAX_CHARS = 4_000
"""Maximum characters that the model reads of each of these texts: about 1,000 tokens, so that there is room for the
turn in the context of a small model."""
OF_SESSION = "agent_kernel.instructions"
"""Key in the metadata of a session that holds the instructions of the conversation. An import drops the metadata of a
session, so that a conversation that came with a notebook brings no instructions."""
CUT = "\n[The rest of these instructions is left out.]"


def read_instructions(setting: str, folder: Path | None, trust: TrustStore, *more: str) -> str:
    """Return the instructions for a turn of a notebook in ``folder``; empty if there are none. The texts in ``more``
    follow the setting and AGENTS.md.

    AGENTS.md is read from the folder, or else from the nearest folder above it that has the file, as long as the
    folders are trusted. A file that cannot be read counts as missing. Blocking: reads the disk.
    """
    file = _find_file(folder, trust)
    texts = (setting.strip(), _read(file) if file else "", *(text.strip() for text in more))
    return "\n\n".join(map(_cut, filter(None, texts)))


def instructions_of_session(metadata: Mapping[str, Any]) -> str:
    """Return the instructions of a conversation; empty if there are none."""
    text = metadata.get(OF_SESSION, "")
    return text if isinstance(text, str) else ""


def _find_file(folder: Path | None, trust: TrustStore) -> Path | None:
    if folder is None or not trust.trusts(folder):
        return None
    # A folder above a trusted folder need not be trusted, so each one is checked.
    candidates = (parent / FILE for parent in (folder, *folder.parents) if trust.trusts(parent))
    return next((file for file in candidates if file.is_file()), None)


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            return text.read(MAX_CHARS + 1).strip()
    except OSError:
        return ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + CUT
