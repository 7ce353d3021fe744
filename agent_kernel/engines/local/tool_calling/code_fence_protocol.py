"""The code-fence tool protocol, for models too small to write JSON: a fenced block is a call, and its content is the
code.

The first token decides whether the model calls: it does if the fence is at most ``margin`` (natural log) less likely
than the best first token. The fence is then forced, and the code decoded until the fence closes. After a result the
model answers in text; a failed call is tried once more without showing the failed code, and a program that failed is
not run again. Code for a question that names a file begins with the line that reads it. Two kinds of answer are written
without the model, because it is unreliable at them (``code_fence_fallback_answer.py``): that the last try failed, and
what several rows of output mean. In its own sentences, a month or weekday that the output does not have becomes the
number that the output has.

Only the tool named ``python`` is offered. Other tools of a request are called if ``tool_choice`` requires one
(``forced_call.py``); with ``auto`` the model does not see them.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from math import inf

from agent_kernel.core.messages import Message, Usage
from agent_kernel.core.protocols import CallChunk, Chunk, EndChunk, EngineRequest, TextChunk, ToolSpec
from agent_kernel.engines.local.backend import OutputGrammar
from agent_kernel.engines.local.decoding import reasoning
from agent_kernel.engines.local.decoding.completion import Completer, DecodedCompletion, decoding_options
from agent_kernel.engines.local.decoding.output_format import grammar_of, stream_formatted, with_format_instruction
from agent_kernel.engines.local.tool_calling import code_fence_fallback_answer, code_fence_prompt
from agent_kernel.engines.local.tool_calling.call_json import new_call
from agent_kernel.engines.local.tool_calling.forced_call import forced_call, must_call

MARGIN = 2.0
"""For a question without any reference to data. Of 34 first questions, 1 of 14 tasks was above it and 2 of 20 chats
were below; with 4 it was none and 6 (Qwen2.5-Coder-0.5B; tests/benchmarks/test_margin.py)."""
NAMED_MARGIN = 4.0
"""For a question that names a variable or a file, or follows a turn in which code ran. Without code, a small model
invents its answer or derives it from the one row that it was shown, which is worse than unnecessary code. Of 34
questions, no task of 20 was above it and 4 of 14 chats were below; fewer are below 2, but follow-up questions of the
quickstart are above 2."""
FILE_MARGIN = 12.0
"""For a question that names a file whose head the model is shown: anything beyond the head needs code."""
MAX_CODE_TOKENS = 512
LAST_WORD = re.compile(r"[^\W\d_]*$")
RETRIES = 1
RESAMPLES = 2
RESAMPLE_TEMPERATURE = 0.7
"""As in the samples of a vote (``turn.voting_engine``)."""
NO_IMPORT = r"(?:[^if\n][^\n]*|i(?:[^m\n][^\n]*)?|f(?:[^r\n][^\n]*)?)?"
CODE = rf"(?:{NO_IMPORT}\n)*{NO_IMPORT}"
"""Code without a line that begins with "im" or "fr": the usual names are already imported, and after an import line a
small model continues with the tutorial from which it learned the line, including its file names. A retry may import."""
NO_READING = r"(?:[^r]|r(?:r|er|ear|eadr)*(?:[^re]|e[^ra]|ea[^rd]|ead[^r_]))*(?:r(?:r|er|ear|eadr)*(?:e(?:ad?)?)?)?"
"""Code without "read_", for a retry about existing tables: it must not read a file in their place."""


@dataclass(frozen=True, slots=True)
class Fence:
    """``template`` is the model's chat template. If it supports reasoning, an empty reasoning block is inserted where
    code is possible, because the first token decides; without tools the model may reason, and its reasoning is
    separated from the answer."""

    margin: float = MARGIN
    named_margin: float = NAMED_MARGIN
    template: str = ""

    def stream(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        """Return the chunks of one round, EndChunk last. Raises InvalidRequest for a contradictory request. The chunks
        raise OutputInvalid."""
        forced = must_call(request)
        if request.output is not None:
            grammar_of(request.output, request.sampling.max_tokens)  # raises before anything is decoded
        if forced and not _has_python(forced):
            return forced_call(code_fence_prompt.chat(request.messages, tools=False), forced, request, completer)
        return self._round(request, completer, must=bool(forced))

    async def _round(self, request: EngineRequest, completer: Completer, *, must: bool) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of code or text; with ``must``, only code."""
        offered = request.tool_choice != "none" and _has_python(request.tools)
        _, turns = code_fence_prompt.exchanges(request.messages)
        result = turns[-1].awaiting if turns else None
        ran = result if result is not None and turns[-1].ran_python(result) else None
        retry = offered and ran is not None and ran.status == "error" and turns[-1].failures <= RETRIES
        rows = code_fence_fallback_answer.rows_of(ran.text) if ran is not None and ran.status == "success" else []
        free = not (must or retry or request.output)
        if (
            free
            and ran is not None
            and (plain := code_fence_fallback_answer.plain(turns[-1].results, rows, turns[-1].question))
        ):
            yield TextChunk(plain)
            yield EndChunk("stop", Usage())
            return
        chat = code_fence_prompt.chat(request.messages, tools=offered, retry=retry)
        prompt = await completer.render(chat)
        if offered or request.sampling.reasoning_effort == "none":
            prompt = reasoning.without_thinking(prompt, self.template)
        spent, fits = Usage(), must or retry
        reading = turns[-1].reading if turns and (result is None or retry) else ""
        if offered and result is None and not must:
            likely, spent = await code_margin(await self._choosing(request.messages, prompt, completer), completer)
            fits = likely <= self._margin(turns, reading)
        if fits:
            regex = _code_regex(turns[-1], retry=retry) if turns else CODE
            failed = turns[-1].failed_programs if retry else ()
            chunks = self._code(prompt, reading, request, completer, regex=regex, failed=failed)
        elif request.output is not None:
            shortened_prompt = reasoning.without_thinking(
                await completer.render(with_format_instruction(chat, request.output)), self.template
            )
            chunks = stream_formatted(shortened_prompt, request, completer)
        else:
            chunks = self._text(prompt, request, completer, offered)
            if rows:
                chunks = _sentence_or_rows(chunks, rows, turns[-1].question)
            elif ran is not None and ran.status == "success" and not request.sampling.logprobs:
                chunks = _with_true_dates(chunks, ran.text, turns[-1].question)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield replace(chunk, usage=_after(spent, chunk.usage)) if isinstance(chunk, EndChunk) else chunk

    async def _choosing(self, messages: Sequence[Message], prompt: str, completer: Completer) -> str:
        """Return the prompt whose first token decides between code and text."""
        fewer = code_fence_prompt.without_earlier(messages)
        if fewer is messages:
            return prompt
        rendered = await completer.render(code_fence_prompt.chat(fewer, tools=True))
        return reasoning.without_thinking(rendered, self.template)

    def _margin(self, turns: Sequence[code_fence_prompt.Exchange], reading: str) -> float:
        if reading:
            return max(FILE_MARGIN, self.named_margin)
        return self.named_margin if code_fence_prompt.leans_to_code(turns) else self.margin

    async def _code(
        self,
        prompt: str,
        reading: str,
        request: EngineRequest,
        completer: Completer,
        *,
        regex: str | None,
        failed: Sequence[str],
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one call, whose code begins with the lines of ``reading``. A program that is equal to one
        in ``failed`` is sampled again, at most RESAMPLES times."""
        tokens = request.sampling.max_tokens or MAX_CODE_TOKENS
        grammar = OutputGrammar("regex", regex) if regex is not None else None
        decoding = replace(decoding_options(request.sampling), max_tokens=tokens, grammar=grammar)
        forced = code_fence_prompt.OPEN + reading
        known = {_tree_of(program) for program in failed}
        spent = Usage()
        for seed in range(RESAMPLES + 1):
            completion = DecodedCompletion(prompt)
            await completer.run(completion, decoding, forced=forced, stop=(code_fence_prompt.CLOSE,), keep_stop=True)
            spent += completion.usage
            code = reading + _without_indent(completion.text)
            if completion.finish == "length" or _tree_of(code) not in known:
                break
            # A change of the seed alone has no effect on greedy decoding.
            decoding = replace(decoding, temperature=max(decoding.temperature, RESAMPLE_TEMPERATURE), seed=seed + 1)
        if completion.finish == "length":  # an incomplete program must not run, but the user sees it
            yield TextChunk(code_fence_prompt.code_block(code))
            yield EndChunk("length", spent)
            return
        yield CallChunk(new_call(code_fence_prompt.TOOL, {"code": code}))
        yield EndChunk("calls", spent)

    async def _text(
        self, prompt: str, request: EngineRequest, completer: Completer, offered: bool
    ) -> AsyncGenerator[Chunk, None]:
        completion = DecodedCompletion(prompt)
        # If tools are offered, a fence in text would be code that is not run.
        stop = (*request.sampling.stop, *((code_fence_prompt.CLOSE,) if offered else ()))
        decoding = decoding_options(request.sampling)
        deltas = completer.stream(completion, decoding, stop=stop, marks=reasoning.TAGS)
        async with aclosing(reasoning.split_reasoning(deltas, prompt)) as parts:
            async for part in parts:
                yield part
        yield EndChunk(completion.finish, completion.usage, completion.stopped_by(request.sampling.stop))


def _code_regex(turn: code_fence_prompt.Exchange, *, retry: bool) -> str | None:
    """Return the regular expression of the code that the model may write; None if it may write any."""
    if retry:
        return NO_READING if turn.has_its_tables else None
    return None if turn.repairs_a_cell else CODE


def _without_indent(code: str) -> str:
    """Return the code with its first line at the margin, where the first line of a program must stand. A small model
    sometimes begins the block with a blank."""
    code = textwrap.dedent(code)
    return code.lstrip(" \t") if code[:1] in (" ", "\t") else code


def _tree_of(code: str) -> str:
    """Return a text that is equal for programs that differ only in layout and comments: their syntax tree."""
    try:
        return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code.strip()


def _has_python(tools: Sequence[ToolSpec]) -> bool:
    return any(tool.name == code_fence_prompt.TOOL for tool in tools)


async def _sentence_or_rows(
    chunks: AsyncGenerator[Chunk, None], rows: Sequence[str], question: str
) -> AsyncGenerator[Chunk, None]:
    """Yield the model's sentence about the rows if it agrees with them, otherwise the rows themselves."""
    written: list[TextChunk] = []
    async with aclosing(chunks):
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                written.append(chunk)
                continue
            if isinstance(chunk, EndChunk):
                sentence = "".join(part.text for part in written)
                agrees = code_fence_fallback_answer.agrees(sentence, rows, question)
                for part in written if agrees else [TextChunk(code_fence_fallback_answer.in_rows(rows))]:
                    yield part
            yield chunk


async def _with_true_dates(
    chunks: AsyncGenerator[Chunk, None], output: str, question: str
) -> AsyncGenerator[Chunk, None]:
    """Yield the model's answer to one line of output, word by word, with the dates that the output supports."""
    held = ""
    async with aclosing(chunks):
        async for chunk in chunks:
            if isinstance(chunk, TextChunk):
                held += chunk.text
                words = LAST_WORD.sub("", held)
                held = held[len(words) :]
            else:
                words, held = held, ""
            if words:
                yield TextChunk(code_fence_fallback_answer.with_true_dates(words, output, question))
            if not isinstance(chunk, TextChunk):
                yield chunk


async def code_margin(prompt: str, completer: Completer) -> tuple[float, Usage]:
    """Return how much less likely (natural log) the fence is than the best first token, and the usage. 0 if the fence
    is the best one, infinite if the backend reports no probabilities."""
    free = await completer.first_token(prompt)
    if free.text.startswith(code_fence_prompt.CLOSE):
        return 0.0, free.usage
    bound = await completer.first_token(prompt, regex=code_fence_prompt.CLOSE)
    if not free.logprobs or not bound.logprobs:
        return inf, free.usage
    return free.logprobs[0] - bound.logprobs[0], free.usage


def _after(spent: Usage, usage: Usage) -> Usage:
    """Return the usage of the round. It includes the time of the decision, and the tokens that the decision found in
    the cache, since the decode itself finds the whole prompt there. The two tokens of the decision are not counted."""
    if not spent.prompt_tokens:
        return usage
    return replace(
        usage,
        reused_tokens=spent.reused_tokens,
        first_token_s=spent.seconds + usage.first_token_s,
        seconds=spent.seconds + usage.seconds,
    )
