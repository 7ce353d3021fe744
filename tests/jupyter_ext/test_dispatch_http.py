"""Tests functions of a client that the server runs: calls go through the gate to its dispatch_url, for the official
clients of every dialect; and which calls still return to the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import anthropic
import openai
import pytest

from tests.http_server import Answer, http_server
from tests.server import TOKEN, AgentServer, Json

SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT: Any = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
FLAT: Any = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
BLOCK: Any = [{"name": "weather", "input_schema": SCHEMA}]
ULM: Json = {"name": "weather", "arguments": {"city": "Ulm"}}
SCRIPT: list[Json] = [
    *[{"calls": [ULM], "when": f"weather {number:03}"} for number in range(100)],
    {"text": "Sunny in Ulm.", "loop": True},
]
NUMBERS = itertools.count()
Posts: TypeAlias = list[Json]


class Ways:
    """Sends one request in each dialect and returns the answer and the calls that the client has to run. ``closing``
    closes the clients.
    """

    def __init__(self, server: AgentServer, closing: contextlib.ExitStack) -> None:
        given: Any = {"api_key": TOKEN, "max_retries": 0}
        self.openai = closing.enter_context(openai.OpenAI(base_url=server.agent_url, **given))
        self.anthropic = closing.enter_context(anthropic.Anthropic(base_url=f"{server.url}agent", **given))

    def chat(self, model: str, tools: Any = CHAT, **extra: Any) -> tuple[str, list[str]]:
        create: Any = self.openai.chat.completions.create
        said = create(model=model, messages=words(), tools=tools, extra_body=extra).choices[0].message
        return said.content or "", [call.function.name for call in said.tool_calls or ()]

    def responses(self, model: str, **extra: Any) -> tuple[str, list[str]]:
        create: Any = self.openai.responses.create
        said = create(model=model, input=words(), tools=FLAT, extra_body=extra)
        return said.output_text, [item.name for item in said.output if item.type == "function_call"]

    def messages(self, model: str, **extra: Any) -> tuple[str, list[str]]:
        create: Any = self.anthropic.messages.create
        blocks = create(model=model, max_tokens=100, messages=words(), tools=BLOCK, extra_body=extra).content
        text = "".join(block.text for block in blocks if block.type == "text")
        return text, [block.name for block in blocks if block.type == "tool_use"]


def words() -> Any:
    return [{"role": "user", "content": f"weather {next(NUMBERS):03}"}]


@pytest.fixture(scope="module")
def program() -> Iterator[tuple[str, Posts]]:
    """Another program on this machine that runs calls: its URL, and the bodies that it received."""
    posts: Posts = []

    def answer(path: str, body: bytes) -> Answer:
        posts.append(json.loads(body))
        return 200, {}, b'{"content": "sunny"}'

    with http_server(answer) as url:
        yield f"{url}/tools", posts


@pytest.fixture
def posts(program: tuple[str, Posts]) -> Posts:
    program[1].clear()
    return program[1]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory, program: tuple[str, Posts]) -> Iterator[Callable[..., Ways]]:
    """``ways(**traits)`` returns the clients of a server that dispatches calls; equal traits share one server."""
    servers: dict[str, AgentServer] = {}
    closing = contextlib.ExitStack()

    def of(**traits: Any) -> Ways:
        name = json.dumps(traits, sort_keys=True)
        if name not in servers:
            given = {"dispatch_url": program[0], **traits}
            servers[name] = AgentServer(tmp_path_factory.mktemp("server"), SCRIPT, given)
            asyncio.run(servers[name].start())
            closing.callback(servers[name].sweep)
        return Ways(servers[name], closing)

    with closing:
        yield of


AUTO: Mapping[str, Any] = {"policy": {"dispatch": "auto"}}
DIALECTS = pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])


@DIALECTS
@pytest.mark.parametrize("model", ["default", "agent/default"])
def test_functions_are_dispatched_where_the_request_has_rounds(
    ways: Callable[..., Ways], posts: Posts, dialect: str, model: str
) -> None:
    assert getattr(ways(**AUTO), dialect)(model, max_tool_rounds=3) == ("Sunny in Ulm.", [])
    assert posts == [ULM]


@DIALECTS
@pytest.mark.parametrize("rounds", [{}, {"max_tool_rounds": 0}], ids=["no rounds named", "0 rounds"])
def test_functions_return_to_a_client_that_wants_no_rounds(
    ways: Callable[..., Ways], posts: Posts, dialect: str, rounds: Json
) -> None:
    assert getattr(ways(**AUTO), dialect)("agent/default", **rounds)[1] == ["weather"]
    assert posts == []


@pytest.mark.parametrize(
    "traits",
    [{"dispatch_url": ""}, {"tools": "python"}, {"local_only": "true", "dispatch_url": "https://tools.example/"}],
    ids=["no url", "no group", "not reachable"],
)
def test_functions_return_to_the_client_of_a_server_that_can_not_dispatch(
    ways: Callable[..., Ways], posts: Posts, traits: Mapping[str, Any]
) -> None:
    there = ways(**AUTO, **traits)
    for dialect in ("chat", "responses", "messages"):
        assert getattr(there, dialect)("default", max_tool_rounds=3)[1] == ["weather"]
    assert posts == []


@DIALECTS
def test_dispatch_passes_the_gate(ways: Callable[..., Ways], posts: Posts, dialect: str) -> None:
    """By default a person is asked, and a client that does not follow cannot be."""
    assert getattr(ways(), dialect)("default", max_tool_rounds=3) == ("Sunny in Ulm.", [])
    assert posts == []


def test_a_client_that_follows_is_asked_before_a_call_is_dispatched(ways: Callable[..., Ways], posts: Posts) -> None:
    client = ways().openai
    create: Any = client.chat.completions.create
    asked = 0
    for chunk in create(model="default", messages=words(), tools=CHAT, stream=True, extra_body={"max_tool_rounds": 1}):
        if getattr(chunk, "type", "") == "agentic_tool_approval_required":
            asked += 1
            assert posts == []
            client.post(f"agent/approvals/{chunk.approval_id}", body={"decision": "approve"}, cast_to=object)
    assert asked == 1
    assert posts == [ULM]


def test_an_allowed_function_is_dispatched_alone(ways: Callable[..., Ways], posts: Posts) -> None:
    only = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": CHAT}}
    assert ways(**AUTO).chat("agent/default", max_tool_rounds=3, tool_choice=only) == ("Sunny in Ulm.", [])
    assert posts == [ULM]


def test_a_dispatched_function_does_not_take_the_name_of_a_tool_of_the_server(
    ways: Callable[..., Ways], posts: Posts
) -> None:
    tools = [{"type": "function", "function": {"name": "python", "parameters": SCHEMA}}]
    with pytest.raises(openai.BadRequestError, match="python"):
        ways(**AUTO).chat("agent/default", tools=tools, max_tool_rounds=3)
    assert posts == []
