"""Tool calls as fenced code, for models too small to write JSON: the fence is the call, its content the code.

Whether to call is read off the model's first token: it calls when the fence is at most ``margin`` (natural log) less
likely than its best first token. Then the fence is forced and the code decoded until the fence closes. After a result
the model answers in text; a call that failed is tried once more without showing the failed code.

Only the tool named ``python`` is offered; others of a request are ignored.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_kernel.engines.local import fence_prompt
from agent_kernel.engines.local.backend import Grammar
from agent_kernel.engines.local.completion import Completer, Completion, decoding_of
from agent_kernel.messages import ToolCall, Usage
from agent_kernel.protocols import CallChunk, Chunk, EndChunk, EngineRequest, TextChunk

MARGIN = 4.0
"""With the worked examples, follow-up questions for code had margins up to 3.7 and most chat above 4.6; two of 24 chat
prompts were below (Qwen2.5-Coder-0.5B)."""
NAMED_MARGIN = 8.0
"""For a question that names a variable of the notebook (its facts come with it): without code, a small model answers it
from the one row it was shown."""
MAX_CODE_TOKENS = 512
RETRIES = 1
NO_IMPORT = r"(?:[^if\n][^\n]*|i(?:[^m\n][^\n]*)?|f(?:[^r\n][^\n]*)?)?"
CODE = rf"(?:{NO_IMPORT}\n)*{NO_IMPORT}"
"""Code without a line that begins with "im" or "fr": its names are imported already, and after an import line a small
model goes on with the tutorial it learned the line from, file names included. A retry after a
NameError is free to import."""


@dataclass(frozen=True, slots=True)
class Fence:
    margin: float = MARGIN
    named_margin: float = NAMED_MARGIN

    async def stream(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        """The chunks of one round, its EndChunk last."""
        offered = any(tool.name == fence_prompt.TOOL for tool in request.tools)
        _, turns = fence_prompt.exchanges(request.messages)
        result = turns[-1].awaiting if turns else None
        retry = offered and result is not None and result.status == "error" and turns[-1].failures <= RETRIES
        prompt = await completer.render(fence_prompt.chat(request.messages, tools=offered, retry=retry))
        spent = Usage()
        if offered and result is None:
            margin = self.named_margin if turns and turns[-1].names_variables else self.margin
            fits, spent = await self._calls(prompt, completer, margin)
        else:
            fits = retry
        regex = None if retry and result is not None and "Error: name " in result.text else CODE
        chunks = (
            self._code(prompt, request, completer, regex) if fits else self._text(prompt, request, completer, offered)
        )
        async with aclosing(chunks):
            async for chunk in chunks:
                yield replace(chunk, usage=_after(spent, chunk.usage)) if isinstance(chunk, EndChunk) else chunk

    async def _calls(self, prompt: str, completer: Completer, margin: float) -> tuple[bool, Usage]:
        """Whether the model would rather run code than answer, and what asking cost."""
        free = await completer.first_token(prompt)
        if free.text.startswith(fence_prompt.CLOSE):
            return True, free.usage
        bound = await completer.first_token(prompt, regex=fence_prompt.CLOSE)
        if not free.logprobs or not bound.logprobs:
            return False, free.usage
        return free.logprobs[0] - bound.logprobs[0] <= margin, free.usage

    async def _code(
        self, prompt: str, request: EngineRequest, completer: Completer, regex: str | None
    ) -> AsyncGenerator[Chunk, None]:
        completion = Completion(prompt)
        tokens = request.sampling.max_tokens or MAX_CODE_TOKENS
        grammar = Grammar("regex", regex) if regex is not None else None
        decoding = replace(decoding_of(request.sampling), max_tokens=tokens, grammar=grammar)
        deltas = completer.stream(
            completion, decoding, forced=fence_prompt.OPEN, stop=(fence_prompt.CLOSE,), keep_stop=True
        )
        async with aclosing(deltas):
            async for _ in deltas:
                pass
        if completion.finish == "length":  # half a program must not run; the person sees how far it came
            yield TextChunk(fence_prompt.code_block(completion.text))
            yield EndChunk("length", completion.usage)
            return
        yield CallChunk(ToolCall(f"call_{os.urandom(8).hex()}", fence_prompt.TOOL, {"code": completion.text}))
        yield EndChunk("calls", completion.usage)

    async def _text(
        self, prompt: str, request: EngineRequest, completer: Completer, offered: bool
    ) -> AsyncGenerator[Chunk, None]:
        completion = Completion(prompt)
        # With tools offered, text that opens a fence would be code that nobody runs.
        stop = (*request.sampling.stop, *((fence_prompt.CLOSE,) if offered else ()))
        decoding = decoding_of(request.sampling)
        async with aclosing(completer.stream(completion, decoding, stop=stop)) as deltas:
            async for delta in deltas:
                yield delta
        yield EndChunk(completion.finish, completion.usage)


def _after(spent: Usage, usage: Usage) -> Usage:
    """Usage of the decode as the person met it: the router's time counts, and so does what it found in the cache (the
    decode itself finds all of the prompt there). Its two tokens are not counted as written."""
    if not spent.prompt_tokens:
        return usage
    return replace(
        usage,
        reused_tokens=spent.reused_tokens,
        first_token_s=spent.seconds + usage.first_token_s,
        seconds=spent.seconds + usage.seconds,
    )
