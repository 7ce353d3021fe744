"""Implements the native tool protocol: the model writes calls in its own form, as its chat template defines it. The
calls are parsed by the form that the model declares, or else by a parser that accepts all known forms.

``auto`` leaves the choice to the model. ``required`` or a name forces a call: the beginning of the call is given to the
model, and a grammar of the tool's schema constrains the arguments, so that the call can always be parsed. With
``none``, the tools are listed nevertheless, so that the prefix of the prompt stays the same, and the answer ends where
a call would begin. Reasoning is separated from the answer and is not part of later prompts.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_kernel.core.messages import Message, ToolCall, Usage, assistant, parse_arguments, tool_result
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    EngineRequest,
    OutputFormat,
    ReasoningChunk,
    TextChunk,
    TokenLogprob,
    ToolSpec,
)
from agent_kernel.engines.local.backend import LoadedModel, OutputGrammar
from agent_kernel.engines.local.decoding import reasoning
from agent_kernel.engines.local.decoding.completion import MAX_TOKENS, Completer, DecodedCompletion, decoding_options
from agent_kernel.engines.local.decoding.output_format import stream_formatted, with_format_instruction
from agent_kernel.engines.local.decoding.reasoning import ReasoningSplitter
from agent_kernel.engines.local.grammar.ebnf import Rules, choice
from agent_kernel.engines.local.grammar.json_schema import bounds_within, json_grammar
from agent_kernel.engines.local.tool_calling import template_response_parser
from agent_kernel.engines.local.tool_calling.call_json import new_call
from agent_kernel.engines.local.tool_calling.call_parser import MARKS, PYTHON, TAGS, CallParser
from agent_kernel.engines.local.tool_calling.code_fence_protocol import must_call
from agent_kernel.engines.local.tool_calling.native_prompt import chat
from agent_kernel.engines.local.tool_calling.template_probe import TemplateProbe, probe
from agent_kernel.engines.local.tool_calling.template_response_parser import DeclaredParser, form_of

# Stores the text that the model wrote for messages with calls, if the chat template would write them differently.
#
# The texts are lost when this process ends. The template's form is then used, so that the next prompt differs from
# the cached one at that message, and the model computes the prompt from there again.


ENTRIES = 1024
CHARS = 4_000_000
ENDS = ("<|eom_id|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>")
"""End-of-turn tags of different models. If a model's template contains one, the answer ends there, even if the
vocabulary defines another end."""
SHOWN = (*MARKS, *template_response_parser.MARKS, *reasoning.TAGS)
NAME_TOKENS = 96
NO_CALL = r"[^\s<\[{`][\s\S]*"
"""Matches an answer that does not begin like a call, for a model that would otherwise call a tool when it must not."""


class VerbatimCalls:
    """Stores the original texts of messages by the id of the message's first call. The least recently used texts are
    dropped first."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, tuple[Message, str]] = OrderedDict()
        self._chars = 0

    def of(self, message: Message) -> str | None:
        """Return the text that the model generated for a message, word for word; None if no text was stored, or if the
        message has changed since then."""
        if not message.calls or message.calls[0].id not in self._texts:
            return None
        original, text = self._texts[message.calls[0].id]
        self._texts.move_to_end(message.calls[0].id)
        return text if (original.text, original.calls) == (message.text, message.calls) else None

    def add(self, message: Message, text: str) -> None:
        self.forget(message)
        self._texts[message.calls[0].id] = (message, text)
        self._chars += len(text)
        while len(self._texts) > ENTRIES or (self._chars > CHARS and len(self._texts) > 1):
            _, (_, oldest) = self._texts.popitem(last=False)
            self._chars -= len(oldest)

    def forget(self, message: Message) -> None:
        _, text = self._texts.pop(message.calls[0].id, (message, ""))
        self._chars -= len(text)


class Native:
    """The native protocol for one model. With ``fences``, a fenced python block is a call of the tool ``python``;
    otherwise it is an example for the user."""

    def __init__(self, loaded: LoadedModel, *, fences: bool) -> None:
        self._loaded = loaded
        self._fences = fences
        self._form = form_of(loaded)
        self._written = VerbatimCalls()
        self._probe: TemplateProbe | None = None
        self._probing = asyncio.Lock()

    async def stream(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one round, EndChunk last. Raises InvalidRequest for a contradictory request, and
        OutputInvalid for an answer that does not fit the requested format."""
        forced, beginning = must_call(request), request.beginning
        template = await self._template(completer)
        ends = {template.end, *(tag for tag in ENDS if tag in self._loaded.template)} - {""}
        answer = NativeRound(request, completer, template, self._written, tuple(ends))
        answer.prompt = await answer.render(request.messages[:-1] if beginning else request.messages)
        if request.sampling.reasoning_effort == "none" or beginning:
            answer.prompt = reasoning.without_thinking(answer.prompt, self._loaded.template) + beginning
        if forced:
            chunks = self._force_call(answer, forced)
        elif request.output is not None:
            chunks = await self._answer_in_format(answer, request.output)
        elif request.tools and request.tool_choice == "auto":
            chunks = self._free(answer)
        else:
            chunks = self._text(answer)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    async def _template(self, completer: Completer) -> TemplateProbe:
        async with self._probing:
            if self._probe is None:
                self._probe = await probe(completer.render)
        return self._probe

    async def _answer_in_format(self, answer: NativeRound, output: OutputFormat) -> AsyncGenerator[Chunk, None]:
        """Return the chunks of a text in the requested format, or of a call if the first token begins a call."""
        request, completer = answer.request, answer.completer
        plain = answer.prompt
        answer.prompt = await answer.render(request.messages, output)
        if request.tools and request.tool_choice == "auto" and await self._calls_first(answer, output):
            answer.prompt = plain
            return self._free(answer)
        prompt = reasoning.without_thinking(answer.prompt, self._loaded.template)
        return stream_formatted(prompt, request, completer)

    async def _calls_first(self, answer: NativeRound, output: OutputFormat) -> bool:
        """Return whether the first token of the answer begins a call. A special token does, because no other special
        token can begin an answer. A bracket does if the model writes calls without tags and the format is not JSON."""
        first = await answer.completer.first_token(reasoning.without_thinking(answer.prompt, self._loaded.template))
        text = first.text.strip()
        if not text:
            return bool(first.ids) and not first.text
        json_too = output.kind in ("json_object", "json_schema")
        bare = text.startswith("{") and not answer.template.opening and not json_too
        return bare or any(tag.startswith(text) or text.startswith(tag) for tag in TAGS)

    async def _free(self, answer: NativeRound) -> AsyncGenerator[Chunk, None]:
        """Yield text, calls or both, as the model chooses."""
        sampling = answer.request.sampling
        completion = DecodedCompletion(answer.prompt)
        reader = self._reader(answer, answer.request.tools, parallel=answer.request.parallel_calls)
        stop = (*sampling.stop, *answer.ends)
        deltas = answer.completer.stream(completion, decoding_options(sampling), stop=stop, marks=SHOWN)
        async with aclosing(deltas):
            async for delta in deltas:
                for part in reader.push(delta):
                    yield part
                if reader.done:
                    # The text after this call is dropped from the answer and from the history.
                    completion.text, completion.finish = completion.text.removesuffix(reader.rest), "stop"
                    break
        if not reader.done:
            cut = completion.finish == "length" or bool(completion.stopped_by(sampling.stop))
            for part in reader.finish(cut=cut):
                yield part
        # The text of an answer with reasoning is not stored: later prompts omit the reasoning, so that the common
        # prefix ends before it. The rest of a continued answer is not stored either, because it is half of a message.
        is_whole = reader.whole and not answer.request.continues
        if reader.calls and is_whole and reader.answer.startswith(completion.text):
            await answer.keep(completion.text, assistant(reader.text, reader.calls))
        reason = "calls" if reader.calls and completion.finish != "length" else completion.finish
        yield EndChunk(reason, completion.usage, completion.stopped_by(sampling.stop))

    async def _force_call(self, answer: NativeRound, tools: Sequence[ToolSpec]) -> AsyncGenerator[Chunk, None]:
        """Decode a reply that must be a call of one of ``tools``, and yield its chunks. If there are several tools, the
        model chooses one."""
        template, completer, sampling = answer.template, answer.completer, answer.request.sampling
        prompt = reasoning.without_thinking(answer.prompt, self._loaded.template)
        tool, head, spent = tools[0], f'{template.opening}{{"name": "{tools[0].name}", "{template.key}":', Usage()
        completion, forced = DecodedCompletion(prompt), head
        if len(tools) > 1:
            beginning = await self._decode_beginning(answer, prompt, tools)
            tool = next(tool for tool in tools if f'"{tool.name}"' in beginning.text)
            head, spent = template.opening + beginning.text, beginning.usage
            completion, forced = DecodedCompletion(prompt + head), ""
        schema = {"type": "object"} | tool.schema
        grammar, _ = json_grammar(schema, bounds_within(sampling.max_tokens or MAX_TOKENS))
        decoding = replace(decoding_options(sampling), grammar=grammar)
        closing = "}" + template.closing
        await completer.run(completion, decoding, forced=forced, closing=closing)
        usage = _sum(spent, completion.usage)
        if completion.finish == "length":
            yield TextChunk(head + completion.text)
            yield EndChunk("length", usage)
            return
        # The toolbox checks the rules of the schema that the grammar does not enforce, and the model reads the error.
        call = new_call(tool.name, parse_arguments(completion.text))
        yield CallChunk(call)
        if prompt == answer.prompt:
            await answer.keep(head + completion.text + closing, assistant("", [call]))
        yield EndChunk("calls", usage)

    async def _decode_beginning(self, answer: NativeRound, prompt: str, tools: Sequence[ToolSpec]) -> DecodedCompletion:
        """Decode the beginning of a call of one of ``tools``, up to its arguments. Its tokens do not count towards the
        token limit."""
        template = answer.template
        beginnings = choice(f'{{"name": "{tool.name}", "{template.key}":' for tool in tools)
        grammar = Rules().grammar(beginnings)
        completion = DecodedCompletion(prompt)
        decoding = replace(decoding_options(replace(answer.request.sampling, max_tokens=NAME_TOKENS)), grammar=grammar)
        await answer.completer.run(completion, decoding, forced=template.opening)
        return completion

    async def _text(self, answer: NativeRound) -> AsyncGenerator[Chunk, None]:
        """Yield text only. The answer ends where the model would call a listed tool. If it has written no text by then,
        the model is asked again with a grammar under which no call can begin."""
        sampling = answer.request.sampling
        spent = Usage()
        for grammar in (None, OutputGrammar("regex", NO_CALL)):
            tools = answer.request.tools if grammar is None else ()
            completion, reader = DecodedCompletion(answer.prompt), self._reader(answer, tools, parallel=False)
            decoding = replace(decoding_options(sampling), grammar=grammar)
            stop = (*sampling.stop, *answer.ends)
            deltas = answer.completer.stream(completion, decoding, stop=stop, marks=SHOWN)
            async with aclosing(deltas):
                async for delta in deltas:
                    for part in reader.push(delta):
                        if not isinstance(part, CallChunk):
                            yield part
                    if reader.done:
                        completion.text, completion.finish = completion.text[: len(reader.text)], "stop"
                        break
            if not reader.done:
                for part in reader.finish(cut=True):
                    if not isinstance(part, CallChunk):
                        yield part
            spent = _sum(spent, completion.usage)
            if reader.text or not reader.calls:
                break
        yield EndChunk(completion.finish, spent, completion.stopped_by(sampling.stop))

    def _reader(self, answer: NativeRound, tools: Sequence[ToolSpec], *, parallel: bool) -> AnswerReader:
        calls = CallParser([tool.name for tool in tools], fences=self._fences)
        declared = self._form if tools else None
        parser = calls if declared is None else DeclaredParser(declared, [tool.to_json() for tool in tools], calls)
        return AnswerReader(parser, ReasoningSplitter(answer.prompt), parallel=parallel)


@dataclass(slots=True)
class NativeRound:
    """One request and its rendered prompt. ``written`` has the texts that the model wrote for earlier calls; ``ends``
    are the tags that end the answer."""

    request: EngineRequest
    completer: Completer
    template: TemplateProbe
    written: VerbatimCalls
    ends: tuple[str, ...]
    prompt: str = ""

    async def render(self, messages: Sequence[Message], output: OutputFormat | None = None) -> str:
        """Render the conversation. Raises EngineError if the template refuses it."""
        tools = self.request.tools
        conversation = chat(messages, tools, self.template, self.written.of)
        if output is not None:
            conversation = with_format_instruction(conversation, output)
        return await self.completer.render(
            conversation, [tool.to_json() for tool in tools] if self.template.tools else ()
        )

    async def keep(self, raw: str, message: Message) -> None:
        """Ensure that later prompts begin with this prompt, followed by ``raw``, the text that the model wrote for
        ``message``. If the template would write the message differently, ``raw`` is stored and used in later prompts
        instead, provided that this makes the common prefix longer."""
        after = [tool_result(call, "done", "success") for call in message.calls]
        expected = self.prompt + raw + self.template.end
        later = [*self.request.messages, message, *after]
        if (await self.render(later)).startswith(expected):
            return
        self.written.add(message, raw)
        if not (await self.render(later)).startswith(self.prompt + raw.rstrip()):
            self.written.forget(message)


def _sum(first: Usage, second: Usage) -> Usage:
    """Return the sum of the usage of two decodes of one answer. The prompt counts only once, because the second decode
    found it in the cache."""
    if not first.prompt_tokens:
        return second
    total = first + second
    return replace(total, prompt_tokens=first.prompt_tokens, reused_tokens=first.reused_tokens)


# Splits the deltas of an answer into reasoning, text and tool calls. The reasoning is separated first, then the calls
# in the rest.


class AnswerReader:
    """Splits an answer into parts while it arrives; the caller passes each piece to ``push``. ``answer`` is the output
    without the reasoning; ``text`` and ``calls`` are its parts. If ``done`` is true, the rest of the output is ignored,
    because the model must not continue after its calls; ``rest`` is the ignored text that has already been pushed. Log
    probabilities are returned with their text; those of a call are dropped."""

    def __init__(self, parser: CallParser | DeclaredParser, reasoning: ReasoningSplitter, *, parallel: bool) -> None:
        self._parser = parser
        self._reasoning = reasoning
        self._parallel = parallel
        self._logprobs: list[TokenLogprob] = []
        self.answer = ""
        self.text = ""
        self.calls: list[ToolCall] = []
        self.done = False
        self.whole = True
        """False if the answer contains further calls, which were ignored and are not in ``calls``."""

    @property
    def rest(self) -> str:
        return self._parser.rest

    def push(self, delta: TextChunk) -> list[TextChunk | ReasoningChunk | CallChunk]:
        self._logprobs += delta.logprobs
        return self._read(self._reasoning.push(delta.text))

    def finish(self, *, cut: bool) -> list[TextChunk | ReasoningChunk | CallChunk]:
        """Return the last parts. ``cut`` means that the answer did not end by itself: an incomplete call is then
        returned as text."""
        parts = self._read(self._reasoning.finish())
        if self.done:
            return parts
        parts += self._accept(self._parser.finish(cut=cut))
        last_parts = [TextChunk("", tuple(self._logprobs))] if self._logprobs and not self.calls else []
        return parts + last_parts

    def _read(self, parts: Iterable[TextChunk | ReasoningChunk]) -> list[TextChunk | ReasoningChunk | CallChunk]:
        read: list[TextChunk | ReasoningChunk | CallChunk] = []
        for part in parts:
            if isinstance(part, ReasoningChunk):
                read.append(part)
                self._logprobs.clear()
            elif not self.done:
                self.answer += part.text
                read += self._accept(self._parser.push(part.text))
        return read

    def _accept(
        self, parts: Iterable[TextChunk | ReasoningChunk | CallChunk]
    ) -> list[TextChunk | ReasoningChunk | CallChunk]:
        """Return the parts up to the last call that may run. If only one call is allowed, that is the first call.
        Otherwise it is the first python call in a code fence, if there is one, because the model must see its output
        before it makes another call."""
        accepted: list[TextChunk | ReasoningChunk | CallChunk] = []
        for part in parts:
            if self.done:
                self.whole = False
                break
            if isinstance(part, CallChunk):
                self.calls.append(part.call)
                self.done = not self._parallel or (part.call.name == PYTHON and self._parser.fenced)
                self._logprobs.clear()
            elif isinstance(part, TextChunk):
                self.text += part.text
                accepted.append(TextChunk(part.text, tuple(self._logprobs)))
                self._logprobs.clear()
                continue
            accepted.append(part)
        return accepted
