"""What a store keeps: sessions, their turns, the items of a turn, and who may write to an open turn."""

from __future__ import annotations

import os
import secrets
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.errors import InvalidRequest
from agent_kernel.events import TurnState
from agent_kernel.messages import Message
from agent_kernel.sessions import process

LEASE_S = 60.0
"""A lease this old (seconds) is lost: the owner missed six heartbeats."""
HEARTBEAT_S = 10.0
MAX_ID = 512


def valid_id(value: str, what: str = "session id") -> str:
    """1..512 characters without control characters, or InvalidRequest; the only place where ids are checked."""
    if not 1 <= len(value) <= MAX_ID or any(unicodedata.category(char) in ("Cc", "Cs") for char in value):
        raise InvalidRequest(f"A {what} has 1 to {MAX_ID} characters and no control characters.")
    return value


@dataclass(frozen=True, slots=True)
class SessionKey:
    namespace: str
    id: str

    def __post_init__(self) -> None:
        valid_id(self.namespace, "namespace")
        valid_id(self.id)


@dataclass(frozen=True, slots=True)
class Session:
    """``head`` is the seq of the newest item (0 = none); ``revision`` grows with every change of any kind."""

    key: SessionKey
    title: str = ""
    created: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    head: int = 0
    revision: int = 0
    turns: int = 0


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that runs a turn; ``instance`` is unique per server start, so two lives are never mistaken.

    The other fields are facts of ``sessions.process``; an empty one was not to be had on that system.
    """

    instance: str
    pid: int
    boot: str = ""
    machine: str = ""
    pid_namespace: str = ""
    started: str = ""

    @classmethod
    def here(cls) -> Owner:
        pid = os.getpid()
        return cls(
            instance=secrets.token_hex(8),
            pid=pid,
            boot=process.boot(),
            machine=process.machine(),
            pid_namespace=process.pid_namespace(),
            started=process.started(pid),
        )

    def provably_dead(self, last_seen: float) -> bool:
        """True only when nobody can be writing as this owner. ``last_seen`` is its last heartbeat (epoch seconds).

        One boot id is one running kernel: there, and only within one pid namespace, a pid can be looked up. Another
        boot id is an earlier life of this machine if the machine ids agree *and* the owner fell silent before this
        boot; the second condition is for images and clones, which share a machine id while both are running.
        """
        here = Owner.here()
        if self.boot and here.boot and self.boot != here.boot:
            booted = process.booted_at()
            return bool(self.machine) and self.machine == here.machine and booted is not None and last_seen < booted
        same_kernel = self.boot == here.boot and bool(self.boot or self.machine)
        same_pids = self.machine == here.machine and self.pid_namespace == here.pid_namespace
        return same_kernel and same_pids and not process.alive(self.pid, self.started)


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message and all that follows. ``cell`` is the notebook cell's id (fallback: source hash + ordinal),
    ``epoch`` names one life of one kernel: variables of another epoch are gone."""

    id: str
    key: SessionKey
    ordinal: int = 0
    state: TurnState = "open"
    reason: str = ""
    cell: str = ""
    epoch: str = ""
    where: str = ""
    model: str = ""
    opened: float = field(default_factory=time.time)
    closed: float | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Item:
    """One stored message; ``seq`` counts from 1 within its session and has no gaps."""

    seq: int
    turn: str
    message: Message
    time: float


def new_id(prefix: str) -> str:
    """A readable unique id: ``prefix-YYYYMMDD-HHMMSS-xxxxxx``."""
    return f"{prefix}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
