"""One replica of the Ray Serve application: a model with its routes, in a process of its own."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from agent_kernel.core.errors import (
    AgentKernelError,
    EngineError,
    FileTooLarge,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    UnknownModel,
    Unprocessable,
)
from agent_kernel.core.events import CallReturned, Event, EventNumbering, ModelLoading, Queued, TurnFinished
from agent_kernel.core.messages import Message, Text
from agent_kernel.core.protocols import CallChunk, EndChunk, Engine, EngineRequest, Sampling, TextChunk
from agent_kernel.core.session import new_id
from agent_kernel.core.settings import SETTINGS, Settings
from agent_kernel.core.turn_request import TurnRequest
from agent_kernel.turn.model_call import answer_logprobs, chunk_to_event
from agent_kernel.turn.server_runtime import build_engine
from jupyter_ext.api.chat_completions.codec import ChatCodec
from jupyter_ext.api.chat_completions.request import CONTINUE, ContinuableBody, choices_of
from jupyter_ext.api.dialects.merged_streams import merge
from jupyter_ext.api.dialects.model_list import ModelFacts, openai_model
from jupyter_ext.api.dialects.openai_errors import openai_error, openai_status
from jupyter_ext.api.dialects.openai_validation import name_field
from jupyter_ext.api.http import json_body, sse
from jupyter_ext.api.http.error_status import status_of
from jupyter_ext.turns.dialect_request import DEFAULT

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

SESSION_HEADER = "x-session-id"
MAX_SESSION = 512
"""Maximum characters of a session's id, which the engine keeps."""
FIRST = EngineRequest((Message("user", (Text("Hi"),)),), sampling=Sampling(max_tokens=1))
"""A request with a minimal prompt. A replica sends it to its engine so that the engine loads the model."""


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """The options of a replica. ``settings`` are settings of the engine by their names, such as ``model`` and
    ``device``; all other settings are read from the environment of the replica. ``api_key_env`` names an environment
    variable of the replicas with the key that every request must have; without a name, no key is needed."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    api_key_env: str = ""

    @classmethod
    def from_args(cls, args: Mapping[str, Any]) -> ReplicaOptions:
        """Read the ``args`` of an application. Raises InvalidRequest."""
        settings = args.get("settings", {})
        if unknown := sorted(set(args) - {option.name for option in fields(cls)}):
            raise InvalidRequest(f"args can have settings and api_key_env, not {', '.join(unknown)}.")
        if not isinstance(settings, Mapping) or not isinstance(args.get("api_key_env", ""), str):
            raise InvalidRequest("In args, settings must be an object and api_key_env a text.")
        if unknown := sorted(set(settings) - set(SETTINGS)):
            raise InvalidRequest(
                f"args have unknown settings: {', '.join(unknown)}.", hint="agent-kernel config lists all settings."
            )
        return cls(dict(settings), args.get("api_key_env", ""))

    def engine(self) -> Engine:
        """Create the engine. A model stays loaded, because Serve ends replicas that have nothing to do. Raises
        InvalidRequest."""
        return build_engine(Settings.from_env(**{"idle_unload_s": 0, **self.settings}))

    def key(self) -> str:
        """Return the key; empty if none is needed. Raises InvalidRequest if the variable is not set here."""
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        if self.api_key_env and not key:
            raise InvalidRequest(
                f"The environment variable {self.api_key_env}, which api_key_env names, is not set on this node.",
                hint="Set it on every node, or in the runtime_env of the application.",
            )
        return key


class ModelReplica:
    """Answers ``GET /v1/models`` and ``POST /v1/chat/completions`` with one engine. If a client disconnects, Serve
    cancels the request, which stops the engine's answer. Raises InvalidRequest for options that are not valid."""

    def __init__(self, options: ReplicaOptions) -> None:
        self._engine = options.engine()
        self._key = options.key()
        self._names = {DEFAULT, str(options.settings.get("model", DEFAULT))}
        self._began = time.time()
        self._loaded = False

    async def check_health(self) -> None:
        """Load the model at the first call, which Serve makes before it sends requests; Serve replaces a replica that
        fails. Raises EngineError if the engine has failed, and the errors of loading."""
        if not self._loaded and self._engine.info().state == "unloaded":
            async with aclosing(self._engine.stream(FIRST)) as chunks:
                async for _ in chunks:
                    pass
        self._loaded = True
        if self._engine.info().state == "failed":
            raise EngineError("The model could not be loaded again.")

    async def __call__(self, request: Request) -> Response:
        """Answer one HTTP request."""
        try:
            return await self._route(request)
        except AgentKernelError as error:
            return _refusal(error)

    async def _route(self, request: Request) -> Response:
        self._check_key(request.headers.get("authorization", ""))
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "").rstrip("/"))
        match request.method, path:
            case "GET", "/v1/models":
                return _json({"object": "list", "data": [self._model()]})
            case "POST", "/v1/chat/completions":
                return await self._complete(request)
        raise NotFound(
            f"There is no {request.method} {path[:100]} here.",
            hint="This server has GET /v1/models and POST /v1/chat/completions.",
        )

    def _check_key(self, header: str) -> None:
        scheme, _, key = header.partition(" ")
        # starlette decodes the bytes of a header as Latin-1.
        has_key = hmac.compare_digest(key.strip(" ").encode("latin-1"), self._key.encode())
        if self._key and not (scheme.lower() == "bearer" and has_key):
            raise Unauthenticated(
                "The request does not have the key of this server.", hint="Send it as Authorization: Bearer KEY."
            )

    def _model(self) -> dict[str, Any]:
        info = self._engine.info()
        facts = ModelFacts(
            info.model, info.model, self._began, info.host or "agent-kernel", info.state, info.local, info.host
        )
        more = {"context_length": info.context_length or None, "capabilities": {CONTINUE: info.continues}}
        return openai_model(facts) | more

    async def _complete(self, request: Request) -> Response:
        raw = await _read(request)
        try:
            body = json_body.parse(ContinuableBody, raw, json_body.MAX_BODY)
        except InvalidRequest as error:
            raise name_field(error, raw, ContinuableBody) from error.__cause__
        self._check_model(body.model)
        if body.continues and not self._engine.info().continues:
            raise InvalidRequest(f"This model does not support {CONTINUE}.", details={"param": CONTINUE})
        session = request.headers.get(SESSION_HEADER, "")[:MAX_SESSION]
        requests = to_engine_requests(body, session)
        turns = [new_id("turn") for _ in requests]
        events = merge([answer_events(self._engine, *each) for each in zip(requests, turns, strict=True)])
        codec = ChatCodec(body.model, turn=turns[0], further_turns=turns[1:], include_usage=body.include_usage)
        if not body.streams:
            return _json(await _whole(codec, events))
        return _stream(_frames(codec, await _first(events), events))

    def _check_model(self, name: str) -> None:
        served = self._engine.info().model
        if name not in self._names | {served}:
            raise UnknownModel(f"There is no model {name[:100]!r} here.", hint=f"This server has the model {served}.")


async def _read(request: Request) -> bytes:
    """Return the body. Raises FileTooLarge without reading the rest, and InvalidRequest if it is not JSON by its
    type."""
    if not json_body.is_json(request.headers.get("content-type", "")):
        raise InvalidRequest("The body must be JSON: send it with Content-Type: application/json.")
    length = request.headers.get("content-length", "")
    too_large = FileTooLarge(f"A body can have at most {json_body.MAX_BODY >> 20} MiB.")
    if length.isdecimal() and int(length[:20]) > json_body.MAX_BODY:
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > json_body.MAX_BODY:
            raise too_large
    return bytes(body)


async def _whole(codec: ChatCodec, events: AsyncGenerator[Event, None]) -> Mapping[str, Any]:
    async with aclosing(events):
        async for event in events:
            for _ in codec.feed(event):
                pass
    return codec.whole()


async def _first(events: AsyncGenerator[Event, None]) -> Event:
    """Return the first event of the answer itself, so that an error before it has an HTTP status of its own."""
    while isinstance((event := await anext(events)).body, Queued | ModelLoading):
        pass
    return event


async def _frames(codec: ChatCodec, first: Event, events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
    """Yield the server-sent events of an answer whose first event is ``first``. An error of the engine is the last
    one."""
    for frame in [*codec.begin(), *codec.feed(first)]:
        yield frame.encode()
    try:
        async with aclosing(events):
            async for event in events:
                for frame in codec.feed(event):
                    yield frame.encode()
    except AgentKernelError as error:
        failed = TurnFinished("failed", error.message, 1, {}, error.to_json())
        for frame in codec.feed(EventNumbering(first.turn, "")(failed)):
            yield frame.encode()


def _refusal(error: AgentKernelError) -> Response:
    status = openai_status(error, status_of(error))
    return _json({"error": openai_error(status, error.to_json())}, status)


def _json(body: Mapping[str, Any], status: int = 200) -> Response:
    from starlette.responses import JSONResponse

    return JSONResponse(dict(body), status, {"WWW-Authenticate": "Bearer"} if status == 401 else None)


def _stream(frames: AsyncGenerator[bytes, None]) -> Response:
    from starlette.responses import StreamingResponse

    return StreamingResponse(frames, headers={"Content-Type": sse.CONTENT_TYPE, "Cache-Control": "no-cache"})


# Converts chat/completions requests to requests of an engine, and the engine's answer to the events from which the
# dialect's codec makes the response.


def to_engine_requests(body: ContinuableBody, session: str) -> list[EngineRequest]:
    """Return the model call for each choice that a request asks for. Raises InvalidRequest for features that need more
    than a model: stored sessions, tools of a server, files, and media that have to be fetched."""
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
        turn_request = body.to_turn({}, continues=body.continues)
    except ValueError as error:
        raise InvalidRequest(f"messages: {error}", details={"param": "messages"}) from error
    if turn_request.server_tools != () or turn_request.files:
        raise Unprocessable(
            "This server runs a model alone and has no tools and no files.",
            hint="Declare your own functions in tools, or send the request to agent-kernel serve.",
        )
    return [
        _to_engine_request(choice.request, session, body.continues) for choice in choices_of(turn_request, body.n or 1)
    ]


def _to_engine_request(turn: TurnRequest, session: str, continues: bool) -> EngineRequest:
    return EngineRequest(
        messages=turn.messages,
        tools=turn.functions,
        sampling=turn.sampling,
        session=session,
        tool_choice=turn.tool_choice,
        parallel_calls=turn.parallel_calls,
        output=turn.output,
        continues=continues,
    )


async def answer_events(engine: Engine, request: EngineRequest, turn: str) -> AsyncGenerator[Event, None]:
    """Yield the answer of the engine as the events of a turn with the id ``turn`` and one round. Calls get new ids,
    because a client distinguishes them over many requests. Closing the generator stops the engine. Raises EngineError
    and the other errors of the engine."""
    number = EventNumbering(turn, "")
    async with aclosing(engine.stream(request)) as chunks:
        async for chunk in chunks:
            match chunk:
                case CallChunk(call):
                    yield number(CallReturned(new_id("call"), call.name, call.arguments))
                case EndChunk():
                    usage = chunk.usage.to_json()
                    end = TurnFinished("committed", "", 1, usage, finish=chunk.reason, stopped=chunk.stopped)
                    yield number(end)
                    return
                case _:
                    if (body := chunk_to_event(engine, chunk)) is not None:
                        yield number(body)
                    if isinstance(chunk, TextChunk) and chunk.logprobs:
                        yield number(answer_logprobs(chunk.logprobs))
    raise EngineError("The engine stopped in the middle of its answer.", hint="Send the request again.")
