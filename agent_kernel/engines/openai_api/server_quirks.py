"""Remembers which fields a server has refused, so that they are not sent to it again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_kernel.engines.openai_api.error_mapping import Refusal
from agent_kernel.engines.openai_api.request import CONTINUE

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
    "prompt_cache_key",
)
"""Fields that may be left out if the server refuses them, because the answer still fits the request. Other fields, such
as tools, tool_choice, stop and the format, may not: the answer would not fit."""
NEEDED = (
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "top_logprobs",
    "reasoning_effort",
    "structured_outputs",
    "response_format",
    CONTINUE,
)
"""Fields that are never left out: if the server refuses one of them, the request fails with an error that names it."""
UNKNOWN = re.compile(
    r"unexpected|unknown|unrecogni[sz]ed|unsupported|not (supported|permitted|allowed)|n't support|not support|extra"
    r"|additional|only the default",
    re.IGNORECASE,
)
RENAMED = {"max_tokens": "max_completion_tokens"}
"""Maps old to new names of fields. OpenAI's reasoning models accept only the new name, most other servers only the old
one."""


class ServerQuirks:
    """The features that one server does not support, remembered for the lifetime of its engine."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    @property
    def refused(self) -> list[str]:
        return sorted(self._refused)

    def adapt(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``body`` without the fields that the server has refused. A refused field that has a new name is sent
        under that name."""
        sent = {name: value for name, value in body.items() if name not in self._refused}
        for old, new in RENAMED.items():
            if old in self._refused and old in body and new not in self._refused:
                sent[new] = body[old]
        return sent

    def find_needed(self, refusal: Refusal, sent: Mapping[str, Any]) -> list[str]:
        """Return the names of the fields of ``sent`` that ``refusal`` refuses and that must not be left out."""
        if refusal.status not in (400, 422):
            return []
        return _find_named([name for name in NEEDED if name in sent], refusal)

    def learn(self, refusal: Refusal, sent: Mapping[str, Any]) -> list[str]:
        """Return the names of the fields of ``sent`` that ``refusal`` refuses and that can be left out, and remember
        them. A field whose value is only out of range does not count as refused."""
        if refusal.status not in (400, 422) or not UNKNOWN.search(refusal.words):
            return []
        candidates = [name for name in (*OPTIONAL, *RENAMED.values()) if name in sent]
        fields = _find_named(candidates, refusal)
        self._refused.update(fields)
        return fields


def _find_named(candidates: Sequence[str], refusal: Refusal) -> list[str]:
    fields = [name for name in candidates if refusal.param.split(".")[0] == name]
    # The full name is compared, because a server that refuses max_tokens may recommend max_completion_tokens in the
    # same message.
    return fields or [name for name in candidates if re.search(rf"\b{name}\b", refusal.words)]
