"""Wraps an engine for one turn: each model call waits for its slot in the fair queue, and is charged to the user's
budget."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing

from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    Engine,
    EngineInfo,
    EngineRequest,
    ReasoningChunk,
    TextChunk,
)
from agent_kernel.core.token_estimate import CHARS_PER_TOKEN, estimate_usage, total_chars

ANSWER_TOKENS = 512
"""Estimated tokens of an answer, used if the request does not limit the answer and its length is not known yet."""


class MeteredEngine:
    """Wraps an engine so that each call waits in the fair queue and is charged to a budget.

    ``stream`` holds a slot of the engine during a model call, never while a tool runs or the user is asked.

    If the reader closes a call that has produced text, or an error ends such a call, the engine does not report its
    cost. The budget is then charged with an estimate.
    """

    def __init__(
        self,
        engine: Engine,
        stream: Callable[[EngineRequest], AsyncGenerator[Chunk, None]],
        *,
        budget: Callable[[int], AbstractAsyncContextManager[None]],
        spent: Callable[[int], None],
    ) -> None:
        self._engine = engine
        self._stream = stream
        self._budget = budget
        self._spent = spent

    def info(self) -> EngineInfo:
        return self._engine.info()

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one model call. Raises EngineError, BudgetSpent."""
        cost = CallCost(request)
        async with self._budget(cost.expected):
            try:
                async with aclosing(self._stream(request)) as chunks:
                    async for chunk in chunks:
                        cost.add(chunk)
                        yield chunk
            finally:
                self._spent(cost.tokens)

    async def aclose(self) -> None:
        """Do nothing: other turns use the engine too."""


class CallCost:
    """The cost of one model call, in tokens of its prompt and its answer."""

    def __init__(self, request: EngineRequest) -> None:
        self._request = request
        self._chars = 0
        self._end: EndChunk | None = None

    @property
    def expected(self) -> int:
        """The estimate, made before the model call begins, of the tokens that it will use."""
        answer = self._request.sampling.max_tokens or ANSWER_TOKENS
        return math.ceil(total_chars(self._request.messages) / CHARS_PER_TOKEN) + answer

    def add(self, chunk: Chunk) -> None:
        match chunk:
            case TextChunk(text) | ReasoningChunk(text):  # nearly all chunks, so it comes first
                self._chars += len(text)
            case EndChunk():
                self._end = chunk
            case CallChunk(call):
                self._chars += len(str(call.arguments))

    @property
    def tokens(self) -> int:
        """The cost so far; 0 for a call that failed before it produced text."""
        if self._end is not None:
            return self._end.usage.prompt_tokens + self._end.usage.completion_tokens
        if not self._chars:
            return 0
        cost = estimate_usage(self._request.messages, self._chars)
        return cost.prompt_tokens + cost.completion_tokens
