"""Runs one model call of a turn: streams the reply as events, saves it, and separates the calls that this server runs
from the calls that the caller runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agent_kernel.core.errors import EngineError
from agent_kernel.core.events import AnswerLogprobs, EventBody, ModelLoading, Notice, Queued, ReasoningDelta, TextDelta
from agent_kernel.core.messages import Message, ToolCall, assistant
from agent_kernel.core.protocols import (
    Chunk,
    EndChunk,
    Engine,
    EngineRequest,
    ReasoningChunk,
    TextChunk,
    TokenLogprob,
    WaitChunk,
)
from agent_kernel.core.session import new_id
from agent_kernel.core.token_estimate import estimate_usage
from agent_kernel.sessions.redaction.redaction import Redactor
from agent_kernel.turn.model_reply import Reply
from agent_kernel.turn.turn_state import ActiveTurn


async def model_call(
    engine: Engine, request: EngineRequest, turn: ActiveTurn, theirs: frozenset[str], redactor: Redactor
) -> tuple[list[ToolCall], Message | None]:
    """Run one model call. Return the calls that this server runs, and a message (not stored yet) with the calls of the
    caller's functions ``theirs``, or None.

    Calls of the caller get new ids, because the caller distinguishes them over many turns. If the call is stopped, its
    text is stored too, marked as interrupted, and its tokens are estimated. Raises EngineError, also if the engine ends
    without an EndChunk: it is then unknown whether the answer is complete.
    """
    reply, began = Reply(), time.monotonic()
    handed: Message | None = None
    try:
        async with aclosing(engine.stream(request)) as chunks:
            async for chunk in chunks:
                reply.add(chunk)
                if (body := chunk_to_event(engine, chunk)) is not None:
                    turn.emit(body)
    finally:
        if reply.end is not None:
            turn.usage += reply.end.usage
            turn.context = max(turn.context, reply.end.context_tokens)
            turn.share = max(turn.share, _context_share(engine, turn.context))
            handed = _take_callers_calls(reply, theirs)
        elif reply.chars:
            turn.usage += estimate_usage(request.messages, reply.chars, time.monotonic() - began)
        if reply.worth_saving and (handed is None or reply.calls):
            await turn.save(reply.message)
    if reply.end is None:
        raise EngineError("The engine stopped in the middle of its answer.", hint="Send the prompt again.")
    turn.finish = "length" if reply.end.reason == "length" else "stop"
    turn.stopped = reply.end.stopped if turn.finish == "stop" else ""
    _tell_logprobs(turn, reply, redactor)
    return reply.calls, handed


def _take_callers_calls(reply: Reply, theirs: frozenset[str]) -> Message | None:
    """Remove the calls of the functions ``theirs`` from the reply and return a message with them; None if there are
    none. The message includes the text of the reply, unless the reply still has calls that run here."""
    calls = [replace(call, id=new_id("call")) for call in reply.calls if call.name in theirs]
    reply.calls = [call for call in reply.calls if call.name not in theirs]
    if not calls:
        return None
    return assistant("", calls) if reply.calls else assistant("".join(reply.text), calls, "".join(reply.reasoning))


def _tell_logprobs(turn: ActiveTurn, reply: Reply, redactor: Redactor) -> None:
    """Emit the log probabilities once the text is complete. They are dropped if a secret was redacted from the text,
    because their tokens would reveal the secret."""
    text = "".join(reply.text)
    if reply.logprobs and redactor.text(text) == text:
        turn.emit(answer_logprobs(reply.logprobs))


def answer_logprobs(tokens: Sequence[TokenLogprob]) -> AnswerLogprobs:
    """Return the event with the log probabilities of these tokens."""
    return AnswerLogprobs(tuple(_token(token.text, token.logprob, token.top) for token in tokens))


def _token(text: str, logprob: float, top: tuple[tuple[str, float], ...] = ()) -> dict[str, Any]:
    others = {"top": [_token(*other) for other in top]} if top else {}
    return {"text": text, "logprob": round(logprob, 6), **others}


def _context_share(engine: Engine, tokens: int) -> float:
    """Return the share of the model's context length that one request and its answer used (``tokens``); 0 if the
    context length is unknown."""
    length = engine.info().context_length
    return tokens / length if length else 0.0


def chunk_to_event(engine: Engine, chunk: Chunk) -> EventBody | None:
    """Return the event for a part of a model's answer; None if no event belongs to it, or if it needs the whole
    answer."""
    match chunk:
        case TextChunk(text):
            return TextDelta(text)
        case ReasoningChunk(text):
            return ReasoningDelta(text)
        case WaitChunk(stage, fraction, position):
            return Queued(position, stage) if position else ModelLoading(engine.info().model, stage, fraction)
        case EndChunk(reason="length"):
            return Notice("warning", "The answer was cut off because it reached the token limit.")
    return None
