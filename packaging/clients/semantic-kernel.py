# install: semantic-kernel
import asyncio
import os

from openai import AsyncOpenAI
from pydantic import BaseModel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

asked = []


class Place(BaseModel):
    city: str
    people: int


class Sky:
    @kernel_function(name="weather", description="Tells the weather of a city.")
    def weather(self, city: str) -> str:
        asked.append(city)
        return "sunny"


def history(prompt: str) -> ChatHistory:
    messages = ChatHistory(system_message="You help.")
    messages.add_user_message(prompt)
    return messages


async def main() -> None:
    client = AsyncOpenAI(base_url=os.environ["URL"] + "/v1", api_key=os.environ["TOKEN"])
    service = OpenAIChatCompletion(ai_model_id=os.environ["MODEL"], async_client=client)
    settings = OpenAIChatPromptExecutionSettings(temperature=0.2, seed=3, stop=["zzz"])
    parts = service.get_streaming_chat_message_contents(history("Say hello."), settings)
    print("".join([part[0].content async for part in parts]))
    if "SCRIPTED" in os.environ:
        agent = ChatCompletionAgent(service=service, name="helper", instructions="Help.", plugins=[Sky()])
        print((await agent.get_response("ask the sky")).content)
        assert sorted(asked) == ["Bonn", "Ulm"], asked
        settings = OpenAIChatPromptExecutionSettings(response_format=Place)
        answers = await service.get_chat_message_contents(history("as an object"), settings)
        assert Place.model_validate_json(answers[0].content) == Place(city="Ulm", people=3), answers


asyncio.run(main())
print("good")
