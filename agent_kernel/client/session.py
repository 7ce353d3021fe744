"""Defines the values that a server returns for sessions: metadata, branches, messages, and search results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.messages import Message


@dataclass(frozen=True, slots=True)
class Session:
    """A session.

    Times are seconds since the epoch. ``turns`` is the number of turns on the current ``branch``, ``revision`` the
    number of changes of the session; ``notebooks`` are the paths of the notebooks that use it.
    """

    id: str
    title: str = ""
    turns: int = 0
    created: float = 0.0
    updated: float = 0.0
    branch: str = ""
    revision: int = 0
    private: bool = False
    tags: tuple[str, ...] = ()
    notebooks: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Session:
        return cls(
            str(wire["id"]),
            str(wire.get("title", "")),
            int(wire.get("turns", 0)),
            float(wire.get("created", 0)),
            float(wire.get("updated", 0)),
            str(wire.get("branch", "")),
            int(wire.get("revision", 0)),
            bool(wire.get("private", False)),
            tuple(wire.get("tags") or ()),
            tuple(str(path) for path in wire.get("notebooks") or ()),
            dict(wire.get("metadata") or {}),
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One message of the user, the model or a tool. ``seq`` is its number in the session; a later message has a higher
    number."""

    seq: int
    turn: str
    time: float
    message: Message

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Line:
        return cls(int(wire["seq"]), str(wire["turn"]), float(wire["time"]), Message.from_json(wire["message"]))


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch of a session. ``facts`` is the complete JSON that the server returned for it."""

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Branch:
        return cls(str(wire["name"]), dict(wire))


@dataclass(frozen=True, slots=True)
class Found:
    """A session that matches a search, with its score. ``snippets`` are the passages that match, best first."""

    session: Session
    score: float
    snippets: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> Found:
        return cls(Session.from_json(wire["session"]), float(wire["score"]), tuple(wire.get("snippets") or ()))
