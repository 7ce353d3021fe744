"""The OpenAI Agents SDK with its OpenAIChatCompletionsModel on a real server, which
``tests/jupyter_ext/test_chat_agent_http.py`` starts. The script in that file determines the answers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, SQLiteSession, function_tool, handoff
from openai import AsyncOpenAI
from pydantic import BaseModel

asked: list[str] = []


@function_tool
def weather(city: str) -> str:
    """Tells the weather of a city."""
    asked.append(city)
    return f"sunny in {city}"


class Place(BaseModel):
    city: str
    people: int


@pytest.fixture
async def client() -> AsyncIterator[AsyncOpenAI]:
    asked.clear()
    url, token = os.environ["AGENT_URL"], os.environ["AGENT_TOKEN"]
    async with AsyncOpenAI(base_url=url, api_key=token, max_retries=0) as client:
        yield client


def model(client: AsyncOpenAI, name: str = "default") -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel(model=name, openai_client=client)


async def test_an_agent_answers(client: AsyncOpenAI) -> None:
    result = await Runner.run(Agent(name="a", instructions="Be short.", model=model(client)), "hi")
    assert result.final_output == "Hello."
    assert result.context_wrapper.usage.total_tokens > 0


async def test_an_agent_answers_as_a_type(client: AsyncOpenAI) -> None:
    result = await Runner.run(Agent(name="a", model=model(client), output_type=Place), "as JSON")
    assert result.final_output == Place(city="Ulm", people=3)


async def test_functions_run_here_several_in_parallel(client: AsyncOpenAI) -> None:
    agent = Agent(name="a", model=model(client), tools=[weather])
    result = await Runner.run(agent, "sdk: weather of both")
    assert (sorted(asked), result.final_output) == (["Bonn", "Ulm"], "Sun and rain.")


@pytest.mark.parametrize("name", ["default", "agent/default"])
async def test_a_streamed_run_calls_and_answers(client: AsyncOpenAI, name: str) -> None:
    agent = Agent(
        name="a", model=model(client, name), tools=[weather], model_settings=ModelSettings(include_usage=True)
    )
    result = Runner.run_streamed(agent, f"sdk: weather streamed by {name}")
    deltas = [
        event.data.delta
        async for event in result.stream_events()
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
    ]
    assert asked == ["Ulm"]
    assert "".join(deltas) == result.final_output == "It is sunny."
    assert result.context_wrapper.usage.total_tokens > 0


async def test_tools_of_the_server_run_there_and_disturb_nothing(client: AsyncOpenAI) -> None:
    result = await Runner.run(Agent(name="a", model=model(client, "agent/default")), "sdk: compute whole")
    assert result.final_output == "It is 21."
    streamed = Runner.run_streamed(Agent(name="a", model=model(client, "agent/default")), "sdk: compute streamed")
    async for _ in streamed.stream_events():
        pass
    assert streamed.final_output == "Let me see.\n\nIt is 21."


async def test_a_conversation_goes_on_with_a_session_of_the_sdk(client: AsyncOpenAI) -> None:
    session = SQLiteSession("s")
    agent = Agent(name="a", model=model(client, "agent/default"))
    await Runner.run(agent, "sdk: compute session", session=session)
    assert (await Runner.run(agent, "sdk: go on", session=session)).final_output == "It is 22."
    session.close()


async def test_one_agent_hands_over_to_another(client: AsyncOpenAI) -> None:
    other = Agent(name="other", model=model(client))
    result = await Runner.run(Agent(name="a", model=model(client), handoffs=[handoff(other)]), "sdk: hand over")
    assert (result.last_agent.name, result.final_output) == ("other", "I am the other.")
