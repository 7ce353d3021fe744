"""Fields that a server has refused, which are not sent to it again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.engines.openai_api.error_mapping import Refusal

OPTIONAL = (
    "stream_options",
    "parallel_tool_calls",
    "repetition_penalty",
    "max_tokens",
    "logprobs",
    "top_k",
    "min_p",
    "top_p",
    "temperature",
    "seed",
)
"""An answer without one of these is still an answer to what was asked. tools, tool_choice, stop and formats are not
here: without them it would be another question."""
NEEDED = (
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "top_logprobs",
    "reasoning_effort",
    "structured_outputs",
    "response_format",
)
"""What a person who sent one of these is told where the server refuses it: nothing is left out in its place."""
UNKNOWN = re.compile(
    r"unexpected|unknown|unrecogni[sz]ed|unsupported|not (supported|permitted|allowed)|n't support|not support|extra"
    r"|additional|only the default",
    re.IGNORECASE,
)
RENAMED = {"max_tokens": "max_completion_tokens"}
"""OpenAI's reasoning models want the new name, most other servers know only the old one."""


class ServerQuirks:
    """What one server does not support, for the lifetime of its engine."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    @property
    def refused(self) -> list[str]:
        return sorted(self._refused)

    def spoken(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``body`` without refused fields and with renamed ones."""
        said = {name: value for name, value in body.items() if name not in self._refused}
        for old, new in RENAMED.items():
            if old in self._refused and old in body and new not in self._refused:
                said[new] = body[old]
        return said

    def needed(self, refusal: Refusal, said: Mapping[str, Any]) -> list[str]:
        """Return the refused fields of ``said`` without which the answer would be to another question."""
        if refusal.status not in (400, 422):
            return []
        return _named([name for name in NEEDED if name in said], refusal)

    def learn(self, refusal: Refusal, said: Mapping[str, Any]) -> list[str]:
        """Return the refused fields of ``said`` that can be omitted. A value out of range does not count as an unknown
        field."""
        if refusal.status not in (400, 422) or not UNKNOWN.search(refusal.words):
            return []
        candidates = [name for name in (*OPTIONAL, *RENAMED.values()) if name in said]
        named = _named(candidates, refusal)
        self._refused.update(named)
        return named


def _named(candidates: Sequence[str], refusal: Refusal) -> list[str]:
    named = [name for name in candidates if refusal.param.split(".")[0] == name]
    # By the full name: a server that recommends max_completion_tokens refuses max_tokens.
    return named or [name for name in candidates if re.search(rf"\b{name}\b", refusal.words)]
