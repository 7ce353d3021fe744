"""Decodes a required call of a tool other than ``python`` as JSON under a grammar, for the code-fence protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import parse_arguments
from agent_kernel.core.protocols import CallChunk, Chunk, EndChunk, EngineRequest, Sampling, TextChunk, ToolSpec
from agent_kernel.engines.local.backend import ChatMessage
from agent_kernel.engines.local.decoding.completion import MAX_TOKENS, Completer, DecodedCompletion, decoding_options
from agent_kernel.engines.local.decoding.output_format import with_instruction
from agent_kernel.engines.local.grammar.ebnf import Rules, choice
from agent_kernel.engines.local.grammar.json_schema import bounds_within, json_grammar, json_text
from agent_kernel.engines.local.tool_calling.call_json import new_call

ASKED = "Call the tool {name}: {description}\nWrite its arguments as JSON that fits this schema: {schema}"
CHOOSE = "Which of these tools helps with that?\n{tools}\nAnswer with its name."


def must_call(request: EngineRequest) -> tuple[ToolSpec, ...]:
    """Return the tools of which the model must call one; an empty tuple if it may answer in text. Raises InvalidRequest
    for a contradictory request."""
    tools = request.required_tools()
    if tools and request.output is not None:
        raise InvalidRequest(
            "tool_choice requires a call of a tool, so the answer cannot have an output format. Send only one of them."
        )
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
