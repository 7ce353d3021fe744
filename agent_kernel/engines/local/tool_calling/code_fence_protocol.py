"""Implements the code-fence tool protocol, for models too small to write calls as JSON. A fenced code block in the
model's answer is a call of the tool ``python``, and its content is the code.

The first token decides whether the model calls: it does if the opening fence is at most ``margin`` (natural log) less
likely than the best first token. The fence is then forced, and code is decoded until the fence closes. After a result
the model answers in text. A failed call is tried once more without showing the failed code, and a program that has
already failed is not run again. A call whose result is not what the question asks for (``Exchange.objection``) counts
as failed. Code for a question that names a file begins with the line that reads the file. A Mermaid diagram is the
answer, and is not run.

Two kinds of answers are written without the model, because it is unreliable at them
(``code_fence_fallback_answer.py``): the answer after the last try failed, and the answer to an output of several rows.
In the model's own sentences, the name of a month or weekday that the output does not support is replaced by the number
in the output.

Only the tool named ``python`` is offered. Other tools of a request are called if ``tool_choice`` requires one
(``must_call``); with ``auto`` the model does not see them.
"""

from __future__ import annotations

import ast
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from math import inf

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Message, Usage, parse_arguments
from agent_kernel.core.programs.answer_form import slots_regex
from agent_kernel.core.programs.question_mistakes import misses_variable
from agent_kernel.core.protocols import CallChunk, Chunk, EndChunk, EngineRequest, Sampling, TextChunk, ToolSpec
from agent_kernel.engines.local.backend import ChatMessage, OutputGrammar
from agent_kernel.engines.local.decoding import reasoning
from agent_kernel.engines.local.decoding.completion import MAX_TOKENS, Completer, DecodedCompletion, decoding_options
from agent_kernel.engines.local.decoding.output_format import (
    grammar_of,
    stream_formatted,
    with_format_instruction,
    with_instruction,
)
from agent_kernel.engines.local.grammar.ebnf import Rules, choice
from agent_kernel.engines.local.grammar.json_schema import bounds_within, json_grammar, json_text
from agent_kernel.engines.local.tool_calling import code_fence_examples, code_fence_fallback_answer, code_fence_prompt
from agent_kernel.engines.local.tool_calling.call_json import new_call
from agent_kernel.engines.local.tool_calling.code_fence_answer_checks import (
    checked_sentence,
    replace_if_data_are_missed,
)
from agent_kernel.engines.local.tool_calling.code_fence_mistakes import (
    lacks_name,
    unchanged_function,
)
from agent_kernel.engines.local.tool_calling.code_fence_program import write_program

MARGIN = 2.0
"""How much less likely than the best first token (natural log) the code fence may be, so that the model writes code,
for a question without any reference to data. Of 34 first questions, 14 needed code and 20 did not: with this margin, 1
of the 14 got no code and 2 of the 20 got code. With a margin of 4 it was 0 of the 14 and 6 of the 20
(Qwen2.5-Coder-0.5B; tests/benchmarks/test_margin.py)."""
NAMED_MARGIN = 4.0
"""The margin, like MARGIN, for a question that names a variable or a file, or follows a turn in which code ran. Without
code, a small model invents its answer or derives it from the one row that it was shown, which is worse than unnecessary
code. Of 34 questions, 20 needed code and 14 did not: with this margin, none of the 20 got no code and 4 of the 14 got
code. With a margin of 2, fewer of the 14 got code, but follow-up questions of the quickstart got none although they
need it."""
FIRM_MARGIN = 1.0
"""The margin, like MARGIN and NAMED_MARGIN, for a model of ``tool_protocols.FIRM`` parameters or more. For nearly every
question that needs code, such a model begins with the fence by itself, so a wide margin only adds code to conversation
("Thanks! What is a DataFrame?"). Of 162 questions, 88 needed code and 74 did not: with this margin and
KNOWLEDGE_EXAMPLES, 2 of the 88 got no code and 4 of the 74 got code. With the margins and examples of smaller models it
was 1 of the 88 and 29 of the 74, with this margin alone 1 and 15 (Qwen2.5-Coder-1.5B)."""
FILE_MARGIN = 12.0
"""The margin, like MARGIN, for a question that names a file of which the model is shown the first rows. Anything beyond
these rows needs code. The same margin holds for a question that demands values in the form ``@name[value]``: otherwise
a model fills the form with a value of the one row that it was shown."""
MAX_CODE_TOKENS = 768
RETRIES = 1
RESAMPLES = 2
RESAMPLE_TEMPERATURE = 0.7
"""Minimum temperature when a failed program is sampled again; the same as for the samples of a vote
(``turn.voting_engine``)."""
NO_IMPORT = r"(?:[^if\n][^\n]*|i(?:[^m\n][^\n]*)?|f(?:[^r\n][^\n]*)?)?"
CODE = rf"(?:{NO_IMPORT}\n)*{NO_IMPORT}"
"""Matches code without a line that begins with "im" or "fr", and so without imports. The usual names are already
imported, and after an import a small model continues with the tutorial from which it learned the line, including its
file names. A retry may import."""
NO_READING = r"(?:[^r]|r(?:r|er|ear|eadr)*(?:[^re]|e[^ra]|ea[^rd]|ead[^r_]))*(?:r(?:r|er|ear|eadr)*(?:e(?:ad?)?)?)?"
"""Matches code without "read_", for a retry of code about existing tables: it must not read a file instead of using
them."""
ASKED = "Call the tool {name}: {description}\nWrite its arguments as JSON that fits this schema: {schema}"
CHOOSE = "Which of these tools helps with that?\n{tools}\nAnswer with its name."


@dataclass(frozen=True, slots=True)
class Fence:
    """The code-fence protocol. ``margin`` and ``named_margin`` replace MARGIN and NAMED_MARGIN. ``template`` is the
    model's chat template, ``examples`` are the worked examples before the conversation, which a second try keeps with
    ``examples_in_retry``. ``form_examples`` replace them, if there are any, in a conversation that demands values in
    the form ``@name[value]``.

    If the template supports reasoning and code is possible, an empty reasoning block is inserted, because the first
    token of the answer decides between code and text. If the request has no tools, the model may reason, and its
    reasoning is separated from the answer.
    """

    margin: float = MARGIN
    named_margin: float = NAMED_MARGIN
    template: str = ""
    examples: Sequence[ChatMessage] = code_fence_examples.EXAMPLES
    form_examples: Sequence[ChatMessage] = ()
    examples_in_retry: bool = False

    def stream(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        """Return the chunks of one round, EndChunk last. Raises InvalidRequest for a contradictory request. Iterating
        over the chunks raises OutputInvalid if the answer does not fit the requested format."""
        forced = must_call(request)
        if request.beginning:
            return self._continue(request, completer)
        if request.output is not None:
            grammar_of(request.output, request.sampling.max_tokens)  # an error is raised before anything is decoded
        if forced and not _has_python(forced):
            return forced_call(code_fence_prompt.chat(request.messages, tools=False), forced, request, completer)
        return self._round(request, completer, must=bool(forced))

    async def _round(self, request: EngineRequest, completer: Completer, *, must: bool) -> AsyncGenerator[Chunk, None]:
        """Generate one reply of the model and yield its chunks, either code or text. With ``must``, the reply is always
        code, because the request demands a call."""
        offered = request.tool_choice != "none" and _has_python(request.tools)
        _, turns = code_fence_prompt.exchanges(request.messages)
        result = turns[-1].awaiting if turns else None
        ran = result if result is not None and turns[-1].ran_python(result) else None
        failed = ran is not None and ran.status == "error"
        retry = (
            offered
            and ran is not None
            and bool(turns[-1].objection(ran))
            and (turns[-1].failures if failed else len(turns[-1].results)) <= RETRIES
        )
        if ran is not None and (reply := _reply_without_model(turns[-1], ran, request, retry=retry, must=must)):
            for chunk in reply:
                yield chunk
            return
        succeeded = ran is not None and ran.status == "success"
        examples = self._examples(turns)
        chat = code_fence_prompt.chat(
            request.messages, tools=offered, retry=retry, examples=examples, in_retry=self.examples_in_retry
        )
        prompt = await completer.render(chat)
        if offered or request.sampling.reasoning_effort == "none":
            prompt = reasoning.without_thinking(prompt, self.template)
        spent, fits = Usage(), must or retry
        turn = turns[-1] if turns else code_fence_prompt.Exchange()
        reading = turns[-1].reading if turns and (result is None or retry) else ""
        text_prompt = prompt
        if offered and result is None and not must:
            text_prompt = await self._choosing(request.messages, examples, prompt, completer)
            likely, spent = await code_margin(text_prompt, completer)
            fits = likely <= self._margin(turns, reading)
        if fits:
            regex = _code_regex(turns[-1], retry=retry and failed) if turns else CODE
            chunks = self._code(prompt, reading, request, completer, regex=regex, turn=turn, retry=retry)
        elif request.output is not None:
            shortened_prompt = reasoning.without_thinking(
                await completer.render(with_format_instruction(chat, request.output)), self.template
            )
            chunks = stream_formatted(shortened_prompt, request, completer)
        else:
            chunks = self._text(text_prompt, request, completer, offered, slots=turn.slots if succeeded else ())
            if ran is not None and succeeded and not code_fence_fallback_answer.asks_for_form(turn.question):
                chunks = checked_sentence(chunks, ran, turn.question, corrected=not request.sampling.logprobs)
            elif offered and result is None and turn.has_its_tables:
                regex = _code_regex(turn, retry=False)
                code = self._code(prompt, "", request, completer, regex=regex, turn=turn)
                chunks = replace_if_data_are_missed(chunks, code)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield replace(chunk, usage=_round_usage(spent, chunk.usage)) if isinstance(chunk, EndChunk) else chunk

    async def _continue(self, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
        """Yield the rest of the text with which the request ends. There is no decision between code and text: the
        answer is text already."""
        messages = request.messages[:-1]
        offered = request.tool_choice != "none" and _has_python(request.tools)
        _, turns = code_fence_prompt.exchanges(messages)
        chat = code_fence_prompt.chat(messages, tools=offered, examples=self._examples(turns))
        prompt = reasoning.without_thinking(await completer.render(chat), self.template) + request.beginning
        async with aclosing(self._text(prompt, request, completer, offered)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _examples(self, turns: Sequence[code_fence_prompt.Exchange]) -> Sequence[ChatMessage]:
        """Return the worked examples for a conversation. They stay the same after the first turn that demands values in
        a form, so that the prompt keeps its beginning."""
        return self.form_examples if self.form_examples and any(turn.slots for turn in turns) else self.examples

    async def _choosing(
        self, messages: Sequence[Message], examples: Sequence[ChatMessage], prompt: str, completer: Completer
    ) -> str:
        """Return the prompt for the first token, which decides between code and text. If the model writes text, its
        answer continues this prompt."""
        fewer = code_fence_prompt.without_unnamed_data(messages)
        if fewer is messages:
            return prompt
        rendered = await completer.render(code_fence_prompt.chat(fewer, tools=True, examples=examples))
        return reasoning.without_thinking(rendered, self.template)

    def _margin(self, turns: Sequence[code_fence_prompt.Exchange], reading: str) -> float:
        if reading or turns[-1].slots:
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
        turn: code_fence_prompt.Exchange,
        retry: bool = False,
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of one python call. Its code consists of the lines ``reading``, followed by code that the
        model writes, which matches ``regex`` unless that is None. ``retry`` means that the last call of ``turn`` is
        tried again. A program that makes the same mistake as an earlier one, or that does not end within
        MAX_CODE_TOKENS, is sampled again, at most RESAMPLES times. A limit of tokens that the request sets is kept.
        """
        tokens = request.sampling.max_tokens or MAX_CODE_TOKENS
        grammar = OutputGrammar("regex", regex) if regex is not None else None
        decoding = replace(decoding_options(request.sampling), max_tokens=tokens, grammar=grammar)
        earlier_programs = {_tree_of(program) for program in (turn.failed_programs if retry else ())}
        spent = Usage()
        for seed in range(RESAMPLES + 1):
            program = await write_program(prompt, reading, turn, decoding, completer)
            code = program.code
            spent += program.usage
            repeated = retry and (
                _tree_of(code) in earlier_programs
                or bool(unchanged_function(code, turn.hidden, turn.question))
                or lacks_name(code, [result.text for result in turn.results])
            )
            is_cut = program.finish == "length" and request.sampling.max_tokens is not None
            again = repeated or program.finish != "stop" or misses_variable(code, turn.question)
            if is_cut or not again:
                break
            # A change of the seed alone has no effect on greedy decoding.
            decoding = replace(decoding, temperature=max(decoding.temperature, RESAMPLE_TEMPERATURE), seed=seed + 1)
        if program.finish != "stop":  # an incomplete program must not run, but the user sees it
            yield TextChunk(code_fence_prompt.code_block(code))
            yield EndChunk("length", spent)
            return
        if code_fence_prompt.is_diagram(code) and not must_call(request):
            yield TextChunk(f"```mermaid\n{code.rstrip()}\n```")
            yield EndChunk("stop", spent)
            return
        yield CallChunk(new_call(code_fence_prompt.TOOL, {"code": code}))
        yield EndChunk("calls", spent)

    async def _text(
        self, prompt: str, request: EngineRequest, completer: Completer, offered: bool, *, slots: Iterable[str] = ()
    ) -> AsyncGenerator[Chunk, None]:
        """Yield the chunks of an answer in text. With ``slots``, it consists of these values."""
        completion = DecodedCompletion(prompt)
        # If tools are offered, a fence in text would be code that is not run.
        stop = (*request.sampling.stop, *((code_fence_prompt.CLOSE,) if offered else ()))
        decoding = decoding_options(request.sampling)
        if slots:
            regex = slots_regex(slots)
            decoding = replace(decoding, grammar=OutputGrammar("regex", regex))
        deltas = completer.stream(completion, decoding, stop=stop, marks=reasoning.TAGS)
        async with aclosing(reasoning.split_reasoning(deltas, prompt)) as parts:
            async for part in parts:
                yield part
        yield EndChunk(completion.finish, completion.usage, completion.stopped_by(request.sampling.stop))


def _reply_without_model(
    turn: code_fence_prompt.Exchange, result: Message, request: EngineRequest, *, retry: bool, must: bool
) -> list[Chunk]:
    """Return the chunks of a reply to the result ``result`` that does not need the model: a call of the corrected
    program if the program failed, or an answer. Return an empty list if the model is needed."""
    if request.tool_choice != "none" and _has_python(request.tools) and (corrected := turn.correction):
        return [CallChunk(corrected), EndChunk("calls", Usage())]
    if must or retry or request.output:
        return []
    succeeded = result.status == "success"
    rows = code_fence_fallback_answer.rows_of(result.text) if succeeded else []
    unchanged = turn.unchanged_function(result) if succeeded else ""
    plain = code_fence_fallback_answer.plain(turn.results, rows, turn.question, unchanged)
    return [TextChunk(plain), EndChunk("stop", Usage())] if plain else []


def _code_regex(turn: code_fence_prompt.Exchange, *, retry: bool) -> str | None:
    """Return the regular expression that the model's code must match; None if any code is allowed."""
    if retry:
        return NO_READING if turn.has_its_tables else None
    return None if turn.repairs_a_cell else CODE


def _tree_of(code: str) -> str:
    """Return the syntax tree of a program as text. It is equal for programs that differ only in layout and comments.
    Return the code itself if it cannot be parsed."""
    try:
        return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code.strip()


def _has_python(tools: Sequence[ToolSpec]) -> bool:
    return any(tool.name == code_fence_prompt.TOOL for tool in tools)


async def code_margin(prompt: str, completer: Completer) -> tuple[float, Usage]:
    """Return how much less likely the opening fence is than the best first token (difference of their natural logs),
    and the usage. It is 0 if the fence is the best token, and infinite if the backend reports no probabilities."""
    free = await completer.first_token(prompt)
    if free.text.startswith(code_fence_prompt.CLOSE):
        return 0.0, free.usage
    bound = await completer.first_token(prompt, regex=code_fence_prompt.CLOSE)
    if not free.logprobs or not bound.logprobs:
        return inf, free.usage
    return free.logprobs[0] - bound.logprobs[0], free.usage


def _round_usage(spent: Usage, usage: Usage) -> Usage:
    """Return the usage of a round from the usage of the decision between code and text (``spent``) and that of the
    decoding (``usage``). It includes the time of the decision, but not its two tokens. The reused tokens are those of
    the decision, because the decoding finds the whole prompt in the cache."""
    if not spent.prompt_tokens:
        return usage
    return replace(
        usage,
        reused_tokens=spent.reused_tokens,
        first_token_s=spent.seconds + usage.first_token_s,
        seconds=spent.seconds + usage.seconds,
    )


# Decodes a required call of a tool other than ``python`` as JSON under a grammar, for the code-fence protocol.


def must_call(request: EngineRequest) -> tuple[ToolSpec, ...]:
    """Return the tools of which the model must call one; an empty tuple if it may answer in text. Raises InvalidRequest
    for a contradictory request."""
    tools = request.required_tools()
    if tools and request.output is not None:
        raise InvalidRequest(
            "tool_choice requires a call of a tool, so the answer cannot have an output format. Send only one of them."
        )
    if request.continues and (tools or request.output is not None):
        raise InvalidRequest("An answer with an output format or a required call cannot be continued.")
    return tools


async def forced_call(
    chat: Sequence[ChatMessage], tools: Sequence[ToolSpec], request: EngineRequest, completer: Completer
) -> AsyncGenerator[Chunk, None]:
    """Yield one call of one of ``tools``. If there are several tools, the model chooses one. A call that the token
    limit cuts off becomes text. Raises InvalidRequest for a tool whose schema cannot be compiled to a grammar."""
    tool = tools[0] if len(tools) == 1 else await _choose_tool(chat, tools, completer)
    schema = {"type": "object"} | tool.schema
    decoding = decoding_options(request.sampling)
    grammar, _ = json_grammar(schema, bounds_within(request.sampling.max_tokens or MAX_TOKENS))
    instruction = ASKED.format(name=tool.name, description=tool.description, schema=json_text(schema))
    completion = DecodedCompletion(await completer.render(with_instruction(chat, instruction)))
    await completer.run(completion, replace(decoding, grammar=grammar))
    if completion.finish == "length":
        yield TextChunk(completion.text)
        yield EndChunk("length", completion.usage)
        return
    # The toolbox checks the rules of the schema that the grammar does not enforce. If the arguments break one, the
    # model reads the error as the result of the call.
    yield CallChunk(new_call(tool.name, parse_arguments(completion.text)))
    yield EndChunk("calls", completion.usage)


async def _choose_tool(chat: Sequence[ChatMessage], tools: Sequence[ToolSpec], completer: Completer) -> ToolSpec:
    listed = "\n".join(f"{tool.name}: {tool.description}" for tool in tools)
    prompt = await completer.render(with_instruction(chat, CHOOSE.format(tools=listed)))
    completion = DecodedCompletion(prompt)
    grammar = Rules().grammar(choice(tool.name for tool in tools))
    decoding = replace(decoding_options(Sampling(max_tokens=64)), grammar=grammar)
    await completer.run(completion, decoding)
    return next(tool for tool in tools if tool.name == completion.text)
