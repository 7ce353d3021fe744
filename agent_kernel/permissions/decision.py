"""What a person says to a question about a call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.permission_grant import Decision, Remember


@dataclass(frozen=True, slots=True)
class Answer:
    """``remember``: for this call (``once``), for every call of this tool in this session (``session``; of a path also
    ``folder``), or ``never`` again a question. A denial that is remembered is never. ``shown`` is the hash of what the
    person saw; empty: not said. Raises InvalidRequest for an approval that is never."""

    decision: Decision
    remember: Remember = "once"
    message: str = ""
    shown: str = ""

    def __post_init__(self) -> None:
        if self.decision == "approve" and self.remember == "never":
            raise InvalidRequest("An approval is once or for this session; never is a denial.")
        if self.decision == "deny" and self.remember != "once":
            object.__setattr__(self, "remember", "never")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call may run; ``reason`` completes "This call did not run: ..." where it may not. ``remember`` is how
    far a person's yes goes."""

    allowed: bool
    reason: str
    remember: Remember = "once"


def to_verdict(answer: Answer) -> Verdict:
    if answer.decision == "approve":
        return Verdict(True, answer.message or "approved", answer.remember)
    return Verdict(False, f"denied: {answer.message}" if answer.message else "denied", answer.remember)


def shown_hash(name: str, target: str, arguments: Mapping[str, Any]) -> str:
    """SHA-256 of ``{"arguments", "name", "target"}`` as JSON with sorted keys and without spaces, in hex."""
    body = {"name": name, "target": target, "arguments": dict(arguments)}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
