"""A call that must be made, as JSON under a grammar, of a tool that is not ``python``: for models whose template knows
no tools."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import ToolCall, parse_arguments
from agent_kernel.core.protocols import CallChunk, Chunk, EndChunk, EngineRequest, Sampling, TextChunk, ToolSpec
from agent_kernel.engines.local.backend import ChatMessage
from agent_kernel.engines.local.decoding.completion import MAX_TOKENS, Completer, DecodedCompletion, decoding_options
from agent_kernel.engines.local.decoding.output_format import with_instruction
from agent_kernel.engines.local.grammar.ebnf import Rules, choice
from agent_kernel.engines.local.grammar.json_schema import bounds_within, json_grammar, json_text

ASKED = "Call the tool {name}: {description}\nWrite its arguments as JSON that fits this schema: {schema}"
CHOOSE = "Which of these tools helps with that?\n{tools}\nAnswer with its name."


def must_call(request: EngineRequest) -> tuple[ToolSpec, ...]:
    """The tools of which one has to be called now, none when the model may answer in words. Raises InvalidRequest when
    the request contradicts itself."""
    choice, tools = request.tool_choice, request.tools
    if choice in ("auto", "none"):
        return ()
    if not tools:
        raise InvalidRequest(f"tool_choice is {choice!r}, and the request has no tools.")
    named = tools if choice == "required" else tuple(tool for tool in tools if tool.name == choice)
    if not named:
        names = ", ".join(tool.name for tool in tools)
        raise InvalidRequest(f"tool_choice names {choice!r}; the tools of this request are {names}.")
    if request.output is not None:
        raise InvalidRequest("An output format binds answers in text, and tool_choice asks for a call.")
    return named


async def forced_call(
    chat: Sequence[ChatMessage], tools: Sequence[ToolSpec], request: EngineRequest, completer: Completer
) -> AsyncGenerator[Chunk, None]:
    """One call of one of ``tools``; the model chooses among several. Cut by the limit of tokens it is shown as text and
    not made. Raises InvalidRequest for a tool whose schema makes no grammar."""
    tool = tools[0] if len(tools) == 1 else await _chosen(chat, tools, completer)
    schema = {"type": "object"} | tool.schema
    decoding = decoding_options(request.sampling)
    grammar, _ = json_grammar(schema, bounds_within(request.sampling.max_tokens or MAX_TOKENS))
    asked = ASKED.format(name=tool.name, description=tool.description, schema=json_text(schema))
    completion = DecodedCompletion(await completer.render(with_instruction(chat, asked)))
    async with aclosing(completer.stream(completion, replace(decoding, grammar=grammar))) as deltas:
        async for _ in deltas:
            pass
    if completion.finish == "length":
        yield TextChunk(completion.text)
        yield EndChunk("length", completion.usage)
        return
    # What the grammar does not enforce is the toolbox's to judge: the model reads its result.
    yield CallChunk(ToolCall(f"call_{os.urandom(8).hex()}", tool.name, parse_arguments(completion.text)))
    yield EndChunk("calls", completion.usage)


async def _chosen(chat: Sequence[ChatMessage], tools: Sequence[ToolSpec], completer: Completer) -> ToolSpec:
    listed = "\n".join(f"{tool.name}: {tool.description}" for tool in tools)
    prompt = await completer.render(with_instruction(chat, CHOOSE.format(tools=listed)))
    completion = DecodedCompletion(prompt)
    grammar = Rules().grammar(choice(tool.name for tool in tools))
    decoding = replace(decoding_options(Sampling(max_tokens=64)), grammar=grammar)
    async with aclosing(completer.stream(completion, decoding)) as deltas:
        async for _ in deltas:
            pass
    return next(tool for tool in tools if tool.name == completion.text)
