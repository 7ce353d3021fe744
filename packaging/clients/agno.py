# install: agno openai
import os

from agno.agent import Agent
from agno.models.openai import OpenAIChat, OpenAIResponses
from pydantic import BaseModel

asked = []


class Place(BaseModel):
    city: str
    people: int


def weather(city: str) -> str:
    """Tell the weather of a city."""
    asked.append(city)
    return "sunny"


for number, kind in enumerate((OpenAIChat, OpenAIResponses)):
    model = kind(id=os.environ["MODEL"], base_url=os.environ["URL"] + "/v1", api_key=os.environ["TOKEN"])
    asked.clear()
    events = Agent(model=model).run("Say hello.", stream=True)
    print("".join(event.content for event in events if getattr(event, "content", None)))
    if "SCRIPTED" in os.environ:
        print(Agent(model=model, tools=[weather]).run(f"weather agno {number}").content)
        assert sorted(asked) == ["Bonn", "Ulm"], asked
        assert Agent(model=model, output_schema=Place).run("as an object").content == Place(city="Ulm", people=3)
print("good")
