"""Generates text from prompts. A prompt is encoded from the longest prefix whose token ids are known, and generated
tokens are converted to text."""

from __future__ import annotations

import copy
import functools
import math
import sys
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from agent_kernel.core.errors import AgentKernelError, ContextOverflow, EngineError, InvalidRequest
from agent_kernel.core.messages import Usage
from agent_kernel.core.protocols import Sampling, TextChunk, TokenLogprob
from agent_kernel.engines.local.backend import (
    Backend,
    ChatMessage,
    DecodingOptions,
    LoadedModel,
    OutputGrammar,
    Picture,
    StepOutput,
)
from agent_kernel.engines.local.decoding.decoder import Decoder
from agent_kernel.engines.local.decoding.known_prefixes import CachedBlocks, RunningPrompts, TokenChains
from agent_kernel.engines.local.decoding.request_queue import Admission, Tell
from agent_kernel.engines.local.decoding.text_stream import TextStream
from agent_kernel.engines.local.media.prompt_media import replace_marks

Decode: TypeAlias = Callable[[Sequence[int]], str]
NO_PICTURES: Mapping[str, Picture] = MappingProxyType({})
MAX_TOKENS = 1024
"""Token limit of an answer whose request sets no limit."""
SMALLEST = 1e-6
RANGES = (
    ("temperature", 0.0, 100.0),
    ("top_p", 0.0, 1.0),
    ("top_k", 0, 2**31 - 1),
    ("min_p", 0.0, 1.0),
    ("repetition_penalty", 0.01, 100.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("max_tokens", 1, 2**31 - 1),
)


class Logprobs:
    """Holds the tokens whose text has not been sent yet, each with the position at which its text ends."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()

    def add(self, text: str, end: int, logprob: float) -> None:
        """Add a token. ``text`` is the text that the token completed, ``end`` the position in the answer at which this
        text ends. If several tokens form one character, ``text`` is empty for all but the last of them."""
        self._waiting.append((end, TokenLogprob(text, logprob)))

    def due(self, length: int) -> tuple[TokenLogprob, ...]:
        """Return the tokens whose text lies within the first ``length`` characters of the answer. Each token is
        returned by one call only."""
        due = []
        while self._waiting and self._waiting[0][0] <= length:
            due.append(self._waiting.popleft()[1])
        return tuple(due)


@dataclass(slots=True)
class DecodedCompletion:
    """One completion, while it is decoded and afterwards. ``pictures`` fill the placeholders of ``prompt`` in order. If
    they are not given, ``Completer.stream`` finds them: the completer knows the pictures of each prompt that it has
    rendered.

    ``ids`` and ``text`` are the answer so far. ``finish`` is ``stop`` or ``length``; ``stopped`` is the stop string
    that ended the answer, if one did. ``logprobs`` has the log probability of each id, if requested.
    """

    prompt: str
    pictures: Sequence[Picture] = ()
    started: float = field(default_factory=time.monotonic)
    ids: list[int] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    stopped: str = ""
    logprobs: list[float] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)

    def stopped_by(self, stops: Sequence[str]) -> str:
        """Return the stop string among ``stops`` that ended the answer; empty if none of them did."""
        return self.stopped if self.stopped in stops else ""


class Completer:
    """Decodes prompts on one loaded model and remembers their token ids. ``context_length`` is in tokens; 0 means that
    no limit is known."""

    def __init__(self, decoder: Decoder, backend: Backend, loaded: LoadedModel, context_length: int) -> None:
        self._decoder = decoder
        self._backend = backend
        self._context_length = context_length
        self._chains = TokenChains()
        self._marks: dict[str, int | None] = {}
        self._block = loaded.block
        self._blocks = CachedBlocks(loaded.block, loaded.blocks)
        self._prompts = RunningPrompts(self._blocks)
        self._cache_tokens = loaded.cache_tokens or loaded.block * loaded.blocks
        self._room = Admission(self._cache_tokens // max(1, loaded.block) or sys.maxsize)
        self._session = ""
        self._tell: Tell = _ignore_position
        self._known = NO_PICTURES
        self._rendered: dict[str, tuple[Picture, ...]] = {}

    def for_request(self, session: str, tell: Tell, pictures: Mapping[str, Picture] = NO_PICTURES) -> Completer:
        """Return a copy of this completer for one request of ``session``. The copy calls ``tell`` with the request's
        queue position while the request waits for room in the cache. ``pictures`` are the request's pictures by hash.
        The texts of its messages refer to each picture by its hash (``prompt_media.MARK``)."""
        own = copy.copy(self)
        own._session, own._tell, own._known, own._rendered = session, tell, pictures, {}
        return own

    async def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Render the messages as a prompt. Raises EngineError if the chat template refuses the conversation."""
        chat, pictures = replace_marks(messages, self._known)
        try:
            prompt = await self._decoder.call(lambda: self._backend.render(chat, tools))
        except AgentKernelError:
            raise
        except Exception as error:  # a template may raise anything
            raise EngineError(f"The model's chat template refuses this conversation: {error}") from error
        if pictures:
            self._rendered[prompt] = pictures
        return prompt

    async def stream(
        self,
        completion: DecodedCompletion,
        decoding: DecodingOptions,
        *,
        forced: str = "",
        stop: Sequence[str] = (),
        keep_stop: bool = False,
        closing: str = "",
        marks: Sequence[str] = (),
        remember: bool = True,
    ) -> AsyncGenerator[TextChunk, None]:
        """Yield the deltas of the answer's text; ``completion`` receives everything else. ``forced`` is the beginning
        of the answer: the model continues it, and it is not in the deltas. ``marks`` are texts that the deltas contain
        even if they are special tokens of the vocabulary. Raises ContextOverflow.

        If ``remember`` is True, the ids of prompt and answer are stored for later prompts. With ``keep_stop``, later
        prompts are expected to contain the stop string after the answer. If the answer ended by itself, they are
        expected to contain ``closing`` after it.
        """
        prompt = completion.prompt
        completion.pictures = completion.pictures or self._pictures_in(prompt)
        decode = await self._decoding_with(marks)
        ids = await self._decoder.call(lambda: self._encode_prompt(completion) + self._backend.encode(forced))
        decoding = replace(decoding, max_tokens=self._limit_tokens(len(ids), decoding.max_tokens))
        text = TextStream(decode, stop)
        completion.usage = Usage(prompt_tokens=len(ids))
        room = self._room.place(self._session, self._tell, self._size(len(ids) + decoding.max_tokens))
        try:
            async with room, aclosing(self._stream_text(ids, decoding, completion, text)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            seconds = time.monotonic() - completion.started
            first = completion.usage.first_token_s
            completion.usage = replace(completion.usage, seconds=seconds, decode_s=seconds - first if first else 0.0)
            after = completion.stopped if keep_stop else closing if completion.finish == "stop" else ""
            if remember:
                self._remember(prompt + forced, ids, completion, after, decode)

    async def _stream_text(
        self, ids: Sequence[int], decoding: DecodingOptions, completion: DecodedCompletion, text: TextStream
    ) -> AsyncGenerator[TextChunk, None]:
        logprobs = Logprobs()
        try:
            async with (
                self._prompts.computing(ids) as (reused, finish_prompt),
                aclosing(self._decoder.generate(ids, decoding, completion.pictures)) as pieces,
            ):
                completion.usage = replace(completion.usage, reused_tokens=reused)
                async for piece in pieces:
                    self._count(completion, piece)
                    finish_prompt()
                    delta = _push_tokens(piece, text, logprobs)
                    completion.text, completion.stopped = text.text, text.stopped
                    due = logprobs.due(len(text.text)) if delta or piece.finish or text.stopped else ()
                    if delta or due:
                        yield TextChunk(delta, due)
                    if text.stopped:
                        completion.finish = "stop"
                        return
        finally:
            if completion.ids:
                # The model has sampled the last token but never computed its state, so no block contains it.
                self._blocks.add([*ids, *completion.ids[:-1]])

    async def run(self, completion: DecodedCompletion, decoding: DecodingOptions, **options: Any) -> None:
        """Decode to the end without yielding deltas. ``options`` are the keyword arguments of ``stream``."""
        async with aclosing(self.stream(completion, decoding, **options)) as deltas:
            async for _ in deltas:
                pass

    async def usage(self) -> Mapping[str, float]:
        """Return the backend's figures about its cache, and three more: ``cache_tokens`` is the size of the cache in
        tokens, ``kept_chains`` the number of conversations whose ids are known, and ``waiting`` the number of requests
        that wait for room in the cache."""
        own = {"cache_tokens": self._cache_tokens, "kept_chains": len(self._chains), "waiting": self._room.waiting}
        return {**await self._decoder.call(self._backend.usage), **own}

    async def first_token(self, prompt: str, regex: str | None = None) -> DecodedCompletion:
        """Decode one token greedily, restricted by ``regex`` if it is given. Return the completion; its log probability
        was computed before the restriction was applied."""
        completion = DecodedCompletion(prompt)
        grammar = OutputGrammar("regex", regex) if regex is not None else None
        await self.run(completion, DecodingOptions(max_tokens=1, grammar=grammar, logprob=True))
        return completion

    async def has_special_tokens(self, marks: Sequence[str]) -> bool:
        """Return whether each of ``marks`` is one special token of the vocabulary."""
        await self._look_up(marks)
        return all(self._marks[mark] is not None for mark in marks)

    def _pictures_in(self, prompt: str) -> Sequence[Picture]:
        """Return the pictures of the longest prompt from ``render`` with which ``prompt`` begins; empty if there is
        none."""
        rendered = max((text for text in self._rendered if prompt.startswith(text)), key=len, default="")
        return self._rendered.get(rendered, ())

    def _encode_prompt(self, completion: DecodedCompletion) -> list[int]:
        text = completion.prompt
        if completion.pictures:
            return self._backend.encode_pictures(text, completion.pictures)
        known_text, ids = self._chains.longest(text)
        rest = self._backend.encode(text[len(known_text) :])
        # If no special token separates the known text from the rest, one token may cover the end of the first and the
        # beginning of the second.
        if known_text and rest and self._backend.decode(rest[:1]):
            return self._backend.encode(text)
        return ids + rest

    def _limit_tokens(self, prompt: int, max_tokens: int) -> int:
        """Return the maximum number of tokens of the answer: ``max_tokens``, or fewer so that ``prompt`` tokens and the
        answer fit into the model's context and into the cache. Raises ContextOverflow if there is no room for an
        answer."""
        context, cache = self._context_length or sys.maxsize, self._cache_tokens or sys.maxsize
        if prompt + 1 > context:
            raise ContextOverflow(
                # Clients recognize the phrases "prompt is too long" and "this model's maximum context length is".
                # The tokenizer of a model directory may cut the prompt at the model's length.
                f"The prompt is too long: it has {prompt} tokens or more, and this model's maximum context length is "
                f"{context} tokens, including the answer.",
                hint="Start another session, or choose a model with a longer context.",
                details={"prompt_tokens": prompt, "context_length": context},
            )
        if prompt + 1 > cache:
            raise ContextOverflow(
                f"The prompt is too long: it has {prompt} tokens, and the model's cache holds {cache}, including the "
                "answer.",
                hint="Start another session, or give the model a larger cache (cache_gb).",
                details={"prompt_tokens": prompt, "cache_tokens": cache},
            )
        return min(max_tokens, context - prompt, cache - prompt)

    def _size(self, tokens: int) -> int:
        """Return the number of cache blocks that a request with ``tokens`` tokens may need. It includes one extra
        block, because a shared last block is copied before it is written."""
        return min(self._room.capacity, math.ceil(tokens / self._block) + 1)

    def _count(self, completion: DecodedCompletion, piece: StepOutput) -> None:
        if piece.error:
            raise InvalidRequest(piece.error)
        if piece.finish == "refused":
            raise EngineError(
                "The model's cache is full: the running requests leave no room for this one.",
                hint="Wait until other requests have ended, or shorten the conversation.",
            )
        if not completion.ids:
            first = time.monotonic() - completion.started
            reused = completion.usage.reused_tokens if piece.reused is None else piece.reused
            completion.usage = replace(completion.usage, first_token_s=first, reused_tokens=reused)
        completion.ids.extend(piece.ids)
        completion.logprobs.extend(piece.logprobs)
        completion.finish = piece.finish
        completion.usage = replace(completion.usage, completion_tokens=len(completion.ids))

    def _remember(
        self, prompt: str, ids: Sequence[int], completion: DecodedCompletion, after: str, decode: Decode
    ) -> None:
        """Store the ids of the prompt and of the answer, followed by the text ``after``. If the text of the last token
        extends beyond the end of the answer, the end of the answer is encoded again."""
        expected_text = completion.text + after
        if not expected_text or not completion.finish or completion.pictures:
            return
        prefix = list(completion.ids)
        while prefix and not expected_text.startswith(decode(prefix)):
            prefix.pop()
        rest = self._backend.encode(expected_text[len(decode(prefix)) :])
        self._chains.add(prompt + expected_text, [*ids, *prefix, *rest])

    async def _decoding_with(self, marks: Sequence[str]) -> Decode:
        """Return a function like the backend's ``decode`` that also returns the text of those ``marks`` that are
        special tokens."""
        await self._look_up(marks)
        special = {token: mark for mark in marks if (token := self._marks[mark]) is not None}
        return functools.partial(_decode_with_marks, self._backend.decode, special) if special else self._backend.decode

    async def _look_up(self, marks: Sequence[str]) -> None:
        """Store in ``_marks`` which of ``marks`` are special tokens."""
        if unknown := [mark for mark in marks if mark not in self._marks]:
            self._marks |= await self._decoder.call(lambda: {mark: self._special(mark) for mark in unknown})

    def _special(self, mark: str) -> int | None:
        ids = self._backend.encode(mark)
        return ids[0] if len(ids) == 1 and not self._backend.decode(ids) else None


def _ignore_position(position: int) -> None:
    """Do nothing. Used as ``tell`` for a request that does not report its queue position."""


def _push_tokens(piece: StepOutput, text: TextStream, logprobs: Logprobs) -> str:
    delta = ""
    for at, token in enumerate(piece.ids):
        before = len(text.seen)
        delta += text.push([token])
        if text.stopped:
            return delta
        if piece.logprobs:
            logprobs.add(text.seen[before:], len(text.seen), piece.logprobs[at])
    return delta + (text.finish() if piece.finish else "")


def _decode_with_marks(decode: Decode, special: Mapping[int, str], ids: Sequence[int]) -> str:
    text, start = "", 0
    for at, token in enumerate(ids):
        if token in special:
            text += decode(ids[start:at]) + special[token]
            start = at + 1
    return text + decode(ids[start:])


def decoding_options(sampling: Sampling) -> DecodingOptions:
    """Convert sampling options. Without a temperature, decoding is greedy, since small models write their best code
    that way. Raises InvalidRequest for values out of range."""
    for name, low, high in RANGES:
        value = getattr(sampling, name)
        if value is not None and not low <= value <= high:
            raise InvalidRequest(f"{name} must be between {low:g} and {high:g}, not {value!r}.")
    return DecodingOptions(
        max_tokens=sampling.max_tokens or MAX_TOKENS,
        temperature=sampling.temperature or 0.0,
        # The backend does not accept 0 for top_p or 1 for min_p, because no token would be left.
        top_p=1.0 if sampling.top_p is None else max(sampling.top_p, SMALLEST),
        top_k=sampling.top_k or 0,
        min_p=min(sampling.min_p or 0.0, 1.0 - SMALLEST),
        repetition_penalty=sampling.repetition_penalty or 1.0,
        presence_penalty=sampling.presence_penalty or 0.0,
        frequency_penalty=sampling.frequency_penalty or 0.0,
        logit_bias=sampling.logit_bias,
        seed=sampling.seed,
        logprob=sampling.logprobs,
    )
