"""Tests ``chat/completions`` with ``n`` above 1, with OpenAI's official client on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion

from agent_kernel.core.settings import Settings
from tests.jupyter_ext.chat import Place, ask, frames, said, stream
from tests.jupyter_ext.test_metrics_http import figures, grown, of
from tests.server import TOKEN, AgentServer, Json

WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
SCRIPT: list[Json] = [
    {"text": "red", "when": "whole"},
    {"text": "blue green", "when": "whole"},
    {"text": "a b c", "deltas": 3, "delay": 0.05, "when": "pieces"},
    {"text": "d e f", "deltas": 3, "delay": 0.05, "when": "pieces"},
    {"text": '{"city": "Ulm", "people": 3}', "when": "as JSON", "loop": True},
    {"calls": [{"name": "weather", "arguments": {"city": "Ulm"}}], "when": "weather"},
    {"calls": [{"name": "weather", "arguments": {"city": "Oslo"}}], "when": "weather"},
    {"text": "broken", "fault": "The model is broken.", "delay": 0.2, "when": "one breaks"},
    {"text": "broken", "fault": "The model is broken.", "delay": 0.2, "when": "one hangs"},
    {"text": "broken", "fault": "The model is broken.", "delay": 0.2, "when": "another breaks"},
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "Hello.", "loop": True},
]


def by_choice(chunks: list[Any]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    return texts


def test_a_completion_has_one_choice_for_each_answer(client: openai.OpenAI) -> None:
    single = ask(client, "a prompt")
    answer = ask(client, "whole", n=2, logprobs=True)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert {choice.message.content for choice in answer.choices} == {"red", "blue green"}
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert "".join(token.token for token in choice.logprobs.content or ()) == choice.message.content
    assert answer.usage is not None
    assert single.usage is not None
    assert answer.usage.completion_tokens == 3
    assert answer.usage.prompt_tokens < 2 * single.usage.prompt_tokens, "the prompt counts once"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 3


def test_the_chunks_of_a_stream_belong_to_their_choices(client: openai.OpenAI) -> None:
    chunks = stream(client, "pieces", n=2, stream_options={"include_usage": True})
    assert set(by_choice(chunks).values()) == {"a b c", "d e f"}
    assert len({chunk.id for chunk in chunks}) == 1
    roles = [choice.index for chunk in chunks for choice in chunk.choices if choice.delta.role]
    ends = [choice.index for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert (roles, sorted(ends)) == ([0, 1], [0, 1])
    (last,) = [chunk for chunk in chunks if chunk.usage is not None]
    assert last.usage is not None
    assert (last.choices, last.usage.completion_tokens) == ([], 6)


def test_usage_that_was_not_asked_for_is_in_the_last_chunk_only(client: openai.OpenAI) -> None:
    chunks = stream(client, "hi", n=3)
    assert by_choice(chunks) == dict.fromkeys(range(3), "Hello.")
    assert [index for index, chunk in enumerate(chunks) if chunk.usage] == [len(chunks) - 1]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3


def test_the_client_collects_and_parses_the_choices(client: openai.OpenAI) -> None:
    whole = client.chat.completions.parse(model="default", messages=said("as JSON"), response_format=Place, n=2)
    assert [choice.message.parsed for choice in whole.choices] == [Place(city="Ulm", people=3)] * 2
    with client.chat.completions.stream(
        model="default", messages=said("as JSON"), response_format=Place, n=2
    ) as events:
        final = events.get_final_completion()
    assert [choice.message.parsed for choice in final.choices] == [Place(city="Ulm", people=3)] * 2


def test_each_choice_has_its_own_calls(client: openai.OpenAI) -> None:
    answer = ask(client, "weather", n=2, tools=[WEATHER])
    calls = [call for choice in answer.choices for call in choice.message.tool_calls or ()]
    assert len({call.id for call in calls}) == 2
    assert {call.function.arguments for call in calls if call.type == "function"} == {
        '{"city": "Ulm"}',
        '{"city": "Oslo"}',
    }
    assert [choice.finish_reason for choice in answer.choices] == ["tool_calls"] * 2


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"n": 9}, "n"),
        ({"n": 0}, "n"),
        ({"n": 2, "session_id": "chosen"}, "in a session"),
        ({"n": 2, "model": "agent/default"}, "tools of the server"),
        ({"n": 2, "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, "tools of the server"),
    ],
)
def test_what_several_choices_cannot_be_is_refused(http: httpx.Client, more: Json, words: str, streams: bool) -> None:
    reply = http.post("agent/v1/chat/completions", json={"messages": said("hi"), "stream": streams, **more})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"], words in error["message"]) == (400, "n", True), reply.text
    assert http.get("agent/v1/sessions/chosen").status_code == 404


async def test_the_failure_of_one_choice_ends_the_request_and_stops_the_others(server: AgentServer) -> None:
    async with (
        server.client() as http,
        openai.AsyncOpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0) as client,
    ):
        with pytest.raises(openai.InternalServerError, match="broken"):
            await client.chat.completions.create(model="default", messages=said("one breaks"), n=2)
        before = await figures(http)
        chunks = await client.chat.completions.create(
            model="default", messages=said("one hangs, hang"), n=3, stream=True
        )
        with pytest.raises(openai.APIError, match="broken"):
            [chunk async for chunk in chunks]
        await until_idle(http)
        after = await figures(http)
        assert grown(before, after, "turns_total", state="cancelled") == 2


async def until_idle(http: httpx.AsyncClient) -> None:
    async with asyncio.timeout(20):
        while of(await figures(http), "turns_running"):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("prompt", ["hi", "another breaks"])
def test_a_stream_has_one_end(http: httpx.Client, prompt: str) -> None:
    events = [data for _, data in frames(http, messages=said(prompt), n=2)]
    assert (events.index("[DONE]"), '"error"' in events[-2]) == (len(events) - 1, prompt != "hi")


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_leaves_stops_all_choices(server: AgentServer, streams: bool) -> None:
    async with server.client() as http:
        before = await figures(http)
        body = {"messages": said("hang"), "n": 4, "stream": streams}
        asking = asyncio.create_task(http.post("agent/v1/chat/completions", json=body))
        async with asyncio.timeout(20):
            while of(await figures(http), "turns_running") < 4:
                await asyncio.sleep(0.05)
        asking.cancel()
        await until_idle(http)
        assert grown(before, await figures(http), "turns_total", state="cancelled") == 4


async def test_a_repeated_request_with_a_key_gets_the_same_choices(server: AgentServer) -> None:
    body = {"model": "default", "messages": said("hi"), "n": 3}
    async with server.client(headers={"Idempotency-Key": "three"}) as http:
        before = await figures(http)
        first, second = [await http.post("agent/v1/chat/completions", json=body) for _ in range(2)]
        assert second.headers["Idempotent-Replayed"] == "true"
        assert first.json() == second.json()
        assert grown(before, await figures(http), "turns_total") == 3


# With a model of this machine.


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    traits = {"engine": "local", "model": "tiny", "cache_dir": str(Settings.from_env().cache_dir)}
    server = AgentServer(tmp_path_factory.mktemp("local"), traits=traits)
    try:
        yield asyncio.run(server.start())
    finally:
        server.sweep()


@pytest.mark.model("tiny")
async def test_a_local_model_samples_different_choices_and_computes_their_prompt_once(local: AgentServer) -> None:
    prompt = "Write a story. " + " ".join(f"The hero has {number} friends." for number in range(100))
    options: Any = {"model": "default", "messages": said(prompt), "n": 4, "max_tokens": 12, "seed": 1}
    async with (
        local.client() as http,
        openai.AsyncOpenAI(base_url=local.agent_url, api_key=TOKEN, max_retries=0, timeout=120) as client,
    ):
        before = await figures(http)
        answer = await client.chat.completions.create(**options)
        after = await figures(http)
        single = await client.chat.completions.create(**options | {"n": 1})
    texts = texts_of(answer)
    assert len(set(texts)) > 1
    assert texts_of(single) == texts[:1], "the first choice is the answer that the request gets without n"
    assert answer.usage is not None
    length = answer.usage.prompt_tokens
    assert grown(before, after, "tokens_total", kind="prompt") == 4 * length
    computed = 4 * length - grown(before, after, "tokens_total", kind="reused")
    assert computed < 1.2 * length, f"{computed} of {length} tokens were computed for 4 choices"


def texts_of(completion: ChatCompletion) -> list[str]:
    return [choice.message.content or "" for choice in completion.choices]
