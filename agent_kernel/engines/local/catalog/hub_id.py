"""Ids of models of a hub: ``org/name``, with ``@revision`` and ``:file.gguf`` where one is meant. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

PART = r"[A-Za-z0-9](?:[\w.-]{0,94}\w)?"
HUB_ID = re.compile(
    rf"(?P<repo>{PART}/{PART})(?:@(?P<revision>\w[\w./-]{{0,199}}))?(?::(?P<file>\w[\w./+-]{{0,199}}\.gguf))?", re.ASCII
)
FORBIDDEN = ("--", "..", "//")
"""The hub allows none of them in a name, and a revision or file that has one is no file of the repository."""


@dataclass(frozen=True, slots=True)
class HubId:
    """``revision`` empty: the newest. ``file`` empty: whichever fits best."""

    repo: str
    revision: str = ""
    file: str = ""

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """None for what can not be one; a name that ends in ``.gguf`` is a file's."""
        found = HUB_ID.fullmatch(text)
        if found is None or any(mark in text for mark in FORBIDDEN) or found["repo"].endswith((".gguf", ".git")):
            return None
        return cls(found["repo"], found["revision"] or "", found["file"] or "")

    def __str__(self) -> str:
        revision, file = f"@{self.revision}" if self.revision else "", f":{self.file}" if self.file else ""
        return f"{self.repo}{revision}{file}"

    @property
    def publisher(self) -> str:
        return self.repo.partition("/")[0]

    @property
    def slug(self) -> str:
        """A name for folders, another one for every id: two dashes are in no name of the hub."""
        return re.sub(r"[/@:]", "--", f"hub/{self}")
