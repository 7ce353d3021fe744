"""Converts chat/completions requests to requests of an engine, and the engine's answer to the events from which the
dialect's codec makes the response."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from agent_kernel.core.errors import EngineError, InvalidRequest, Unprocessable
from agent_kernel.core.events import CallReturned, EventBody, TurnFinished
from agent_kernel.core.protocols import CallChunk, EndChunk, Engine, EngineRequest, TextChunk
from agent_kernel.core.session import new_id
from agent_kernel.turn.model_call import answer_logprobs, chunk_to_event
from jupyter_ext.api.chat_completions.request import ChatBody


def to_engine_request(body: ChatBody, session: str) -> EngineRequest:
    """Return the model call that a request describes. Raises InvalidRequest for features that need more than a model:
    stored sessions, tools of a server, files, and media that have to be fetched."""
    if body.session_id is not None:
        raise InvalidRequest(
            "This server stores no sessions: send the whole conversation in messages.", details={"param": "session_id"}
        )
    if body.links:
        raise InvalidRequest(
            "This server fetches no media: send pictures as data URLs (data:image/png;base64,...).",
            details={"param": "messages"},
        )
    try:
        turn_request = body.to_turn({})
    except ValueError as error:
        raise InvalidRequest(f"messages: {error}", details={"param": "messages"}) from error
    if turn_request.server_tools != () or turn_request.files:
        raise Unprocessable(
            "This server runs a model alone and has no tools and no files.",
            hint="Declare your own functions in tools, or send the request to agent-kernel serve.",
        )
    turn = turn_request.request
    return EngineRequest(
        messages=turn.messages,
        tools=turn.functions,
        sampling=turn.sampling,
        session=session,
        tool_choice=turn.tool_choice,
        parallel_calls=turn.parallel_calls,
        output=turn.output,
    )


async def answer_events(engine: Engine, request: EngineRequest) -> AsyncGenerator[EventBody, None]:
    """Yield the answer of the engine as the events of a turn with one round. Calls get new ids, because a client
    distinguishes them over many requests. Closing the generator stops the engine. Raises EngineError and the other
    errors of the engine."""
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            match chunk:
                case CallChunk(call):
                    yield CallReturned(new_id("call"), call.name, call.arguments)
                case EndChunk():
                    usage = chunk.usage.to_json()
                    yield TurnFinished("committed", "", 1, usage, finish=chunk.reason, stopped=chunk.stopped)
                    return
                case _:
                    if (body := chunk_to_event(engine, chunk)) is not None:
                        yield body
                    if isinstance(chunk, TextChunk) and chunk.logprobs:
                        yield answer_logprobs(chunk.logprobs)
    raise EngineError("The engine stopped in the middle of its answer.", hint="Send the request again.")
