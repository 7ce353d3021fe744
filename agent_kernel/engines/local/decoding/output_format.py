"""Enforces the output format of a text answer: by a grammar while the answer is decoded, and by a check of the complete
answer."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from agent_kernel.core.errors import InvalidRequest, OutputInvalid
from agent_kernel.core.protocols import Chunk, EndChunk, EngineRequest, OutputFormat
from agent_kernel.engines.local.backend import ChatMessage, OutputGrammar
from agent_kernel.engines.local.decoding.completion import MAX_TOKENS, Completer, DecodedCompletion, decoding_options
from agent_kernel.engines.local.grammar.ebnf import Rules, choice
from agent_kernel.engines.local.grammar.json_schema import bounds_within, json_grammar, json_text
from agent_kernel.engines.local.grammar.regex import pattern

MAX_CHOICES = 1_000
SHOWN_SCHEMA = 2_000
"""Maximum number of characters of a schema that the prompt contains. A longer schema is enforced only by the
grammar."""
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


def grammar_of(output: OutputFormat, max_tokens: int | None = None) -> OutputGrammar:
    """Compile the format to a grammar. ``max_tokens`` is the token limit of the answer, which bounds the lengths that
    the grammar allows. Raises InvalidRequest for an invalid format, or one that is too large to enforce."""
    rules = Rules()
    match output.kind:
        case "regex":
            return rules.grammar(rules.rule(pattern(output.regex, rules)))
        case "choice":
            if not output.choice or "" in output.choice or len(output.choice) > MAX_CHOICES:
                raise InvalidRequest(f"A choice must have 1 to {MAX_CHOICES} texts, none of them empty.")
            return rules.grammar(choice(output.choice))
        case "grammar":
            raise InvalidRequest(
                "Models that run on this machine do not support the output format 'grammar'.",
                details={"param": "grammar"},
            )
    schema = output.json_schema if output.kind == "json_schema" else ANY_OBJECT
    for regex in _regexes(schema):
        pattern(regex, Rules())  # refuses a pattern that could take exponential time on the model's text
    grammar, _ = json_grammar(schema, bounds_within(max_tokens or MAX_TOKENS))
    return grammar


def check(output: OutputFormat, text: str) -> None:
    """Raise OutputInvalid if a complete answer does not fit the format. The check includes the rules that no grammar
    enforces."""
    problem = ""
    match output.kind:
        case "choice":
            problem = "" if text in output.choice else "the answer is none of the choices"
        case "regex":
            problem = "" if re.fullmatch(output.regex, text) else "the answer does not match the regular expression"
        case _:
            schema = output.json_schema if output.kind == "json_schema" else ANY_OBJECT
            problem = _misfit(schema, text)
    if problem:
        raise OutputInvalid(
            f"The answer does not fit the requested format: {problem}.",
            hint="Ask again, or request a simpler format.",
            details={"text": text, "reason": problem},
        )


def with_format_instruction(chat: Sequence[ChatMessage], output: OutputFormat) -> list[ChatMessage]:
    """Return the conversation with a description of the format at its end, because a model that does not know the
    format fills the grammar with arbitrary values."""
    instruction = ""
    if output.kind == "json_object":
        instruction = "Answer with a JSON object."
    elif output.kind == "json_schema":
        schema = json_text(dict(output.json_schema))
        instruction = "Answer with JSON" + (f" that fits this schema: {schema}" if len(schema) <= SHOWN_SCHEMA else ".")
    elif output.kind == "choice":
        instruction = "Answer with one of: " + ", ".join(output.choice)
    return with_instruction(chat, instruction) if 0 < len(instruction) <= 2 * SHOWN_SCHEMA else list(chat)


def with_instruction(chat: Sequence[ChatMessage], instruction: str) -> list[ChatMessage]:
    """Return the conversation with the instruction at the end of the last message, if that is a user message, or else
    in a new user message. Many templates do not accept two messages of the same role in a row."""
    last = chat[-1] if chat else {}
    if last.get("role") != "user" or not isinstance(last["content"], str):
        return [*chat, {"role": "user", "content": instruction}]
    return [*chat[:-1], {**last, "content": f"{last['content']}\n\n{instruction}"}]


async def stream_formatted(prompt: str, request: EngineRequest, completer: Completer) -> AsyncGenerator[Chunk, None]:
    """Yield a text answer in the format of ``request.output``: its deltas, then its EndChunk.

    Raises InvalidRequest before the first delta. If the complete text does not fit the format, raises OutputInvalid
    instead of yielding the EndChunk. An answer cut by the token limit is not checked; its EndChunk states ``length``.
    Stop strings do not apply: the format determines where the answer ends.
    """
    assert request.output is not None
    grammar = grammar_of(request.output, request.sampling.max_tokens)
    completion = DecodedCompletion(prompt)
    decoding = replace(decoding_options(request.sampling), grammar=grammar)
    async with aclosing(completer.stream(completion, decoding)) as deltas:
        async for delta in deltas:
            yield delta
    if completion.finish != "length":
        check(request.output, completion.text)
    yield EndChunk(completion.finish, completion.usage)


def _misfit(schema: Mapping[str, Any], text: str) -> str:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        value = json.loads(text)
        error = best_match(Draft202012Validator(dict(schema), registry=Registry()).iter_errors(value))
    except (ValueError, RecursionError, Unresolvable) as error_:
        return f"{type(error_).__name__}: {error_}"
    return str(error.message) if error is not None else ""


def _regexes(schema: Any) -> Iterator[str]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), Mapping):
            yield from schema["patternProperties"]
    children = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    for child in children:
        yield from _regexes(child)
