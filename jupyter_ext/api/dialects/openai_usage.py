"""Converts the token usage of a turn to OpenAI's format, with the token rates and durations that mistral.rs adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_kernel.core.messages import Usage


def chat_usage(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Return the token usage in the format of chat/completions.

    ``wire`` is ``TurnFinished.usage``, the sum of all rounds. The result has ``estimated`` if the engine does not count
    tokens.
    """
    usage = Usage.from_json(wire)
    body: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.reused_tokens},
        **speeds(usage),
    }
    return body | ({"estimated": True} if usage.estimated else {})


def speeds(usage: Usage) -> dict[str, float]:
    """Return mistral.rs's fields: tokens per second and durations in seconds, for the prompt, the completion and both.
    They are 0 where nothing was measured. The duration of the prompt is the total duration minus that of decoding."""
    decoding = usage.decode_s or max(0.0, usage.seconds - usage.first_token_s)
    reading = max(0.0, usage.seconds - decoding)
    total = usage.prompt_tokens + usage.completion_tokens
    return {
        "avg_tok_per_sec": _rate(total, usage.seconds),
        "avg_prompt_tok_per_sec": _rate(usage.prompt_tokens, reading),
        "avg_compl_tok_per_sec": _rate(usage.completion_tokens, decoding),
        "total_time_sec": round(usage.seconds, 4),
        "total_prompt_time_sec": round(reading, 4),
        "total_completion_time_sec": round(decoding, 4),
    }


def _rate(tokens: int, seconds: float) -> float:
    return round(tokens / seconds, 2) if seconds > 0 else 0.0
