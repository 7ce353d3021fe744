"""Tool calls in the model's own form, through its chat template; read by its declared form or leniently.

``auto`` leaves the choice to the model. ``required`` or a name forces a call: its beginning is given to the model, its
arguments follow the tool's schema by grammar, so it always parses. ``none`` lists the tools all the same, which keeps
the prefix, and ends the answer where a call would begin. Thinking comes apart and is in no later prompt.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_kernel.engines.local import declared_parser, reasoning
from agent_kernel.engines.local.answer_reader import AnswerReader
from agent_kernel.engines.local.backend import Grammar, Loaded
from agent_kernel.engines.local.call_json import new_call
from agent_kernel.engines.local.call_parser import MARKS, CallParser
from agent_kernel.engines.local.completion import Completer, Completion, decoding_of
from agent_kernel.engines.local.declared_parser import DeclaredParser, form_of
from agent_kernel.engines.local.native_prompt import chat, schemas
from agent_kernel.engines.local.reasoning import Reasoning
from agent_kernel.engines.local.schema_grammar import json_grammar
from agent_kernel.engines.local.template_probe import TemplateProbe, probe
from agent_kernel.engines.local.written import Written
from agent_kernel.errors import InvalidRequest
from agent_kernel.messages import Message, Usage, assistant, parse_arguments, tool_result
from agent_kernel.protocols import CallChunk, Chunk, EndChunk, EngineRequest, TextChunk, ToolSpec

ENDS = ("<|eom_id|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>")
"""Ends of turns that a model may write beside the one its vocabulary names."""
SHOWN = (*MARKS, *declared_parser.MARKS, *reasoning.TAGS)
NO_CALL = r"[^\s<\[{`][\s\S]*"
"""An answer that begins like no call: for a model that insists on calling when it must not."""


class Native:
    """``fences``: a fenced python block of this model is a call of the tool python, not an example for the person."""

    def __init__(self, loaded: Loaded, *, fences: bool) -> None:
        self._loaded = loaded
        self._fences = fences
        self._form = form_of(loaded)
        self._written = Written()
        self._probe: TemplateProbe | None = None
        self._probing = asyncio.Lock()

    async def stream(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        """The chunks of one round, its EndChunk last. Raises InvalidRequest for a tool_choice that is not on offer."""
        names = [tool.name for tool in request.tools]
        if request.tool_choice not in ("auto", "none", "required", *names):
            raise InvalidRequest(f"tool_choice names {request.tool_choice!r}, which is none of the tools.")
        answer = Answer(request, completer, await self._template(completer), self._written)
        answer.prompt = await answer.rendered(request.messages)
        if not names or request.tool_choice == "none":
            chunks = self._text(answer)
        elif request.tool_choice == "auto":
            chunks = self._free(answer)
        else:
            chunks = self._forced(answer, names if request.tool_choice == "required" else [request.tool_choice])
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    async def _template(self, completer: Completer) -> TemplateProbe:
        async with self._probing:
            if self._probe is None:
                self._probe = await probe(completer.render)
        return self._probe

    async def _free(self, answer: Answer) -> AsyncGenerator[Chunk, None]:
        """Text, calls or both, as the model likes."""
        sampling = answer.request.sampling
        completion = Completion(answer.prompt)
        reader = self._reader(answer, answer.request.tools, parallel=answer.request.parallel_calls)
        stop = (*sampling.stop, *answer.ends)
        deltas = answer.completer.stream(completion, decoding_of(sampling), stop=stop, marks=SHOWN)
        async with aclosing(deltas):
            async for delta in deltas:
                for part in reader.push(delta):
                    yield part
                if reader.done:
                    # Nothing after this call counts, also not in the history.
                    completion.text, completion.finish = completion.text.removesuffix(reader.rest), "stop"
                    break
        if not reader.done:
            cut = completion.finish == "length" or completion.stopped in sampling.stop
            for part in reader.finish(cut=cut):
                yield part
        # Not with thinking in it: that is in no later prompt, and the prefix ends there.
        if reader.calls and reader.whole and reader.answer.startswith(completion.text):
            await answer.keep(completion.text, assistant(reader.text, reader.calls))
        reason = "calls" if reader.calls and completion.finish != "length" else completion.finish
        yield EndChunk(reason, completion.usage)

    async def _forced(self, answer: Answer, names: Sequence[str]) -> AsyncGenerator[Chunk, None]:
        """One call of one of these tools; the model chooses among several."""
        template, completer, sampling = answer.template, answer.completer, answer.request.sampling
        prompt = reasoning.without_thinking(answer.prompt, self._loaded.template)
        head, spent = f'{template.opening}{{"name": "{names[0]}", "{template.key}":', Usage()
        begun, forced = prompt, head
        if len(names) > 1:
            choice = "|".join(map(re.escape, names))
            chosen = Completion(prompt)
            grammar = Grammar("regex", rf'\{{"name": "({choice})", "{template.key}":')
            decoding = replace(decoding_of(sampling), grammar=grammar)
            await _drain(completer.stream(chosen, decoding, forced=template.opening))
            head, spent = template.opening + chosen.text, chosen.usage
            begun, forced = prompt + head, ""
            if chosen.finish == "length":
                yield TextChunk(head)
                yield EndChunk("length", spent)
                return
        name = names[0] if len(names) == 1 else chosen.text.split('"')[3]
        completion = Completion(begun)
        grammar, _ = json_grammar({"type": "object"} | dict(answer.tool(name).parameters))
        decoding = replace(decoding_of(sampling), grammar=grammar)
        closing = "}" + template.closing
        await _drain(completer.stream(completion, decoding, forced=forced, closing=closing))
        usage = _sum(spent, completion.usage)
        if completion.finish == "length":
            yield TextChunk(head + completion.text)
            yield EndChunk("length", usage)
            return
        call = new_call(name, parse_arguments(completion.text))
        yield CallChunk(call)
        if prompt == answer.prompt:
            await answer.keep(head + completion.text + closing, assistant("", [call]))
        yield EndChunk("calls", usage)

    async def _text(self, answer: Answer) -> AsyncGenerator[Chunk, None]:
        """Words only. Where a listed tool would be called the answer ends; a model that had no other is asked again, in
        a form in which no call begins, and what it says then is text."""
        sampling = answer.request.sampling
        spent = Usage()
        for grammar in (None, Grammar("regex", NO_CALL)):
            tools = answer.request.tools if grammar is None else ()
            completion, reader = Completion(answer.prompt), self._reader(answer, tools, parallel=False)
            decoding = replace(decoding_of(sampling), grammar=grammar)
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
        yield EndChunk(completion.finish, spent)

    def _reader(self, answer: Answer, tools: Sequence[ToolSpec], *, parallel: bool) -> AnswerReader:
        calls = CallParser([tool.name for tool in tools], fences=self._fences)
        declared = self._form if tools else None
        parser = calls if declared is None else DeclaredParser(declared, schemas(tools), calls)
        return AnswerReader(parser, Reasoning(answer.prompt), parallel=parallel)


@dataclass(slots=True)
class Answer:
    """One request on its way: what it asked, and the prompt it became."""

    request: EngineRequest
    completer: Completer
    template: TemplateProbe
    written: Written
    prompt: str = ""

    @property
    def ends(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.template.end, *ENDS) if self.template.end else ENDS))

    def tool(self, name: str) -> ToolSpec:
        return next(tool for tool in self.request.tools if tool.name == name)

    async def rendered(self, messages: Sequence[Message]) -> str:
        """Raises EngineError when the template refuses the conversation."""
        tools = self.request.tools
        shown = chat(messages, tools, self.template, self.written.of)
        return await self.completer.render(shown, schemas(tools) if self.template.tools else ())

    async def keep(self, raw: str, message: Message) -> None:
        """The next prompt should begin with this one and ``raw``. Where the template writes the message differently, it
        will be shown what the model wrote, if that helps."""
        after = [tool_result(call, "done", "success") for call in message.calls]
        wanted = self.prompt + raw + self.template.end
        later = [*self.request.messages, message, *after]
        if (await self.rendered(later)).startswith(wanted):
            return
        self.written.add(message, raw)
        if not (await self.rendered(later)).startswith(self.prompt + raw.rstrip()):
            self.written.forget(message)


async def _drain(deltas: AsyncGenerator[TextChunk, None]) -> None:
    async with aclosing(deltas):
        async for _ in deltas:
            pass


def _sum(first: Usage, second: Usage) -> Usage:
    """Of two decodes of one answer: the second found the first in the cache."""
    if not first.prompt_tokens:
        return second
    total = first + second
    return replace(total, prompt_tokens=first.prompt_tokens, reused_tokens=first.reused_tokens)
