# install: autogen-agentchat autogen-ext[openai]
import asyncio
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

ABILITIES = ("vision", "function_calling", "json_output", "structured_output")
asked = []


class Place(BaseModel):
    city: str
    people: int


async def weather(city: str) -> str:
    """Tell the weather of a city."""
    asked.append(city)
    return "sunny"


async def main() -> None:
    model = OpenAIChatCompletionClient(
        model=os.environ["MODEL"],
        base_url=os.environ["URL"] + "/v1",
        api_key=os.environ["TOKEN"],
        model_info={**dict.fromkeys(ABILITIES, True), "family": "unknown"},
    )
    hello = [UserMessage(content="Say hello.", source="user")]
    *_, last = [part async for part in model.create_stream(hello)]
    print(last.content)
    if "SCRIPTED" in os.environ:
        agent = AssistantAgent("helper", model, tools=[weather], reflect_on_tool_use=True, model_client_stream=True)
        print((await agent.run(task="weather autogen 1")).messages[-1].content)
        assert sorted(asked) == ["Bonn", "Ulm"], asked
        form = [UserMessage(content="as an object", source="user")]
        found = Place.model_validate_json((await model.create(form, json_output=Place)).content)
        assert found == Place(city="Ulm", people=3), found
        token = CancellationToken()
        slow = [UserMessage(content="slowly", source="user")]
        running = asyncio.create_task(model.create(slow, cancellation_token=token))
        await asyncio.sleep(0.5)
        token.cancel()
        try:
            await running
            raise AssertionError("a request that was cancelled answers")
        except asyncio.CancelledError:
            pass


asyncio.run(main())
print("good")
