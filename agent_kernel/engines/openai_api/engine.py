"""Implements the engine for a model on an OpenAI-compatible server, such as vLLM, Ray Serve, SGLang, llama-server,
Ollama, transformers serve and OpenAI."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from agent_kernel.core.errors import AgentKernelError, ContextOverflow, EngineError, EngineUnreachable, refuse_fields
from agent_kernel.core.messages import Usage
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    EngineInfo,
    EngineRequest,
    OutputFormat,
    TextChunk,
    WaitChunk,
)
from agent_kernel.engines.openai_api.answer_rest import announces_continuation, has_rest, rest_request
from agent_kernel.engines.openai_api.api_keys import key_of, scrub
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.endpoint_client import EndpointConnection, RequestRefused
from agent_kernel.engines.openai_api.error_mapping import Refusal, stream_fault, unknown_model
from agent_kernel.engines.openai_api.request import CONTINUE, affinity_of, encode
from agent_kernel.engines.openai_api.response_builder import ResponseBuilder, estimate_tokens
from agent_kernel.engines.openai_api.retry import EngineFault, Retries
from agent_kernel.engines.openai_api.server_quirks import ServerQuirks
from agent_kernel.engines.openai_api.text_seam import AnswerRestarted
from agent_kernel.engines.openai_api.token_timeouts import TokenTimeouts

LENGTHS = ("max_model_len", "context_length", "context_window")
"""Names of the field with the context length in a server's list of models: the first is that of vLLM and SGLang, the
second that of LM Studio and OpenRouter, the third that of Groq."""


@dataclass(slots=True)
class RequestClock:
    """The times at which an answer was requested (``started``), its first token arrived (``first``), and the first
    token of its last stream arrived (``decoding``), in seconds of the monotonic clock. Until the token arrives, a time
    is 0. ``prompt_characters`` is the length of the prompt of the last stream."""

    started: float
    first: float = 0.0
    decoding: float = 0.0
    prompt_characters: int = 0

    def send(self, body: Mapping[str, Any]) -> None:
        """Record that ``body`` is sent."""
        self.decoding = 0.0
        self.prompt_characters = len(json.dumps([body["messages"], body.get("tools")]))

    def receive_token(self) -> None:
        self.decoding = self.decoding or time.monotonic()
        self.first = self.first or self.decoding

    def usage(self, answer: ResponseBuilder) -> Usage:
        """Return the usage of a finished answer: its times, and the token counts that the server reports. If it reports
        none, they are estimates and labelled as such. If the answer was continued, the counts are those of the last
        request: its prompt contains the text that had arrived before, so that every token counts once."""
        now = time.monotonic()
        counted = answer.prompt_tokens is not None and answer.completion_tokens is not None
        prompt = estimate_tokens(self.prompt_characters) if answer.prompt_tokens is None else answer.prompt_tokens
        completion = estimate_tokens(answer.growing) if answer.completion_tokens is None else answer.completion_tokens
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            reused_tokens=answer.reused_tokens,
            first_token_s=self.first - self.started if self.first else 0.0,
            seconds=now - self.started,
            decode_s=now - self.decoding if self.decoding else 0.0,
            estimated=not counted,
        )


class OpenAIEngine:
    """The engine for one model of a server. ``stream`` raises InvalidRequest, EngineUnreachable, UnknownModel,
    ContextOverflow and EngineError.

    A request is sent again if no text of its answer has arrived. If the stream of an answer breaks off later, the rest
    is requested, provided that the server continues answers (``answer_rest``); otherwise the answer ends with an error.
    So the beginning of an answer is never shown twice, and no tool call runs twice: calls are returned when the answer
    is complete. Fields that the server refuses are left out of later requests; ``info().details`` lists them.
    """

    def __init__(self, endpoint: Endpoint, name: str = "") -> None:
        self._endpoint = endpoint
        self._name = name
        self._connection = EndpointConnection(endpoint)
        self._dialect = ServerQuirks()
        self._model = endpoint.model
        self._context_length = endpoint.context_length
        self._continues: bool | None = True if endpoint.continues else None
        self._asked = False
        self._asking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._endpoint.url!r}, {self._model!r})"

    def info(self) -> EngineInfo:
        endpoint = self._endpoint
        details = {"url": endpoint.url, "name": self._name, "not_sent": self._dialect.refused}
        model = self._model or endpoint.host
        return EngineInfo(
            model,
            endpoint.local,
            self._context_length,
            endpoint.vision,
            "ready",
            details,
            host=endpoint.host,
            continues=self._continues is True,
        )

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        key = key_of(self._endpoint)
        try:
            async with aclosing(self._stream_answer(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except AgentKernelError as error:
            scrub(error, key)
            raise

    async def _stream_answer(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        clock, answer = RequestClock(time.monotonic()), ResponseBuilder(request)
        await self._complete_configuration()
        async with aclosing(self._answer_chunks(request, clock, answer)) as chunks:
            async for chunk in chunks:
                yield chunk
        for chunk in self._closing(request, answer):
            yield chunk
        yield EndChunk(answer.reason, clock.usage(answer), answer.stopped)

    def with_vision(self) -> OpenAIEngine:
        """Return an engine for the same server that sends pictures even if the configuration does not allow them. It is
        used to test whether the server accepts pictures."""
        return OpenAIEngine(replace(self._endpoint, vision=True), self._name)

    async def models(self) -> list[str]:
        """Return the names of the models that the server lists. Raises EngineError."""
        try:
            return [str(entry["id"]) for entry in await self._connection.models() if entry.get("id")]
        except (EngineFault, RequestRefused) as problem:
            raise self._listing_error(problem) from None

    async def aclose(self) -> None:
        await self._connection.aclose()

    async def _answer_chunks(
        self, request: EngineRequest, clock: RequestClock, answer: ResponseBuilder
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one answer as they arrive in ``answer``. If a request must be sent again, yield a
        WaitChunk with the reason first. A request is sent again if nothing of its answer has arrived, which an object
        without a token is not: servers send one as soon as they accept a request. Otherwise the rest is requested. If
        that is not possible, raise the error of the stream that broke off."""
        retries = Retries(self._endpoint.tries)
        broken: AgentKernelError | None = None
        while True:
            try:
                if broken is not None and answer.sent_back and not await self._finds_continuation():
                    raise broken
                sent = self._encode(rest_request(request, answer))
                clock.send(sent)
                async with aclosing(self._receive(request, sent, clock, answer)) as chunks:
                    async for chunk in chunks:
                        yield chunk
                if answer.finished:
                    return
                fault = self._incomplete(answer)
            except AnswerRestarted:
                self._continues = False
                raise broken or self._incomplete(answer).error from None
            except RequestRefused as refused:
                if fields := self._dialect.learn(refused.refusal, sent):
                    yield WaitChunk(
                        f"asking again without {', '.join(fields)}, which {self._endpoint.host} does not accept"
                    )
                    continue
                fault = await self._fault_of(refused.refusal, sent, broken)
            except EngineFault as failed:
                if answer.finished and isinstance(failed.error, EngineUnreachable):
                    return  # the connection was lost after the end of the answer
                fault = failed
            if answer.has_begun and broken is None:
                broken = self._final_error(fault.error, begun=True)
            is_possible = (
                not answer.finished
                and has_rest(request, answer)
                and not (answer.sent_back and self._continues is False)
            )
            pause = retries.pause(fault) if is_possible else None
            if pause is None:
                raise broken or self._final_error(fault.error, begun=False) from None
            answer.break_off()
            yield WaitChunk(f"{(broken or fault.error).message} Trying again in {pause:.1f} s")
            await asyncio.sleep(pause)

    def _encode(self, request: EngineRequest) -> dict[str, Any]:
        endpoint = self._endpoint
        affinity = affinity_of(request, endpoint.url)
        body = encode(request, self._model, vision=endpoint.vision, extra=endpoint.extra, affinity=affinity)
        return self._dialect.adapt(body)

    async def _receive(
        self, request: EngineRequest, sent: Mapping[str, Any], clock: RequestClock, answer: ResponseBuilder
    ) -> AsyncGenerator[Chunk, None]:
        """Send ``sent`` once, add what the server sends to ``answer``, and yield its chunks."""
        endpoint = self._endpoint
        timeouts = TokenTimeouts(endpoint.host, endpoint.first_token_s, endpoint.between_tokens_s)
        async with aclosing(self._connection.events(sent, timeouts, affinity_of(request, endpoint.url))) as events:
            async for event in events:
                if problem := event.get("error"):
                    raise stream_fault(problem, endpoint)
                before = answer.growing
                chunks = answer.add(event)
                if answer.growing > before:
                    timeouts.restart_between_tokens()
                    clock.receive_token()
                for chunk in chunks:
                    yield chunk

    def _incomplete(self, answer: ResponseBuilder) -> EngineFault:
        """Return the fault of a stream that ended without the server's mark for the end of the answer."""
        how = "ended its answer in the middle." if answer.has_begun else "sent an empty answer."
        return EngineFault(EngineError(f"{self._endpoint.host} {how}", hint="Ask again."), may_retry=True)

    def _final_error(self, error: AgentKernelError, *, begun: bool) -> AgentKernelError:
        if isinstance(error, ContextOverflow):
            self._context_length = int(error.details.get("context_length", 0)) or self._context_length
        if not begun or not isinstance(error, EngineUnreachable):
            return error
        return EngineError(
            f"The connection to {self._endpoint.host} was lost in the middle of the answer.",
            hint="Ask again.",
            details=error.details,
        )

    async def _finds_continuation(self) -> bool:
        """Return whether the server continues answers. If it is not known yet, ask the server for its list of models.
        Raises EngineFault if the server cannot be reached."""
        if self._continues is None:
            try:
                listed = await self._connection.models()
            except (RequestRefused, AgentKernelError):
                listed = []
            self._continues = announces_continuation(self._entry_of_model(listed))
        return self._continues

    def _entry_of_model(self, listed: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the entry of the engine's model in the server's list of models; empty if there is none."""
        return next((entry for entry in listed if entry.get("id") == self._model), {})

    async def _fault_of(
        self, refusal: Refusal, sent: Mapping[str, Any], broken: AgentKernelError | None
    ) -> EngineFault:
        """Return the fault for a refusal of ``sent``. Raises InvalidRequest if the server refuses a field that must not
        be left out, unless that field continues an answer that has broken off with the error ``broken``."""
        host = self._endpoint.host
        needed = self._dialect.find_needed(refusal, sent)
        if broken is None:
            refuse_fields(needed, host, refusal.words)
        elif CONTINUE in needed:
            self._continues = False
        if refusal.no_model:
            try:
                served = await self.models()
            except AgentKernelError:
                served = []
            return EngineFault(unknown_model(self._model, self._endpoint.host, served), may_retry=False)
        return refusal.fault(self._endpoint, self._model)

    async def _complete_configuration(self) -> None:
        """Ask the server for the model and its context length if they are not configured. The server is asked only
        once."""
        async with self._asking:
            if self._asked or (self._model and self._context_length):
                return
            try:
                listed = await self._connection.models()
            except (EngineFault, RequestRefused, AgentKernelError) as problem:
                if self._model:  # the model is known; if the server has a problem, the request reports it
                    self._asked = isinstance(problem, RequestRefused)
                    return
                raise self._listing_error(problem) from None
            self._asked = True
            names = [str(entry.get("id")) for entry in listed]
            if not self._model:
                if len(names) != 1:
                    raise unknown_model("", self._endpoint.host, names)
                self._model = names[0]
            listed_model = self._entry_of_model(listed)
            self._continues = self._endpoint.continues or announces_continuation(listed_model)
            lengths = [length for name in LENGTHS if isinstance(length := listed_model.get(name), int) and length > 0]
            self._context_length = self._context_length or next(iter(lengths), 0)

    def _listing_error(self, problem: EngineFault | RequestRefused | AgentKernelError) -> AgentKernelError:
        """Return the error to raise when the request for the list of models has failed with ``problem``."""
        if isinstance(problem, RequestRefused):
            return problem.refusal.fault(self._endpoint, self._model).error
        return problem.error if isinstance(problem, EngineFault) else problem

    def _closing(self, request: EngineRequest, answer: ResponseBuilder) -> list[Chunk]:
        """Return the chunks that are known only when the answer has ended, such as its calls. Raises EngineError if the
        text is not in the requested format."""
        calls: list[Chunk] = [CallChunk(call) for call in answer.calls()]
        if cut := answer.cut_call:
            return [TextChunk(f"\n```\n{cut}\n```\n")]
        if request.output is not None and not calls and answer.reason == "stop":
            _check_form(request.output, "".join(answer.text), self._endpoint.host)
        return calls


def _check_form(output: OutputFormat, text: str, host: str) -> None:
    """Raise EngineError if the text does not have the requested format, since servers silently ignore formats that they
    do not support. A regex is not checked, because matching a hostile one could take forever."""
    if output.kind == "choice":
        is_kept = text.strip() in output.choice
    elif output.kind in ("json_object", "json_schema"):
        try:
            is_kept = isinstance(json.loads(text), dict) or output.kind == "json_schema"
        except (ValueError, RecursionError):
            is_kept = False
    else:
        return
    if not is_kept:
        raise EngineError(
            f"The answer of {host} does not have the requested format ({output.kind}).",
            hint="Many servers ignore the format. To see what this server lacks: agent-kernel doctor --model",
        )
