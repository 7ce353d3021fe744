"""Text in, text out: prompts become token ids with as long a known prefix as there is, and tokens become text."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from agent_kernel.engines.local.backend import Backend, ChatMessage, Decoding, Grammar, Loaded, Picture, Piece
from agent_kernel.engines.local.decoder import Decoder
from agent_kernel.engines.local.prefix import CachedBlocks, Chains
from agent_kernel.engines.local.text_stream import TextStream
from agent_kernel.errors import AgentKernelError, ContextOverflow, EngineError
from agent_kernel.messages import Usage
from agent_kernel.protocols import Sampling, TextChunk, TokenLogprob

Decode: TypeAlias = Callable[[Sequence[int]], str]
MAX_TOKENS = 1024
"""Of an answer for which nobody named a limit."""


@dataclass(slots=True)
class Completion:
    """One decode, in progress and when done. ``pictures`` fill the places that ``prompt`` has for them, in order.
    ``finish``: stop or length; ``logprobs`` are those of ``ids``, if they were asked for."""

    prompt: str
    pictures: Sequence[Picture] = ()
    started: float = field(default_factory=time.monotonic)
    ids: list[int] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    stopped: str = ""
    logprobs: list[float] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)


class Completer:
    """Decodes prompts on one loaded model and remembers their ids. ``context_length`` 0: no limit is known."""

    def __init__(self, decoder: Decoder, backend: Backend, loaded: Loaded, context_length: int) -> None:
        self._decoder = decoder
        self._backend = backend
        self._context_length = context_length
        self._chains = Chains()
        self._marks: dict[str, int | None] = {}
        self._blocks = CachedBlocks(loaded.block, loaded.blocks)

    async def render(self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Raises EngineError when the chat template refuses the conversation."""
        try:
            return await self._decoder.call(lambda: self._backend.render(messages, tools))
        except AgentKernelError:
            raise
        except Exception as error:  # templates are programs of strangers: they raise what they like
            raise EngineError(f"The model's chat template refuses this conversation: {error}") from error

    async def stream(
        self,
        completion: Completion,
        decoding: Decoding,
        *,
        forced: str = "",
        stop: Sequence[str] = (),
        keep_stop: bool = False,
        closing: str = "",
        marks: Sequence[str] = (),
    ) -> AsyncGenerator[TextChunk, None]:
        """Text deltas; ``completion`` tells the rest. ``forced`` is the beginning of the answer, given to the model.
        ``keep_stop``: the stop string will stand in the history after the text; so will ``closing`` after an answer
        that ended by itself. ``marks`` are read even where they are special tokens. Raises ContextOverflow."""
        prompt = completion.prompt
        decode = await self._decoding_with(marks)
        ids = await self._decoder.call(lambda: self._prompt_ids(completion) + self._backend.encode(forced))
        decoding = replace(decoding, max_tokens=self._room(len(ids), decoding.max_tokens))
        reused = self._blocks.reused(ids)
        self._blocks.add(ids)
        text = TextStream(decode, stop)
        told = 0
        completion.usage = Usage(prompt_tokens=len(ids), reused_tokens=reused)
        try:
            async with aclosing(self._decoder.generate(ids, decoding, completion.pictures)) as pieces:
                async for piece in pieces:
                    self._count(completion, piece)
                    delta = text.push(piece.ids) + (text.finish() if piece.finish else "")
                    completion.text, completion.stopped = text.text, text.stopped
                    if delta:
                        yield TextChunk(delta, self._logprobs(completion, told))
                        told = len(completion.logprobs)
                    if text.stopped:
                        completion.finish = "stop"
                        return
        finally:
            seconds = time.monotonic() - completion.started
            first = completion.usage.first_token_s
            completion.usage = replace(completion.usage, seconds=seconds, decode_s=seconds - first if first else 0.0)
            # The last token was sampled but never run, so it is in no block.
            self._blocks.add([*ids, *completion.ids[:-1]])
            after = completion.stopped if keep_stop else closing if completion.finish == "stop" else ""
            self._remember(prompt + forced, ids, completion, after, decode)

    async def usage(self) -> Mapping[str, float]:
        """What the backend tells of its cache now."""
        return await self._decoder.call(self._backend.usage)

    async def first_token(self, prompt: str, regex: str | None = None) -> Completion:
        """One greedy token and its log probability before ``regex`` masked anything."""
        completion = Completion(prompt)
        grammar = Grammar("regex", regex) if regex is not None else None
        decoding = Decoding(max_tokens=1, grammar=grammar, logprob=True)
        async with aclosing(self.stream(completion, decoding)) as deltas:
            async for _ in deltas:
                pass
        return completion

    def _prompt_ids(self, completion: Completion) -> list[int]:
        if completion.pictures:
            return self._backend.encode_pictures(completion.prompt, completion.pictures)
        return self._encode(completion.prompt)

    def _logprobs(self, completion: Completion, told: int) -> tuple[TokenLogprob, ...]:
        new = zip(completion.ids[told:], completion.logprobs[told:], strict=False)
        return tuple(TokenLogprob(self._backend.decode([token]), logprob) for token, logprob in new)

    def _encode(self, text: str) -> list[int]:
        known, ids = self._chains.longest(text)
        rest = self._backend.encode(text[len(known) :])
        # A text that goes on without a special token in between may be one token with what was before it.
        if known and rest and self._backend.decode(rest[:1]):
            return self._backend.encode(text)
        return ids + rest

    def _room(self, prompt: int, wanted: int) -> int:
        length = self._context_length
        if length and prompt + 1 > length:
            raise ContextOverflow(
                # The tokenizer cuts at the model's length, so it may be more.
                f"The conversation has {prompt} tokens or more; this model holds {length} with the answer.",
                hint="Start another session (%agent new) or choose a model with a longer context.",
                details={"prompt_tokens": prompt, "context_length": length},
            )
        return min(wanted, length - prompt) if length else wanted

    def _count(self, completion: Completion, piece: Piece) -> None:
        if piece.finish == "refused":
            raise EngineError(
                "The model's cache is full: the running requests leave no room for this one.",
                hint="Wait for the others, or shorten the conversation.",
            )
        if not completion.ids:
            first = time.monotonic() - completion.started
            reused = completion.usage.reused_tokens if piece.reused is None else piece.reused
            completion.usage = replace(completion.usage, first_token_s=first, reused_tokens=reused)
        completion.ids.extend(piece.ids)
        completion.logprobs.extend(piece.logprobs)
        completion.finish = piece.finish
        completion.usage = replace(completion.usage, completion_tokens=len(completion.ids))

    def _remember(self, prompt: str, ids: Sequence[int], completion: Completion, after: str, decode: Decode) -> None:
        """The chain ends where the answer's text ends; a token that carries more than that is encoded again."""
        wanted = completion.text + after
        if not wanted or not completion.finish or completion.pictures:
            return
        kept = list(completion.ids)
        while kept and not wanted.startswith(decode(kept)):
            kept.pop()
        rest = self._backend.encode(wanted[len(decode(kept)) :])
        self._chains.add(prompt + wanted, [*ids, *kept, *rest])

    async def _decoding_with(self, marks: Sequence[str]) -> Decode:
        """The backend's ``decode``, in which those of ``marks`` that are special tokens stand as text."""
        if unknown := [mark for mark in marks if mark not in self._marks]:
            self._marks |= await self._decoder.call(lambda: {mark: self._special(mark) for mark in unknown})
        special = {token: mark for mark in marks if (token := self._marks[mark]) is not None}
        return functools.partial(_decoded, self._backend.decode, special) if special else self._backend.decode

    def _special(self, mark: str) -> int | None:
        ids = self._backend.encode(mark)
        return ids[0] if len(ids) == 1 and not self._backend.decode(ids) else None


def _decoded(decode: Decode, special: Mapping[int, str], ids: Sequence[int]) -> str:
    text, start = "", 0
    for at, token in enumerate(ids):
        if token in special:
            text += decode(ids[start:at]) + special[token]
            start = at + 1
    return text + decode(ids[start:])


def decoding_of(sampling: Sampling) -> Decoding:
    """Greedy unless the request says otherwise: small models write their best code so."""
    return Decoding(
        max_tokens=sampling.max_tokens or MAX_TOKENS,
        temperature=sampling.temperature or 0.0,
        top_p=1.0 if sampling.top_p is None else sampling.top_p,
        top_k=sampling.top_k or 0,
        min_p=sampling.min_p or 0.0,
        repetition_penalty=sampling.repetition_penalty or 1.0,
        seed=sampling.seed,
        logprob=sampling.logprobs,
    )
