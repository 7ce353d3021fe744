# install: haystack-ai
import os
from typing import Annotated

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent
from haystack.tools import tool
from haystack.utils import Secret
from pydantic import BaseModel


class Place(BaseModel):
    city: str
    people: int


@tool
def weather(city: Annotated[str, "The city."]) -> str:
    """Tells the weather of a city."""
    return "sunny in " + city


kinds = ((OpenAIChatGenerator, "response_format"), (OpenAIResponsesChatGenerator, "text_format"))
for number, (kind, form) in enumerate(kinds, start=1):
    given = {"model": os.environ["MODEL"], "api_key": Secret.from_token(os.environ["TOKEN"]), "max_retries": 0}
    given["api_base_url"] = os.environ["URL"] + "/v1"
    streamed = []
    said = [ChatMessage.from_user("Say hello.")]
    print(kind(streaming_callback=streamed.append, **given).run(said)["replies"][0].text)
    assert len(streamed) > 1, streamed
    if "SCRIPTED" in os.environ:
        asked = [ChatMessage.from_user(f"weather haystack {number}")]
        messages = Agent(chat_generator=kind(**given), tools=[weather]).run(asked)["messages"]
        results = [result.result for message in messages for result in message.tool_call_results]
        assert results == ["sunny in Ulm", "sunny in Bonn"], messages
        strict = kind(generation_kwargs={form: Place}, **given)
        found = strict.run([ChatMessage.from_user("as an object")])["replies"][0].text
        assert Place.model_validate_json(found) == Place(city="Ulm", people=3), found
        picture = ImageContent(base64_image=os.environ["DOT"], mime_type="image/png")
        assert kind(**given).run([ChatMessage.from_user(content_parts=["Look.", picture])])["replies"][0].text
print("good")
