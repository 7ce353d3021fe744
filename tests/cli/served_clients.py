"""Helpers for tests of ``agent-kernel serve``: what its scripted model answers, and clients of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai

from tests.served import Served
from tests.server import Json

SLOW = {"text": "word " * 400, "deltas": 400, "delay": 0.05, "when": "slow", "loop": True}
GATED = {"text": "ready " * 20, "deltas": 20, "when": "gated", "gate": "go"}
SCRIPT: list[Json] = [SLOW, GATED, {"text": "Hello.", "loop": True}]
Serve = Callable[..., Served]


def openai_client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=served.token, max_retries=0)


def messages_of(prompt: str) -> list[Any]:
    return [{"role": "user", "content": prompt}]
