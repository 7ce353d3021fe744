# install: openai-agents
import asyncio
import os

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

URL, TOKEN, MODEL = os.environ["URL"] + "/v1", os.environ["TOKEN"], os.environ["MODEL"]
set_tracing_disabled(True)


class Place(BaseModel):
    city: str
    people: int


@function_tool
def weather(city: str) -> str:
    return "sunny in " + city


async def main() -> None:
    client = AsyncOpenAI(base_url=URL, api_key=TOKEN, max_retries=0)
    responses, chats = OpenAIResponsesModel(MODEL, client), OpenAIChatCompletionsModel(MODEL, client)
    # The SDK cannot send the items of a conversation of the server to a model of chats.
    kinds = ((responses, OpenAIConversationsSession(openai_client=client)), (chats, SQLiteSession("s")))
    for number, (model, session) in enumerate(kinds, start=1):
        agent = Agent(name="a", model=model, tools=[weather])
        run = Runner.run_streamed(agent, "Say hello.", session=session)
        async for _ in run.stream_events():
            pass
        print(run.final_output)
        if "SCRIPTED" in os.environ:
            ran = await Runner.run(agent, f"weather openai-agents {number}", session=session)
            outputs = [item.output for item in ran.new_items if item.type == "tool_call_output_item"]
            assert outputs == ["sunny in Ulm", "sunny in Bonn"], ran
            found = await Runner.run(Agent(name="b", model=model, output_type=Place), "as an object")
            assert found.final_output == Place(city="Ulm", people=3), found
        assert (await Runner.run(agent, "Once more.", session=session)).final_output
        before = await session.get_items()
        assert await session.pop_item() == before[-1]
        assert await session.get_items() == before[:-1]
        await session.clear_session()
        assert await session.get_items() == []


asyncio.run(main())
print("good")
