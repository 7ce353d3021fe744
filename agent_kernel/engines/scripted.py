"""Implements an engine that plays a script. The texts, calls, delays and faults are the same every time.

It serves tests, demonstrations without a model, and benchmarks of everything except the model. A script is a list of
rounds; each model call plays one:

    {"text": "Hello", "deltas": 5, "delay": 0.02,     text in 5 pieces, 0.02 s before each
     "gate": "go",          the second half of the text waits until this file exists, in the folder of the script
     "reasoning": "Hm.",
     "calls": [{"name": "python", "arguments": {"code": "1 + 1"}}],
     "when": "word",        only if the last message of the user contains this
     "loop": true,          may be played again; others are played once
     "finish": "length",    the answer counts as cut at the token limit
     "fault": "crash" | "hang" | any other text = EngineError with it, raised after the text}
    {"infill": "len(values)", "when": "/ "}           completes code; "when" must be in the code before the cursor

Each model call plays the first round whose conditions the request meets. Calls are left out if the request has no tools
or its ``tool_choice`` is none. A text ends before the first stop sequence of the request. Each word counts as one
token. A request that continues an answer gets the rest of the round's text, without the reasoning.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from agent_kernel.core.errors import EngineCrashed, EngineError, InvalidRequest, refuse_fields
from agent_kernel.core.messages import Message, ToolCall, Usage, parse_arguments
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    EngineInfo,
    EngineRequest,
    ReasoningChunk,
    Sampling,
    TextChunk,
    TokenLogprob,
)
from agent_kernel.engines.local.infill import Filling, Gap

KEYS = frozenset({"text", "deltas", "delay", "gate", "reasoning", "calls", "when", "loop", "fault", "finish", "infill"})


MAX_SESSIONS = 1_000
"""Maximum number of sessions whose last prompt the engine knows, to count the tokens that the next one repeats."""
LOGPROB = -0.25
"""Log probability of every piece of text, if a request asks for log probabilities."""


class ScriptedEngine:
    """The engine that plays ``script``, which is a list of rounds or the path of a JSON file with such a list.
    ``max_recorded`` is the maximum number of requests that it records, the newest ones; None means all. Raises
    InvalidRequest."""

    def __init__(
        self,
        script: Sequence[Mapping[str, Any]] | Path,
        *,
        context_length: int = 32_768,
        vision: bool = False,
        batches: bool = False,
        max_recorded: int | None = None,
    ) -> None:
        self._rounds = _read(script)
        self._folder = script.parent if isinstance(script, Path) else Path()
        self._played: set[int] = set()
        self._vision = vision
        self._batches = batches
        self._context_length = context_length
        self._max_recorded = max_recorded
        self._seen: dict[str, list[str]] = {}
        self._calls = 0
        self.requests: list[EngineRequest] = []
        """The recorded requests, for tests that check what the model saw."""

    def info(self) -> EngineInfo:
        return EngineInfo(
            "scripted",
            True,
            self._context_length,
            vision=self._vision,
            state="ready",
            batches=self._batches,
            continues=True,
        )

    async def stream(self, request: EngineRequest) -> AsyncGenerator[Chunk, None]:
        started, beginning = time.monotonic(), request.beginning
        self._check(request)
        self.requests.append(request)
        if self._max_recorded is not None:
            del self.requests[: -self._max_recorded]
        script = self._next(_last_user_text(request.messages))
        first = 0.0
        if (reasoning := script.get("reasoning")) and not beginning:
            yield ReasoningChunk(reasoning)
        text, stopped = _cut(script.get("text", "").removeprefix(beginning), request.sampling.stop)
        pieces = _pieces(text, script.get("deltas", 1))
        for number, piece in enumerate(pieces):
            if "gate" in script and number == len(pieces) // 2:
                await _wait_for_file(self._folder / script["gate"])
            await asyncio.sleep(script.get("delay", 0))
            first = first or time.monotonic() - started
            yield TextChunk(piece, _probable(piece, request.sampling) if request.sampling.logprobs else ())
        await self._fault(script.get("fault", ""))
        can_call = request.tools and request.tool_choice != "none" and not stopped
        calls = script.get("calls", ()) if can_call else ()
        for call in calls:
            yield CallChunk(self._call(call))
        usage = self._usage(request, text, first, time.monotonic() - started)
        reason = "stop" if stopped else script.get("finish", "stop")
        yield EndChunk("calls" if calls else reason, usage, stopped)

    async def infill(self, gap: Gap) -> AsyncGenerator[Filling, None]:
        """Complete code with the first round for inline completion that fits. Such a round may be played again."""
        rounds = (entry for entry in self._rounds if "infill" in entry and entry.get("when", "") in gap.prefix)
        script = next(rounds, None)
        if script is None:
            yield Filling(silence="unsupported")
            return
        text = ""
        for piece in _pieces(script["infill"], script.get("deltas", 1)):
            await asyncio.sleep(script.get("delay", 0))
            text += piece
            yield Filling(gap.trim(text))

    async def aclose(self) -> None:
        """Do nothing, because the engine holds no resources."""

    def _check(self, request: EngineRequest) -> None:
        """Raise InvalidRequest for options that a script cannot fulfil. Sampling options that only change probabilities
        are accepted, since there is only one possible answer."""
        sampling, output = request.sampling, request.output
        fields = {
            "logit_bias": bool(sampling.logit_bias),
            "reasoning_effort": sampling.reasoning_effort not in (None, "none"),
            "grammar": output is not None and output.kind == "grammar",
            "continue_final_message": request.continues and (output is not None or bool(request.required_tools())),
        }
        refuse_fields([name for name, is_set in fields.items() if is_set], "the scripted engine")

    def _next(self, prompt: str) -> Mapping[str, Any]:
        for index, script in enumerate(self._rounds):
            if "infill" not in script and index not in self._played and script.get("when", "") in prompt:
                if not script.get("loop"):
                    self._played.add(index)
                return script
        raise EngineError("The script has no round left that fits this request.", hint="Add a round with loop: true.")

    async def _fault(self, fault: str) -> None:
        if fault == "hang":
            await asyncio.Event().wait()
        if fault == "crash":
            raise EngineCrashed("The model worker ended (scripted).", hint="Ask again: a new worker starts.")
        if fault:
            raise EngineError(fault)

    def _call(self, body: Mapping[str, Any]) -> ToolCall:
        self._calls += 1
        arguments = body.get("arguments", {})
        parsed = parse_arguments(arguments) if isinstance(arguments, str) else arguments
        return ToolCall(body.get("id") or f"call_{self._calls}_{os.urandom(4).hex()}", body["name"], parsed)

    def _usage(self, request: EngineRequest, text: str, first: float, seconds: float) -> Usage:
        words = [word for message in request.messages for word in [message.role, *message.text.split()]]
        before = self._seen.pop(request.session, [])
        reused = next(
            (i for i, (a, b) in enumerate(zip(words, before, strict=False)) if a != b), min(len(words), len(before))
        )
        if request.session:
            self._seen[request.session] = words
            if len(self._seen) > MAX_SESSIONS:
                del self._seen[next(iter(self._seen))]
        return Usage(len(words), len(text.split()), reused, first, seconds)


def _read(script: Sequence[Mapping[str, Any]] | Path) -> list[Mapping[str, Any]]:
    if isinstance(script, Path):
        try:
            script = json.loads(script.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"The script cannot be read: {error}.") from error
    if not isinstance(script, list | tuple) or not all(isinstance(entry, Mapping) for entry in script):
        raise InvalidRequest("A script must be a list of rounds, each an object.")
    for entry in script:
        if unknown := set(entry) - KEYS:
            raise InvalidRequest(f"A round cannot have {', '.join(sorted(unknown))}, only {', '.join(sorted(KEYS))}.")
    return list(script)


async def _wait_for_file(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240  another process makes it, and a look at it does not block
        await asyncio.sleep(0.02)


def _last_user_text(messages: Sequence[Message]) -> str:
    return next((message.text for message in reversed(messages) if message.role == "user"), "")


def _probable(piece: str, sampling: Sampling) -> tuple[TokenLogprob, ...]:
    """Return the log probability of a piece of text. If the request asks for alternatives, the piece is the only one,
    since a script has one answer."""
    return (TokenLogprob(piece, LOGPROB, ((piece, LOGPROB),) if sampling.top_logprobs else ()),)


def _cut(text: str, stops: Sequence[str]) -> tuple[str, str]:
    """Return the text before the first of the stop sequences, and that sequence. If the text contains none, return the
    whole text and an empty string."""
    first = min(((at, stop) for stop in stops if stop and (at := text.find(stop)) >= 0), default=None)
    return (text, "") if first is None else (text[: first[0]], first[1])


def _pieces(text: str, count: int) -> list[str]:
    """Split ``text`` into ``count`` pieces of nearly equal length; fewer if it is shorter."""
    count = max(1, min(count, len(text)))
    cuts = [len(text) * i // count for i in range(count + 1)]
    return [text[a:b] for a, b in pairwise(cuts) if a < b]
