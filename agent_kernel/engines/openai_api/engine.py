"""Implements the engine for a model on an OpenAI-compatible server, such as vLLM, Ray Serve, SGLang, llama-server,
Ollama, transformers serve and OpenAI."""

from __future__ import annotations

import asyncio
import json
import re
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
from agent_kernel.engines.openai_api.api_keys import key_of, scrub
from agent_kernel.engines.openai_api.endpoint import Endpoint
from agent_kernel.engines.openai_api.endpoint_client import EndpointConnection, RequestRefused
from agent_kernel.engines.openai_api.error_mapping import Refusal, stream_fault, unknown_model
from agent_kernel.engines.openai_api.request import affinity_of, encode
from agent_kernel.engines.openai_api.response_builder import ResponseBuilder, estimate_tokens
from agent_kernel.engines.openai_api.retry import EngineFault, Retries
from agent_kernel.engines.openai_api.token_timeouts import TokenTimeouts

LENGTHS = ("max_model_len", "context_length", "context_window")
"""Names of the field with the context length in a server's list of models: the first is that of vLLM and SGLang, the
second that of LM Studio and OpenRouter, the third that of Groq."""
OPTIONAL = (
    "stream_options",
    "parallel_tool_calls",
    "repetition_penalty",
    "max_tokens",
    "logprobs",
    "top_k",
    "min_p",
    "top_p",
    "temperature",
    "seed",
    "prompt_cache_key",
)
"""Fields that may be left out if the server refuses them, because the answer still fits the request. Other fields, such
as tools, tool_choice, stop and the format, may not: the answer would not fit."""
NEEDED = (
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "top_logprobs",
    "reasoning_effort",
    "structured_outputs",
    "response_format",
)
"""Fields that are never left out: if the server refuses one of them, the request fails with an error that names it."""
UNKNOWN = re.compile(
    r"unexpected|unknown|unrecogni[sz]ed|unsupported|not (supported|permitted|allowed)|n't support|not support|extra"
    r"|additional|only the default",
    re.IGNORECASE,
)
RENAMED = {"max_tokens": "max_completion_tokens"}
"""Maps old to new names of fields. OpenAI's reasoning models accept only the new name, most other servers only the old
one."""


@dataclass(slots=True)
class RequestClock:
    """The times at which one request was sent (``started``) and its first token arrived (``first``), in seconds of the
    monotonic clock. Until the token arrives, ``first`` is 0."""

    started: float
    first: float = 0.0

    def usage(self, answer: ResponseBuilder, prompt_characters: int) -> Usage:
        """Return the usage of a finished request: its times, and the token counts that the server reports. If it
        reports none, they are estimates and labelled as such. ``prompt_characters`` is the length of the prompt."""
        now = time.monotonic()
        counted = answer.prompt_tokens is not None and answer.completion_tokens is not None
        prompt = estimate_tokens(prompt_characters) if answer.prompt_tokens is None else answer.prompt_tokens
        completion = estimate_tokens(answer.growing) if answer.completion_tokens is None else answer.completion_tokens
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=completion,
            reused_tokens=answer.reused_tokens,
            first_token_s=self.first - self.started if self.first else 0.0,
            seconds=now - self.started,
            decode_s=now - self.first if self.first else 0.0,
            estimated=not counted,
        )


class OpenAIEngine:
    """The engine for one model of a server. ``stream`` raises InvalidRequest, EngineUnreachable, UnknownModel,
    ContextOverflow and EngineError.

    A request is sent again only if no token of its answer has arrived. An answer that breaks off later is an error, so
    that the beginning of an answer is never shown twice and no tool call runs twice. Fields that the server refuses are
    left out of later requests; ``info().details`` lists them.
    """

    def __init__(self, endpoint: Endpoint, name: str = "") -> None:
        self._endpoint = endpoint
        self._name = name
        self._connection = EndpointConnection(endpoint)
        self._dialect = ServerQuirks()
        self._model = endpoint.model
        self._context_length = endpoint.context_length
        self._asked = False
        self._asking = asyncio.Lock()

    def __repr__(self) -> str:
        return f"OpenAIEngine({self._endpoint.url!r}, {self._model!r})"

    def info(self) -> EngineInfo:
        endpoint = self._endpoint
        details = {"url": endpoint.url, "name": self._name, "not_sent": self._dialect.refused}
        model = self._model or endpoint.host
        return EngineInfo(
            model, endpoint.local, self._context_length, endpoint.vision, "ready", details, host=endpoint.host
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
        affinity = affinity_of(request, self._endpoint.url)
        body = encode(request, self._model, vision=self._endpoint.vision, extra=self._endpoint.extra, affinity=affinity)
        timeouts = TokenTimeouts(self._endpoint.host, self._endpoint.first_token_s, self._endpoint.between_tokens_s)
        async with aclosing(self._events(body, timeouts, affinity, answer)) as events:
            async for event in events:
                if isinstance(event, WaitChunk):
                    yield event
                    continue
                before = answer.growing
                chunks = answer.add(event)
                if answer.growing > before:
                    timeouts.restart_between_tokens()
                    clock.first = clock.first or time.monotonic()
                for chunk in chunks:
                    yield chunk
        for chunk in self._closing(request, answer):
            yield chunk
        usage = clock.usage(answer, len(json.dumps([body["messages"], body.get("tools")])))
        yield EndChunk(answer.reason, usage, answer.stopped)

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

    async def _events(
        self, body: Mapping[str, Any], timeouts: TokenTimeouts, affinity: str, answer: ResponseBuilder
    ) -> AsyncGenerator[WaitChunk | Mapping[str, Any], None]:
        """Yield the objects of one answer, which the caller adds to ``answer``. If the request must be sent again,
        yield a WaitChunk with the reason first. It is not sent again once ``answer`` has begun; an object without a
        token, which servers send as soon as they accept a request, does not begin it."""
        retries = Retries(self._endpoint.tries)
        while True:
            sent = self._dialect.adapt(body)
            timeouts.restart()
            try:
                async with aclosing(self._connection.events(sent, timeouts, affinity)) as events:
                    async for event in events:
                        if problem := event.get("error"):
                            raise stream_fault(problem, self._endpoint)
                        yield event
                if answer.has_begun:
                    return
                fault = EngineFault(
                    EngineError(f"{self._endpoint.host} sent an empty answer.", hint="Ask again."), may_retry=True
                )
            except RequestRefused as refused:
                if fields := self._dialect.learn(refused.refusal, sent):
                    yield WaitChunk(
                        f"asking again without {', '.join(fields)}, which {self._endpoint.host} does not accept"
                    )
                    continue
                refuse_fields(
                    self._dialect.find_needed(refused.refusal, sent), self._endpoint.host, refused.refusal.words
                )
                fault = await self._fault_of(refused.refusal)
            except EngineFault as failed:
                fault = failed
            pause = None if answer.has_begun else retries.pause(fault)
            if pause is None:
                raise self._final_error(fault.error, answer.has_begun) from None
            yield WaitChunk(f"{fault.error.message} Trying again in {pause:.1f} s")
            await asyncio.sleep(pause)

    def _final_error(self, error: AgentKernelError, begun: bool) -> AgentKernelError:
        if isinstance(error, ContextOverflow):
            self._context_length = int(error.details.get("context_length", 0)) or self._context_length
        if not begun or not isinstance(error, EngineUnreachable):
            return error
        return EngineError(
            f"The connection to {self._endpoint.host} was lost in the middle of the answer.",
            hint="Ask again.",
            details=error.details,
        )

    async def _fault_of(self, refusal: Refusal) -> EngineFault:
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
            listed_model = next((entry for entry in listed if entry.get("id") == self._model), {})
            lengths = [length for name in LENGTHS if isinstance(length := listed_model.get(name), int) and length > 0]
            self._context_length = self._context_length or next(iter(lengths), 0)

    def _listing_error(self, problem: EngineFault | RequestRefused | AgentKernelError) -> AgentKernelError:
        """Return the error to raise when the request for the list of models has failed with ``problem``."""
        if isinstance(problem, RequestRefused):
            return problem.refusal.fault(self._endpoint, self._model).error
        return problem.error if isinstance(problem, EngineFault) else problem

    def _closing(self, request: EngineRequest, answer: ResponseBuilder) -> list[Chunk]:
        """Return the chunks that are known only when the answer has ended, such as its calls. Raises EngineError if the
        server did not end the answer, or if the text is not in the requested format."""
        if not answer.finished:
            raise EngineError(f"{self._endpoint.host} ended its answer in the middle.", hint="Ask again.")
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


# Remembers which fields a server has refused, so that they are not sent to it again.


class ServerQuirks:
    """The features that one server does not support, remembered for the lifetime of its engine."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    @property
    def refused(self) -> list[str]:
        return sorted(self._refused)

    def adapt(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``body`` without the fields that the server has refused. A refused field that has a new name is sent
        under that name."""
        sent = {name: value for name, value in body.items() if name not in self._refused}
        for old, new in RENAMED.items():
            if old in self._refused and old in body and new not in self._refused:
                sent[new] = body[old]
        return sent

    def find_needed(self, refusal: Refusal, sent: Mapping[str, Any]) -> list[str]:
        """Return the names of the fields of ``sent`` that ``refusal`` refuses and that must not be left out."""
        if refusal.status not in (400, 422):
            return []
        return _find_named([name for name in NEEDED if name in sent], refusal)

    def learn(self, refusal: Refusal, sent: Mapping[str, Any]) -> list[str]:
        """Return the names of the fields of ``sent`` that ``refusal`` refuses and that can be left out, and remember
        them. A field whose value is only out of range does not count as refused."""
        if refusal.status not in (400, 422) or not UNKNOWN.search(refusal.words):
            return []
        candidates = [name for name in (*OPTIONAL, *RENAMED.values()) if name in sent]
        fields = _find_named(candidates, refusal)
        self._refused.update(fields)
        return fields


def _find_named(candidates: Sequence[str], refusal: Refusal) -> list[str]:
    fields = [name for name in candidates if refusal.param.split(".")[0] == name]
    # The full name is compared, because a server that refuses max_tokens may recommend max_completion_tokens in the
    # same message.
    return fields or [name for name in candidates if re.search(rf"\b{name}\b", refusal.words)]
