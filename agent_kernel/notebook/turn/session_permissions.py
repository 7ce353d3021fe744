"""Remembers the user's decisions about kinds of calls in a session. A restart of the kernel deletes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

LIVE = "python.live"
KINDS = {
    "live": ("python.live",),
    "draft": ("python.draft",),
    "sandbox": ("python.sandbox",),
    "shell": ("shell",),
    "files": ("files.read", "files.write"),
    "notebook": ("notebook.read", "notebook.edit", "notebook.run"),
    "functions": ("function", "function.effects"),
    "mcp": ("mcp",),
    "dispatch": ("dispatch",),
    "web": ("web",),
    "skills": ("skills",),
    "recall": ("sessions.read",),
    "paths": ("path",),
}
"""Maps the short names that ``%agent allow`` and ``deny`` accept to kinds of calls."""


class Consent:
    """The kinds of calls, or single tools of a kind, that the user allowed or refused for a session. The server still
    requests an approval for every call; the kernel answers the request with these decisions."""

    def __init__(self) -> None:
        self._allowed: dict[str, set[tuple[str, str]]] = {}
        self._refused: dict[str, set[tuple[str, str]]] = {}

    def allow(self, session: str, kind: str = LIVE, tool: str = "") -> None:
        """Allow all calls of a kind in this session; with ``tool``, only the calls of this tool. Earlier refusals of
        these calls are revoked."""
        _move(kind, tool, self._allowed.setdefault(session, set()), self._refused.get(session, set()))

    def refuse(self, session: str, kind: str, tool: str = "") -> None:
        """Refuse all calls of a kind in this session without asking again; with ``tool``, only the calls of this tool.
        Earlier permissions for these calls are revoked."""
        _move(kind, tool, self._refused.setdefault(session, set()), self._allowed.get(session, set()))

    def withdraw(self, session: str) -> None:
        self._allowed.pop(session, None)

    def allows(self, session: str, kind: str = LIVE, tool: str = "") -> bool:
        decisions = self._allowed.get(session, ())
        return (
            (kind, "") in decisions or (kind, tool) in decisions or (kind == "path" and _covers(tool, tuple(decisions)))
        )

    def refuses(self, session: str, kind: str, tool: str = "") -> bool:
        decisions = self._refused.get(session, ())
        return (kind, "") in decisions or (kind, tool) in decisions

    def kinds(self, session: str) -> set[str]:
        return {kind for kind, _ in self._allowed.get(session, ())}

    def list_refused(self, session: str) -> set[str]:
        """Return the kinds of calls that the user refused, except those of which only single tools are refused."""
        return {kind for kind, tool in self._refused.get(session, ()) if not tool}

    def rows(self, session: str) -> list[tuple[str, str, str]]:
        """Return (kind, tool, decision) rows for display."""
        decided = [(*decision, "allowed") for decision in self._allowed.get(session, ())]
        return sorted(decided + [(*decision, "refused") for decision in self._refused.get(session, ())])

    def __bool__(self) -> bool:
        return any(self._allowed.values()) or any(self._refused.values())


def _move(kind: str, tool: str, into: set[tuple[str, str]], out_of: set[tuple[str, str]]) -> None:
    """Record a decision in ``into``, and remove the opposite decisions about the same calls from ``out_of``."""
    into.add((kind, tool))
    out_of -= {decision for decision in out_of if decision[0] == kind and (not tool or decision[1] in ("", tool))}


def _covers(tool: str, decisions: Iterable[tuple[str, str]]) -> bool:
    """Return True if a decision in ``decisions`` covers ``tool``. ``tool`` has the form ``access:path``; a decision
    covers it if it is about the same access to a folder that contains the path."""
    access, _, path = tool.partition(":")
    places = [scope.partition(":") for kind, scope in decisions if kind == "path" and scope]
    return any(access == mode and PurePath(path).is_relative_to(folder) for mode, _, folder in places)
