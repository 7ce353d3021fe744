"""Tests the list of models as the official clients of OpenAI and Anthropic read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anthropic
import httpx
import openai
import pytest

from jupyter_ext.api.native.models import model_here
from tests.server import TOKEN, AgentServer

ENGINES = {"far": {"url": "https://models.example.com/v1", "model": "big", "vision": True}}
TRAITS = {"engines": ENGINES}
SCRIPT = [{"text": "Hello.", "loop": True}]


@pytest.fixture(scope="module")
def anthropics(server: AgentServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=f"{server.url}agent", api_key=TOKEN, max_retries=0) as client:
        yield client


def test_the_servers_own_engine_and_those_of_the_configuration_are_listed(client: openai.OpenAI) -> None:
    found = {model.id: model.to_dict() for model in client.models.list()}
    assert {"default", "scripted", "far", "agent/default", "agent/scripted", "agent/far"} <= set(found)
    assert (found["far"]["owned_by"], found["far"]["local"]) == ("models.example.com", False)
    assert (found["default"]["status"], found["default"]["context_length"]) == ("loaded", 32768)
    assert found["default"]["capabilities"] == {"vision": False, "tools": True, "reasoning": None, "logprobs": True}
    assert [found[name]["tools_available"] for name in ("default", "agent/default")] == [False, True]


@pytest.mark.parametrize("name", ["default", "agent/default", "far", "agent/far"])
def test_one_is_fetched_by_its_name_also_with_a_slash_in_it(
    client: openai.OpenAI, anthropics: anthropic.Anthropic, name: str
) -> None:
    assert client.models.retrieve(name).id == name
    assert anthropics.models.retrieve(name).id == name


def test_default_is_described_as_the_engine_that_answers_and_not_as_a_model_of_the_catalog(
    client: openai.OpenAI,
) -> None:
    (listed,) = (model.to_dict() for model in client.models.list() if model.id == "default")
    assert client.models.retrieve("default").to_dict() == listed


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "agent/Qwen/Qwen3-8B", "agent/scripted", "far"])
def test_nobody_is_asked_about_a_model_that_runs_elsewhere(name: str, tmp_path: Path) -> None:
    assert model_here(name, tmp_path) == {}


async def test_a_slash_may_come_as_it_is_or_by_its_number(api: httpx.AsyncClient) -> None:
    for path in ("agent/far", "agent%2Ffar", "agent%2ffar"):
        answer = await api.get(f"agent/v1/models/{path}")
        assert (answer.status_code, answer.json()["id"]) == (200, "agent/far")


@pytest.mark.parametrize("name", ["gpt-none", "agent/gpt-none"])
def test_what_there_is_not_is_a_404_that_both_clients_know(
    client: openai.OpenAI, anthropics: anthropic.Anthropic, name: str
) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve(name)
    error = refused.value
    assert (error.code, error.type, error.param) == ("unknown_model", "invalid_request_error", None)
    with pytest.raises(anthropic.NotFoundError) as unknown:
        anthropics.models.retrieve(name)
    assert unknown.value.type == "not_found_error"


def test_anthropics_list_is_of_its_own_shape(anthropics: anthropic.Anthropic) -> None:
    found = [*anthropics.models.list()]
    assert {"default", "agent/default", "far"} <= {model.id for model in found}
    assert {model.type for model in found} == {"model"}


async def test_what_the_panel_and_the_magic_read_is_there_too(api: httpx.AsyncClient) -> None:
    told = (await api.get("agent/v1/models")).json()
    assert {"models", "engines", "engine", "current"} <= set(told)
    assert told["engines"][0]["name"] == "far"
    one = (await api.get(f"agent/v1/models/{told['models'][0]['name']}")).json()
    assert {"name", "title", "licence", "state"} <= set(one)


async def test_engines_that_would_leave_a_machine_that_keeps_all_here_are_not_listed(server: AgentServer) -> None:
    other = AgentServer(server.directory / "here", SCRIPT, {**TRAITS, "local_only": True})
    other.directory.mkdir()
    with other:
        await other.start()
        async with other.client() as client:
            assert "far" not in {one["id"] for one in (await client.get("agent/v1/models")).json()["data"]}
            assert (await client.get("agent/v1/models/agent/far")).status_code == 404


async def test_no_path_of_the_servers_machine_is_told(server: AgentServer) -> None:
    async with server.client() as client:
        answers = [await client.get(f"agent/v1/{route}") for route in ("models", "models/tiny", "health")]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    interpreter = answers[-1].json()["sandbox"]["interpreter"]["detail"]
    assert interpreter.startswith("python")
    assert [text for answer in answers for text in strings(answer.json()) if text.startswith("/")] == []


def strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for one in value.values():
                yield from strings(one)
        case list():
            for one in value:
                yield from strings(one)
