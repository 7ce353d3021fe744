"""Tests the native protocol with real models in a real worker: constrained calls validate, and computed prefixes are
reused.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import jsonschema
import pytest
import pytest_asyncio

from agent_kernel.core.messages import Message, ToolCall, assistant, system, tool_result, user
from agent_kernel.core.protocols import (
    CallChunk,
    EndChunk,
    EngineRequest,
    Sampling,
    TextChunk,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.worker.local_engine import LocalEngine
from agent_kernel.permissions import Approvals, Gate
from agent_kernel.sessions.store.memory import MemoryStore
from agent_kernel.turn.agent import Agent, TurnRequest

pytestmark = [pytest.mark.asyncio(loop_scope="module")]
CACHE = Settings.from_env().cache_dir
BLOCK = 32
FORECAST = ToolSpec(
    "get_forecast",
    "The weather of a city in the next days.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1, "maxLength": 24},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
            "unit": {"$ref": "#/$defs/unit"},
        },
        "required": ["city", "days", "unit"],
        "additionalProperties": False,
        "$defs": {"unit": {"enum": ["C", "F"]}},
    },
    kind="test",
)
ADD = ToolSpec(
    "add",
    "Adds two integers.",
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
    kind="test",
)
ASKED = (
    system("You are an assistant inside a Jupyter notebook. You call tools for what you do not know."),
    user("What is the weather in Oslo like in the next 3 days, in degrees Celsius?"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["tiny", "coder-0.5b"])
async def engine(request: pytest.FixtureRequest) -> AsyncGenerator[LocalEngine, None]:
    """The engine of a model given by its path, so that the catalog chooses no tool protocol for it."""
    found = catalog.resolve(request.param, CACHE)
    made = LocalEngine(str(found.path), CACHE)
    yield made
    await made.aclose()


class Round:
    def __init__(self, text: str, calls: list[ToolCall], end: EndChunk) -> None:
        self.text, self.calls, self.usage, self.reason = text, calls, end.usage, end.reason

    @property
    def messages(self) -> list[Message]:
        results = [tool_result(call, "3 to 7 degrees, snow", "success") for call in self.calls]
        return [assistant(self.text, self.calls), *(results or [user("And in Rome?")])]


async def ask(engine: LocalEngine, *messages: Message, **facts: Any) -> Round:
    request = EngineRequest(messages, (FORECAST, ADD), Sampling(max_tokens=160), **facts)
    async with aclosing(engine.stream(request)) as stream:
        chunks = [chunk async for chunk in stream]
    assert isinstance(chunks[-1], EndChunk)
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))
    return Round(text, [chunk.call for chunk in chunks if isinstance(chunk, CallChunk)], chunks[-1])


@pytest.mark.model("tiny", "coder-0.5b")
@pytest.mark.parametrize("choice", ["required", "get_forecast", "add"])
async def test_a_forced_call_validates_and_its_prefix_is_used_again(engine: LocalEngine, choice: str) -> None:
    first = await ask(engine, *ASKED, tool_choice=choice)

    [call] = first.calls
    spec = {"get_forecast": FORECAST, "add": ADD}[call.name]
    assert choice in ("required", call.name)
    assert (first.text, first.reason) == ("", "calls")
    jsonschema.validate(dict(call.arguments), dict(spec.parameters))

    second = await ask(engine, *ASKED, *first.messages)
    assert second.usage.reused_tokens >= first.usage.prompt_tokens + first.usage.completion_tokens - 2 * BLOCK


@pytest.mark.model("tiny", "coder-0.5b")
async def test_what_a_free_answer_computed_is_used_again(engine: LocalEngine) -> None:
    first = await ask(engine, *ASKED)

    second = await ask(engine, *ASKED, *first.messages)

    assert second.usage.reused_tokens >= first.usage.prompt_tokens + first.usage.completion_tokens - 2 * BLOCK


@pytest.mark.model("tiny", "coder-0.5b")
async def test_tools_that_may_not_be_called_leave_the_prefix_as_it_is(engine: LocalEngine) -> None:
    free = await ask(engine, *ASKED)

    none = await ask(engine, *ASKED, tool_choice="none")

    assert none.calls == []
    assert none.text
    assert none.usage.prompt_tokens == free.usage.prompt_tokens
    assert none.usage.reused_tokens >= free.usage.prompt_tokens - BLOCK


class Adder:
    """The tool ``add``, which records what it added."""

    spec = ADD

    def __init__(self) -> None:
        self.added: list[Mapping[str, Any]] = []

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        self.added.append(arguments)
        return ToolOutput(str(arguments["a"] + arguments["b"]))


@pytest.mark.model("coder-0.5b")
@pytest.mark.parametrize("engine", ["coder-0.5b"], indirect=True)
async def test_a_whole_turn_makes_its_call_and_answers_from_the_result(engine: LocalEngine) -> None:
    tool, store = Adder(), MemoryStore()
    agent = Agent(store, engine, "native", [tool], gate=Gate(Approvals(), policy={"test": "auto"}))

    asked = TurnRequest("Add 3 and 4.", tool_choice="add", max_tool_rounds=1, sampling=Sampling(max_tokens=60))
    result = await agent.run(asked)

    assert (result.state, result.rounds, len(tool.added)) == ("committed", 1, 1)
    assert tool.added[0].keys() == {"a", "b"}
    roles = [item.message.role for item in await store.latest(agent.key)]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert result.text


@pytest.mark.model("coder-0.5b")
@pytest.mark.parametrize("engine", ["coder-0.5b"], indirect=True)
async def test_a_coder_calls_a_tool_of_its_own_accord(engine: LocalEngine) -> None:
    first = await ask(engine, *ASKED)

    assert [call.name for call in first.calls] == ["get_forecast"]
    assert first.calls[0].arguments["city"] == "Oslo"
