"""Estimates the number of tokens of a request that has not begun. The functions have no side effects."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from agent_kernel.core import token_estimate
from agent_kernel.core.messages import Message
from agent_kernel.core.protocols import ToolSpec

MEDIUM_TOKENS = 1_500
"""Estimated tokens of one picture; Anthropic counts about this number for a large one."""
PER_TOOL = 60
"""Number of characters that a chat template adds for each tool."""


def estimate_tokens(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Estimate the tokens of a request from its characters, by ``token_estimate.CHARS_PER_TOKEN``. An exact count needs
    the tokenizer of the engine's model, and a count must not load a model. The estimate is more often too high than
    too low. ``estimated`` in the result marks it as an estimate."""
    media = sum(len(message.media) for message in messages)
    declared = sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.schema)) + PER_TOOL for tool in tools)
    chars = token_estimate.total_chars(messages) + declared
    return {
        "input_tokens": math.ceil(chars / token_estimate.CHARS_PER_TOKEN) + media * MEDIUM_TOKENS,
        "estimated": True,
    }
