"""Parses ids of models on a hub: ``org/name``, optionally with ``@revision`` and ``:file.gguf``. The functions have no
side effects."""

from __future__ import annotations

import re
from dataclasses import dataclass

PART = r"[A-Za-z0-9](?:[\w.-]{0,94}\w)?"
HUB_ID = re.compile(
    rf"(?P<repo>{PART}/{PART})(?:@(?P<revision>\w[\w./-]{{0,199}}))?(?::(?P<file>\w[\w./+-]{{0,199}}\.gguf))?", re.ASCII
)
FORBIDDEN = ("--", "..", "//")
"""The hub does not allow these texts in names. agent-kernel does not accept them in revisions and files either."""


@dataclass(frozen=True, slots=True)
class HubId:
    """The id of a model on a hub. An empty ``revision`` means the newest one; an empty ``file`` means that the most
    suitable file is chosen."""

    repo: str
    revision: str = ""
    file: str = ""

    @classmethod
    def parse(cls, text: str) -> HubId | None:
        """Parse an id; return None if ``text`` is not one. A repository name that ends in ``.gguf`` is not accepted,
        because the text is then the path of a file."""
        match = HUB_ID.fullmatch(text)
        if match is None or any(mark in text for mark in FORBIDDEN) or match["repo"].endswith((".gguf", ".git")):
            return None
        return cls(match["repo"], match["revision"] or "", match["file"] or "")

    def __str__(self) -> str:
        revision, file = f"@{self.revision}" if self.revision else "", f":{self.file}" if self.file else ""
        return f"{self.repo}{revision}{file}"

    @property
    def publisher(self) -> str:
        return self.repo.partition("/")[0]

    @property
    def slug(self) -> str:
        """A folder name that is unique for each id: slashes, ``@`` and ``:`` become two dashes, which no name on the
        hub contains."""
        return re.sub(r"[/@:]", "--", f"hub/{self}")
