"""Tests answers and calls under a grammar, decoded by a real, very small model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator

from agent_kernel.core.errors import InvalidRequest, OutputInvalid
from agent_kernel.core.messages import user
from agent_kernel.core.protocols import (
    CallChunk,
    Chunk,
    EndChunk,
    EngineRequest,
    OutputFormat,
    Sampling,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent, TurnRequest
from tests.engines.openai_api.talk import text_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.model("tiny")]
SEARCH_SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 30},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20},
        "when": {"type": "string", "format": "date"},
    },
    "required": ["query", "limit"],
}
PYTHON = ToolSpec("python", "Runs code.", {"type": "object"}, kind="python.sandbox")
SEARCH = ToolSpec("search", "Searches the web.", SEARCH_SCHEMA, kind="function")
CLOCK = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {}}, kind="function")
ODD = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 6, "multipleOf": 7}}, "required": ["n"]}  # fmt: skip  # noqa: E501


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncGenerator[LocalEngine, None]:
    made = LocalEngine("tiny", Settings.from_env().cache_dir)
    yield made
    await made.aclose()


async def ask_engine(engine: LocalEngine, asked: str = "Find pages about foxes.", **given: Any) -> list[Chunk]:
    request = EngineRequest((user(asked),), **{"sampling": Sampling(max_tokens=120)} | given)
    async with aclosing(engine.stream(request)) as chunks:
        return [chunk async for chunk in chunks]


def calls_of(chunks: list[Chunk]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(chunk.call.name, chunk.call.arguments) for chunk in chunks if isinstance(chunk, CallChunk)]


def reason(chunks: list[Chunk]) -> str:
    assert isinstance(chunks[-1], EndChunk)
    return chunks[-1].reason


async def test_formats_of_all_kinds_stand_side_by_side_in_one_batch(engine: LocalEngine) -> None:
    outputs = [
        OutputFormat("json_schema", json_schema=SEARCH_SCHEMA),
        OutputFormat("choice", choice=("yes", "no")),
        OutputFormat("regex", regex=r"[A-Z][a-z]{2,8} \d{2}"),
    ]
    found = await asyncio.gather(
        *(ask_engine(engine, output=output) for output in outputs), ask_engine(engine, "Tell a story.")
    )

    schema, choice, regex, free = map(text_of, found)
    Draft202012Validator(SEARCH_SCHEMA).validate(json.loads(schema))
    assert choice in ("yes", "no")
    assert regex[0].isupper()
    assert regex[-2:].isdigit()
    assert free


async def test_a_json_object_of_any_kind_ends(engine: LocalEngine) -> None:
    chunks = await ask_engine(engine, output=OutputFormat("json_object"), sampling=Sampling(max_tokens=1024))

    assert isinstance(json.loads(text_of(chunks)), dict)
    assert reason(chunks) == "stop"


async def test_an_answer_cut_by_the_limit_of_tokens_ends_with_length(engine: LocalEngine) -> None:
    output = OutputFormat("json_schema", json_schema=SEARCH_SCHEMA)
    chunks = await ask_engine(engine, output=output, sampling=Sampling(max_tokens=4))

    assert reason(chunks) == "length"


async def test_what_the_grammar_does_not_enforce_is_judged_afterwards(engine: LocalEngine) -> None:
    with pytest.raises(OutputInvalid) as caught:
        await ask_engine(engine, output=OutputFormat("json_schema", json_schema=ODD))

    assert "multiple of 7" in caught.value.details["reason"]
    assert json.loads(caught.value.details["text"])["n"] in range(1, 7)


async def test_a_named_tool_is_called_with_arguments_that_fit(engine: LocalEngine) -> None:
    chunks = await ask_engine(engine, tools=(PYTHON, SEARCH), tool_choice="search")

    [(name, arguments)] = calls_of(chunks)
    assert name == "search"
    Draft202012Validator(SEARCH_SCHEMA).validate(arguments)
    assert reason(chunks) == "calls"


async def test_one_of_the_tools_is_called_when_one_must_be(engine: LocalEngine) -> None:
    [(name, _)] = calls_of(await ask_engine(engine, tools=(CLOCK, SEARCH), tool_choice="required"))

    assert name in ("clock", "search")


async def test_a_call_that_was_cut_is_not_made(engine: LocalEngine) -> None:
    chunks = await ask_engine(engine, tools=(SEARCH,), tool_choice="search", sampling=Sampling(max_tokens=3))

    assert calls_of(chunks) == []
    assert reason(chunks) == "length"


async def test_none_means_words(engine: LocalEngine) -> None:
    asked = "Print the numbers from 1 to 10 with Python."
    chunks = await ask_engine(engine, asked, tools=(PYTHON,), tool_choice="none")

    assert calls_of(chunks) == []
    assert text_of(chunks)


async def test_python_is_called_as_code(engine: LocalEngine) -> None:
    [(name, arguments)] = calls_of(await ask_engine(engine, "Hello!", tools=(PYTHON, SEARCH), tool_choice="required"))

    assert name == "python"
    assert set(arguments) == {"code"}


@pytest.mark.parametrize(
    "given",
    [
        {"tool_choice": "required"},
        {"tools": (SEARCH,), "tool_choice": "shell"},
        {"tools": (SEARCH,), "tool_choice": "required", "output": OutputFormat("json_object")},
        {"output": OutputFormat("json_schema", json_schema={"$ref": "https://example.com/a.json"})},
        {"output": OutputFormat("regex", regex="(a+)+b")},
        {"output": OutputFormat("choice")},
        {"tools": (PYTHON,), "output": OutputFormat("json_schema", json_schema={"type": "cat"})},
    ],
    ids=["no tools", "unknown tool", "call and format", "far reference", "pattern", "no choice", "no schema"],
)
async def test_contradictions_and_hostile_formats_are_refused(engine: LocalEngine, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        await ask_engine(engine, **given)

    assert text_of(await ask_engine(engine, "Hello"))


class Odd:
    """A tool whose schema has constraints that a grammar cannot express."""

    spec = ToolSpec("odd", "Takes a number.", ODD, kind="function")

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        raise AssertionError("its arguments do not fit")


async def test_arguments_that_do_not_fit_go_back_as_the_result_of_the_call(engine: LocalEngine) -> None:
    async with aclosing(MemoryStore()) as store:
        agent = Agent(store, engine, "odd", [Odd()])
        done = await agent.run(TurnRequest("Go.", tool_choice="odd", sampling=Sampling(max_tokens=60)))
        results = [item.message for item in await store.latest(agent.key) if item.message.role == "tool"]

    assert done.state == "committed"
    assert results[0].status == "error"
    assert "multiple of 7" in results[0].text
