"""How many tokens a request has, estimated: no engine here counts without its model. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from agent_kernel.core import token_estimate
from agent_kernel.core.messages import Message
from agent_kernel.core.protocols import ToolSpec

MEDIUM_TOKENS = 1_500
"""Of one picture, about what Anthropic counts for a large one."""
PER_TOOL = 60
"""Characters that a template writes around a tool."""


def estimate_tokens(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """``estimated`` says that it is no count: characters by ``lengths.CHARS_PER_TOKEN``, which errs towards more."""
    media = sum(len(message.media) for message in messages)
    declared = sum(len(tool.name) + len(tool.description) + len(json.dumps(tool.schema)) + PER_TOOL for tool in tools)
    chars = token_estimate.total_chars(messages) + declared
    return {
        "input_tokens": math.ceil(chars / token_estimate.CHARS_PER_TOKEN) + media * MEDIUM_TOKENS,
        "estimated": True,
    }
