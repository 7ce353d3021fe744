"""A person's answer to the question whether a call may run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.approval import Decision, Remember
from agent_kernel.core.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's decision about a call. Raises InvalidRequest for an approval with ``never``.

    ``remember`` is the scope of the decision: this call (``once``), every call of this tool in this session
    (``session``; for a path also ``folder``), or no further question in this session (``never``). A denial that is
    remembered always has the scope ``never``. ``shown`` is the hash of the call that the person saw; empty if the
    client does not send it.
    """

    decision: Decision
    remember: Remember = "once"
    message: str = ""
    shown: str = ""

    def __post_init__(self) -> None:
        if self.decision == "approve" and self.remember == "never":
            raise InvalidRequest("An approval cannot be remembered as never; only a denial can.")
        if self.decision == "deny" and self.remember != "once":
            object.__setattr__(self, "remember", "never")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call may run. If it may not, ``reason`` completes the sentence "This call did not run: ...".
    ``remember`` is the scope of the person's approval."""

    allowed: bool
    reason: str
    remember: Remember = "once"


def to_verdict(answer: Answer) -> Verdict:
    if answer.decision == "approve":
        return Verdict(True, answer.message or "approved", answer.remember)
    return Verdict(False, f"denied: {answer.message}" if answer.message else "denied", answer.remember)


def hash_shown_call(name: str, target: str, arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal digits, of a call as a person sees it: of ``{"arguments", "name", "target"}``
    as JSON with sorted keys and without spaces. ``target`` is the place in which the call would run."""
    body = {"name": name, "target": target, "arguments": dict(arguments)}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
