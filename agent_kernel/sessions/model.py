"""What a store keeps: sessions, their turns, the items of a turn, and who may write to an open turn."""

from __future__ import annotations

import os
import secrets
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_kernel.errors import InvalidRequest
from agent_kernel.events import TurnState
from agent_kernel.messages import Message

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
    """The process that runs a turn; ``instance`` is unique per server start, so a reused pid is never mistaken."""

    instance: str
    pid: int
    boot: str

    @classmethod
    def here(cls) -> Owner:
        return cls(secrets.token_hex(8), os.getpid(), _boot_id())

    def provably_dead(self) -> bool:
        """True only when nobody can be writing as this owner: this machine has booted since, or its pid is gone.

        The boot id is compared first because a pid says nothing about another machine or an earlier boot; on another
        machine (a store on a network disk) the boot ids differ too, hence only the same machine's may be judged.
        """
        if self.boot != _boot_id():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


def _boot_id() -> str:
    try:
        machine = Path("/etc/machine-id").read_text().strip()
        return machine + ":" + Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"unknown:{os.uname().nodename if hasattr(os, 'uname') else os.environ.get('COMPUTERNAME', '')}"


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
