"""Builds the JSON object of a response, which OpenAI's API calls its resource: the fields of the request, the status
and the output. The module has no side effects."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.sessions.store.private_store import is_private

PREFIX = "resp_"
STEM = re.compile(r"[0-9a-f]{48}")
ENDED = frozenset({"completed", "failed", "incomplete", "cancelled"})
"""The statuses of a response that has ended; the others are queued and in_progress."""
PROMPT_ERRORS = frozenset(
    {"invalid_request", "request_too_large", "context_overflow", "file_not_found", "file_too_large", "turn_not_found"}
)
"""Codes of errors that are caused by the content of the request."""


def response_id(namespace: str, turn: str) -> str:
    """Return the id of the only response of a turn. The id is not a secret: only the caller who requested the response
    may use it."""
    return PREFIX + hashlib.sha256(f"{namespace}\n{turn}".encode()).hexdigest()[:48]


def is_response_id(text: str) -> bool:
    return text.startswith(PREFIX) and STEM.fullmatch(text.removeprefix(PREFIX)) is not None


def stem_of(item: str) -> str:
    """Return the id of the response that an item belongs to; empty for an id of another server."""
    stem = item.partition("_")[2].rpartition("_")[0]
    return PREFIX + stem if STEM.fullmatch(stem) else ""


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """The fields of a response that do not change.

    ``model`` is the name that the client sent; ``echo`` are the fields of the request that the resource repeats.
    ``background``: the client got its answer before the end of the turn. ``namespaces`` maps the name of a function on
    this server to (namespace, name) as the client declared them. ``include`` lists the requested additional fields.
    ``shell``: the client declared the shell tool. For other clients a shell call must not be listed as one, because
    they would take it for a call that they have to run. ``reports``: the client knows mistral.rs's events. Otherwise
    only the question for an approval is sent, for which the turn waits, because some clients of OpenAI's API fail at
    events of another type.
    """

    id: str
    model: str
    session: str
    created: float = field(default_factory=time.time)
    echo: Mapping[str, Any] = field(default_factory=dict)
    background: bool = False
    namespaces: Mapping[str, Sequence[str]] = field(default_factory=dict)
    include: Sequence[str] = ()
    shell: bool = False
    reports: bool = False

    @property
    def stem(self) -> str:
        return self.id.removeprefix(PREFIX)

    @property
    def private(self) -> bool:
        """Whether no part of the response may be written to disk."""
        return is_private(self.session)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ResponseFacts:
        known = {item.name for item in dataclasses.fields(cls)}
        facts = {key: value for key, value in body.items() if key in known}
        return cls(**{**facts, "include": tuple(facts.get("include", ()))})

    def resource(
        self,
        status: str,
        output: Sequence[Mapping[str, Any]] = (),
        *,
        usage: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
        incomplete: str = "",
        completed: float | None = None,
    ) -> dict[str, Any]:
        """Return the response as a JSON object with this status and output. ``completed`` is the time at which the
        response ended, in seconds since the epoch. ``incomplete`` is the reason why the answer was cut off; empty if it
        is complete."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": int(self.created),
            "status": status,
            "background": self.background,
            "completed_at": None if completed is None else int(completed),
            "error": error,
            "incomplete_details": {"reason": incomplete} if incomplete else None,
            "model": self.model,
            **self.echo,
            "output": list(output),
            "output_text": output_text(output),
            "usage": usage,
            "session_id": self.session,
        }


def output_text(output: Sequence[Mapping[str, Any]]) -> str:
    parts = (part for item in output if item["type"] == "message" for part in item["content"])
    return "".join(part["text"] for part in parts if part["type"] == "output_text")


def usage_of(usage: Mapping[str, float]) -> dict[str, Any] | None:
    """Return the usage in OpenAI's format; reasoning tokens are not counted separately. None if nothing was counted."""
    if not usage:
        return None
    input_tokens, output_tokens = int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0))
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": int(usage.get("reused_tokens", 0)), "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + output_tokens,
    }


def fault_of(error: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an error ``{code, message, hint}`` into the error of a resource, with OpenAI's codes; ``type`` is this
    server's code."""
    ours = str(error.get("code", EngineError("").code))
    message = f"{error.get('message', '')} {error.get('hint', '')}".strip()
    code = "invalid_prompt" if ours in PROMPT_ERRORS else "server_error"
    return {"code": code, "message": message, "type": ours}
