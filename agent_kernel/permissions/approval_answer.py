"""Defines a person's answer to the question whether a call may run, and converts it to the verdict on the call."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_kernel.core.approval import Decision, Remember
from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.invisible_characters import find_invisible

MAX_EDITED = 200_000
"""Maximum characters of a text that a person writes in place of the text that the model proposed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's decision about a call. Raises InvalidRequest for an approval with ``never``, and for an ``edited``
    text that cannot run.

    ``remember`` is the scope of the decision: this call (``once``), every call of this tool in this session
    (``session``; for a path also ``folder``), or no further question in this session (``never``). A denial that is
    remembered always has the scope ``never``. ``shown`` is the hash of the call that the person saw; empty if the
    client does not send it. ``edited`` is the text with which this one call runs in place of the proposed one; None
    for an unchanged call.
    """

    decision: Decision
    remember: Remember = "once"
    message: str = ""
    shown: str = ""
    edited: str | None = None

    def __post_init__(self) -> None:
        if self.decision == "approve" and self.remember == "never":
            raise InvalidRequest("An approval cannot have remember never; only a denial can.")
        if self.decision == "deny" and self.remember != "once":
            object.__setattr__(self, "remember", "never")
        if self.edited is not None:
            self._check_edited(self.edited)

    def _check_edited(self, text: str) -> None:
        """Raise InvalidRequest if the edited text contains invisible characters, because nobody reviews the edited text
        before it runs.
        """
        if self.decision != "approve" or self.remember != "once":
            raise InvalidRequest(
                'A decision with an edited text must be "approve", and its field remember must be "once".'
            )
        if not text.strip():
            raise InvalidRequest("The edited text is empty. Deny the call if nothing is to run.")
        if len(text) > MAX_EDITED:
            raise InvalidRequest(f"The edited text has more than {MAX_EDITED:,} characters.")
        if unseen := find_invisible(text):
            raise InvalidRequest(
                f"The edited text contains invisible characters: {', '.join(unseen)}.",
                hint="Remove them, or approve the call as it was proposed.",
            )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call may run. If it may not, ``reason`` completes the sentence "This call did not run: ...".
    ``remember`` is the scope of the person's approval; ``edited`` is the text with which the call runs in place of the
    proposed one."""

    allowed: bool
    reason: str
    remember: Remember = "once"
    edited: str | None = None


def to_verdict(answer: Answer, proposed: object = None) -> Verdict:
    """Convert an answer to the verdict on the call. An edited text that equals the ``proposed`` text counts as an
    unchanged call."""
    if answer.decision == "approve":
        edited = None if answer.edited == proposed else answer.edited
        return Verdict(True, answer.message or "approved", answer.remember, edited)
    return Verdict(False, f"denied: {answer.message}" if answer.message else "denied", answer.remember)


def hash_edit(text: str | None) -> str:
    """Return the SHA-256 in hex of an edited text; empty for None."""
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


def hash_shown_call(name: str, target: str, arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal digits, of a call as a person sees it: of ``{"arguments", "name", "target"}``
    as JSON with sorted keys and without spaces. ``target`` is the place in which the call would run."""
    body = {"name": name, "target": target, "arguments": dict(arguments)}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
