"""Measures how often a small model's native tool call is right: parsed strictly, parsed leniently, and constrained by a
grammar.

AGENT_KERNEL_BENCH_MODEL chooses the model. Greedy decoding, one round, four tools; a call is right if its tool and
every argument that the question determines are right. The table goes to build/benchmarks/native_calls.json.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agent_kernel.core.messages import ToolCall, system, user
from agent_kernel.core.protocols import CallChunk, EngineRequest, Sampling, ToolSpec
from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.backend import DecodingOptions, LoadedModel, LoadOptions
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.decoding.completion import Completer, DecodedCompletion
from agent_kernel.engines.local.decoding.decoder import Decoder
from agent_kernel.engines.local.tool_calling.call_parser import MARKS, CallParser
from agent_kernel.engines.local.tool_calling.native_prompt import chat
from agent_kernel.engines.local.tool_calling.native_protocol import Native
from agent_kernel.engines.local.tool_calling.template_probe import TemplateProbe, probe
from agent_kernel.engines.local.worker.backends import backend_for
from agent_kernel.turn.context import INSTRUCTIONS

MODEL = os.environ.get("AGENT_KERNEL_BENCH_MODEL", "coder-0.5b")
BUILD = Path(__file__).parents[2] / "build" / "benchmarks"
STRICT = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)


def tool(name: str, description: str, required: int = 1, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:required]}
    return ToolSpec(name, description, schema, kind="test")


TEXT, WHOLE = {"type": "string", "maxLength": 60}, {"type": "integer"}
TOOLS = (
    tool("get_weather", "The weather of a city now.", city=TEXT, unit={"enum": ["C", "F"]}),
    tool("read_file", "The text of a file in the work directory.", path=TEXT, lines=WHOLE),
    tool("web_search", "Searches the web.", query=TEXT),
    tool("set_timer", "Rings after some minutes.", minutes=WHOLE, label=TEXT),
)
TASKS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("What is the weather in Oslo?", "get_weather", {"city": "Oslo"}),
    ("How warm is it in Rome now, in Celsius?", "get_weather", {"city": "Rome", "unit": "C"}),
    ("Is it raining in Lima?", "get_weather", {"city": "Lima"}),
    ("Tell me the temperature in Boston in Fahrenheit.", "get_weather", {"city": "Boston", "unit": "F"}),
    ("What is in notes.txt?", "read_file", {"path": "notes.txt"}),
    ("Show me the first 5 lines of data/sales.csv.", "read_file", {"path": "data/sales.csv", "lines": 5}),
    ("Read config.toml, please.", "read_file", {"path": "config.toml"}),
    ("Open the file report.md.", "read_file", {"path": "report.md"}),
    ("Search the web for the release date of Python 3.15.", "web_search", {}),
    ("Look up on the web who won the last chess world championship.", "web_search", {}),
    ("Find recent articles about sea ice on the internet.", "web_search", {}),
    ("Search for cheap flights to Madrid.", "web_search", {}),
    ("Set a timer for 10 minutes.", "set_timer", {"minutes": 10}),
    ("Remind me in 25 minutes that the tea is ready.", "set_timer", {"minutes": 25}),
    ("Start a timer of 3 minutes called eggs.", "set_timer", {"minutes": 3, "label": "eggs"}),
    ("Ring in 90 minutes.", "set_timer", {"minutes": 90}),
)
CHATS = (
    "Hello!",
    "Thanks, that was all.",
    "What does HTTP stand for?",
    "Say good night in French.",
    "How much is 2 + 2?",
    "Name three primary colours.",
)


def right(calls: list[ToolCall], name: str, arguments: Mapping[str, Any]) -> bool:
    if len(calls) != 1 or calls[0].name != name:
        return False
    return all(calls[0].arguments.get(key) == value for key, value in arguments.items())


def strictly(text: str) -> list[ToolCall]:
    """Parse only JSON between tags, the format that the chat template asks for. Return no calls if anything is
    malformed.
    """
    calls = []
    for body in STRICT.findall(text):
        try:
            value = json.loads(body)
            calls.append(ToolCall("", value["name"], dict(value["arguments"])))
        except (ValueError, KeyError, TypeError):
            return []
    return calls


def leniently(text: str) -> list[ToolCall]:
    parser = CallParser([spec.name for spec in TOOLS])
    parts = [*parser.push(text), *parser.finish()]
    return [part.call for part in parts if isinstance(part, CallChunk)]


class Asked:
    """Asks one model for calls, unconstrained and constrained by a grammar."""

    def __init__(self, completer: Completer, template: TemplateProbe, loaded: LoadedModel) -> None:
        self.completer = completer
        self.template = template
        self.native = Native(loaded, fences=False)

    async def freely(self, question: str) -> str:
        shown = chat((system(INSTRUCTIONS), user(question)), TOOLS, self.template, lambda message: None)
        prompt = await self.completer.render(shown, [tool.to_json() for tool in TOOLS] if self.template.tools else ())
        completion = DecodedCompletion(prompt)
        async with aclosing(self.completer.stream(completion, DecodingOptions(max_tokens=96), marks=MARKS)) as deltas:
            async for _ in deltas:
                pass
        return completion.text

    async def forced(self, question: str) -> list[ToolCall]:
        request = EngineRequest(
            (system(INSTRUCTIONS), user(question)), TOOLS, Sampling(max_tokens=96), tool_choice="required"
        )
        async with aclosing(self.native.stream(request, self.completer)) as chunks:
            return [chunk.call async for chunk in chunks if isinstance(chunk, CallChunk)]


async def model() -> Asked:
    cache = Settings.from_env().cache_dir
    found = catalog.resolve(MODEL, cache)
    options = LoadOptions(cache_gb=1)
    backend = backend_for(found.path, options, cache)
    loaded = backend.load(found.path, options, lambda stage, fraction: None)
    completer = Completer(Decoder(backend, _raise), backend, loaded, found.context_length)
    return Asked(completer, await probe(completer.render), loaded)


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.model("coder-0.5b")
@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_lenient_reading_finds_the_calls_that_strict_reading_loses(capsys: pytest.CaptureFixture[str]) -> None:
    asked = await model()
    counts = {"strict": 0, "lenient": 0, "forced": 0, "forced and parsed": 0, "false calls in chats": 0}
    answers: dict[str, Any] = {}
    for question, name, arguments in TASKS:
        text = await asked.freely(question)
        forced = await asked.forced(question)
        answers[question] = [text, [[call.name, dict(call.arguments)] for call in forced]]
        counts["strict"] += right(strictly(text), name, arguments)
        counts["lenient"] += right(leniently(text), name, arguments)
        counts["forced"] += right(forced, name, arguments)
        counts["forced and parsed"] += len(forced) == 1 and "_raw" not in forced[0].arguments
    for question in CHATS:
        text = answers[question] = await asked.freely(question)
        counts["false calls in chats"] += bool(leniently(text))

    BUILD.mkdir(parents=True, exist_ok=True)
    report = {"model": MODEL, "tasks": len(TASKS), "chats": len(CHATS), "right": counts, "answers": answers}
    (BUILD / "native_calls.json").write_text(json.dumps(report, indent=2, ensure_ascii=False), encoding="utf-8")
    with capsys.disabled():
        print(f"\n{MODEL}: of {len(TASKS)} tasks and {len(CHATS)} chats: {counts}")
    assert counts["lenient"] >= counts["strict"]
    assert counts["forced and parsed"] == len(TASKS)
