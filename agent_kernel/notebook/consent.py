"""What the person has allowed in this life of the kernel; a restart forgets it."""

from __future__ import annotations

from collections.abc import Iterable

LIVE = "python.live"


class Consent:
    """Kinds of calls allowed for a session. The server asks each time all the same, and is told yes each time."""

    def __init__(self) -> None:
        self._allowed: dict[str, set[str]] = {}

    def allow(self, session: str, kind: str = LIVE) -> None:
        self._allowed.setdefault(session, set()).add(kind)

    def withdraw(self, session: str) -> None:
        self._allowed.pop(session, None)

    def allows(self, session: str, kind: str = LIVE) -> bool:
        return kind in self._allowed.get(session, ())

    def kinds(self, session: str) -> set[str]:
        return set(self._allowed.get(session, ()))

    def __bool__(self) -> bool:
        return any(self._allowed.values())


def answers(person_is_there: bool, kinds: Iterable[str]) -> list[str]:
    """What a turn says it can have answered: everything, or what was allowed beforehand."""
    return ["*"] if person_is_there else sorted(kinds)
