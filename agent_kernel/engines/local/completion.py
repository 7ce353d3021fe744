"""Text in, text out: prompts become token ids with as long a known prefix as there is, and tokens become text."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from agent_kernel.engines.local.backend import Backend, ChatMessage, Decoding, Loaded, Piece
from agent_kernel.engines.local.decoder import Decoder
from agent_kernel.engines.local.prefix import CachedBlocks, Chains
from agent_kernel.engines.local.text_stream import TextStream
from agent_kernel.errors import ContextOverflow, EngineError
from agent_kernel.messages import Usage

MAX_TOKENS = 1024
"""Of an answer for which nobody named a limit."""


@dataclass(slots=True)
class Completion:
    """One decode, in progress and when done. ``finish``: stop or length; ``logprob`` is that of the first token."""

    prompt: str
    started: float = field(default_factory=time.monotonic)
    ids: list[int] = field(default_factory=list)
    text: str = ""
    finish: str = ""
    stopped: str = ""
    logprob: float | None = None
    usage: Usage = field(default_factory=Usage)


class Completer:
    """Decodes prompts on one loaded model and remembers their ids. ``context_length`` 0: no limit is known."""

    def __init__(self, decoder: Decoder, backend: Backend, loaded: Loaded, context_length: int) -> None:
        self._decoder = decoder
        self._backend = backend
        self._context_length = context_length
        self._chains = Chains()
        self._blocks = CachedBlocks(loaded.block, loaded.blocks)

    async def render(self, messages: Sequence[ChatMessage]) -> str:
        return await self._decoder.call(lambda: self._backend.render(messages))

    async def stream(
        self,
        prompt: str,
        decoding: Decoding,
        completion: Completion,
        *,
        forced: str = "",
        stop: Sequence[str] = (),
        keep_stop: bool = False,
    ) -> AsyncGenerator[str, None]:
        """Text deltas; ``completion`` tells the rest. ``forced`` is the beginning of the answer, given to the model.
        ``keep_stop``: the stop string will stand in the history after the text. Raises ContextOverflow."""
        ids = await self._decoder.call(lambda: self._encode(prompt) + self._backend.encode(forced))
        decoding = replace(decoding, max_tokens=self._room(len(ids), decoding.max_tokens))
        reused = self._blocks.reused(ids)
        self._blocks.add(ids)
        text = TextStream(self._backend.decode, stop)
        completion.usage = Usage(prompt_tokens=len(ids), reused_tokens=reused)
        try:
            async with aclosing(self._decoder.generate(ids, decoding)) as pieces:
                async for piece in pieces:
                    self._count(completion, piece)
                    delta = text.push(piece.ids) + (text.finish() if piece.finish else "")
                    completion.text, completion.stopped = text.text, text.stopped
                    if delta:
                        yield delta
                    if text.stopped:
                        completion.finish = "stop"
                        return
        finally:
            completion.usage = replace(completion.usage, seconds=time.monotonic() - completion.started)
            # The last token was sampled but never run, so it is in no block.
            self._blocks.add([*ids, *completion.ids[:-1]])
            self._remember(prompt + forced, ids, completion, keep_stop)

    async def first_token(self, prompt: str, regex: str | None = None) -> Completion:
        """One greedy token and its log probability before ``regex`` masked anything."""
        completion = Completion(prompt)
        decoding = Decoding(max_tokens=1, regex=regex, logprob=True)
        async with aclosing(self.stream(prompt, decoding, completion)) as deltas:
            async for _ in deltas:
                pass
        return completion

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
            completion.logprob = piece.logprob
            first = time.monotonic() - completion.started
            completion.usage = replace(completion.usage, first_token_s=first)
        completion.ids.extend(piece.ids)
        completion.finish = piece.finish
        completion.usage = replace(completion.usage, completion_tokens=len(completion.ids))

    def _remember(self, prompt: str, ids: Sequence[int], completion: Completion, keep_stop: bool) -> None:
        """The chain ends where the answer's text ends; a token that carries more than that is encoded again."""
        wanted = completion.text + (completion.stopped if keep_stop else "")
        if not wanted or not completion.finish:
            return
        kept = list(completion.ids)
        while kept and not wanted.startswith(self._backend.decode(kept)):
            kept.pop()
        rest = self._backend.encode(wanted[len(self._backend.decode(kept)) :])
        self._chains.add(prompt + wanted, [*ids, *kept, *rest])
