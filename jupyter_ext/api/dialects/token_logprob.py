"""Converts log probabilities of tokens into the format that both of OpenAI's dialects use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def token_logprob(token: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a token of AnswerLogprobs, with the likeliest tokens at its position."""
    return {
        **_without_alternatives(token),
        "top_logprobs": [_without_alternatives(other) for other in token.get("top", ())],
    }


def _without_alternatives(token: Mapping[str, Any]) -> dict[str, Any]:
    text = str(token["text"])
    return {"token": text, "logprob": token["logprob"], "bytes": list(text.encode("utf-8", "replace"))}
