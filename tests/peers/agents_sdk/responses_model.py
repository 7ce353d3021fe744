"""Runs unmodified agents over ``responses``; ``tests/peers/test_agents_responses.py`` starts a server and runs this
file.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from agents import Agent, OpenAIResponsesModel, Runner, ShellTool, function_tool
from openai import AsyncOpenAI


@pytest.fixture
async def client() -> AsyncIterator[AsyncOpenAI]:
    url, token = os.environ["AGENT_SERVER_URL"], os.environ["AGENT_SERVER_TOKEN"]
    async with AsyncOpenAI(base_url=url, api_key=token, max_retries=0) as client:
        yield client


@function_tool
def weather(city: str) -> str:
    """How it is there."""
    return f"20 degrees in {city}"


@pytest.fixture
def adviser(client: AsyncOpenAI) -> Agent:
    model = OpenAIResponsesModel("default", client)
    return Agent(name="adviser", instructions="Help.", model=model, tools=[weather])


@pytest.fixture
def computer(client: AsyncOpenAI) -> Agent:
    return Agent(name="computer", model=OpenAIResponsesModel("agent/default", client))


@pytest.fixture
def shell(client: AsyncOpenAI) -> Agent:
    model = OpenAIResponsesModel("default", client)
    return Agent(name="shell", model=model, tools=[ShellTool(environment={"type": "container_auto"})])


async def test_a_function_is_called_and_its_result_brought(adviser: Agent) -> None:
    done = await Runner.run(adviser, "weather whole")
    assert done.final_output == "Sunny."
    assert [item.type for item in done.new_items] == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert done.new_items[1].output == "20 degrees in Ulm"
    then = await Runner.run(adviser, [*done.to_input_list(), {"role": "user", "content": "and then?"}])
    assert then.final_output == "Hello."


async def test_a_function_is_called_while_the_answer_is_streamed(adviser: Agent) -> None:
    run = Runner.run_streamed(adviser, "weather streamed")
    kinds = [event.data.type async for event in run.stream_events() if event.type == "raw_response_event"]
    assert run.final_output == "Sunny."
    assert kinds.count("response.completed") == 2


async def test_the_server_keeps_the_conversation(adviser: Agent, client: AsyncOpenAI) -> None:
    first = await Runner.run(adviser, "weather kept", auto_previous_response_id=True)
    assert first.final_output == "Sunny."
    then = await Runner.run(adviser, "and then?", previous_response_id=first.last_response_id)
    assert then.final_output == "Hello."
    talk = await client.conversations.create()
    assert (await Runner.run(adviser, "hello", conversation_id=talk.id)).final_output == "Hello."


@pytest.mark.parametrize("streamed", [False, True])
async def test_tools_of_the_server_run_there(computer: Agent, streamed: bool) -> None:
    if streamed:
        run = Runner.run_streamed(computer, "compute streamed")
        kinds = [event.data.type async for event in run.stream_events() if event.type == "raw_response_event"]
        assert "response.code_interpreter_call.completed" in kinds
        done = run
    else:
        done = await Runner.run(computer, "compute whole")
    assert done.final_output == "It is 42."
    assert "tool_call_item" in [item.type for item in done.new_items]
    then = await Runner.run(computer, [*done.to_input_list(), {"role": "user", "content": "and then?"}])
    assert then.final_output == "Hello."


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_hosted_shell_runs_on_the_server(shell: Agent, streamed: bool) -> None:
    if streamed:
        done = Runner.run_streamed(shell, "list streamed")
        async for _ in done.stream_events():
            pass
    else:
        done = await Runner.run(shell, "list whole")
    assert done.final_output == "Listed."
    kinds = [getattr(item.raw_item, "type", None) or item.raw_item.get("type") for item in done.new_items]
    assert kinds == ["shell_call", "shell_call_output", "message"]
    then = await Runner.run(shell, [*done.to_input_list(), {"role": "user", "content": "and then?"}])
    assert then.final_output == "Hello."
