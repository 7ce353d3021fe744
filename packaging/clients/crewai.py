# install: crewai
import os

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from pydantic import BaseModel

asked = []


class Place(BaseModel):
    city: str
    people: int


@tool("weather")
def weather(city: str) -> str:
    """Tell the weather of a city."""
    asked.append(city)
    return "sunny"


def ask(prompt: str, *tools: object, **given: object) -> object:
    agent = Agent(role="helper", goal="help", backstory="none", llm=model(), tools=[*tools])
    task = Task(description=prompt, expected_output="an answer", agent=agent, **given)
    return Crew(agents=[agent], tasks=[task]).kickoff()


def model(**given: object) -> LLM:
    name = "openai/" + os.environ["MODEL"]
    return LLM(model=name, base_url=os.environ["URL"] + "/v1", api_key=os.environ["TOKEN"], **given)


print(model().call("Say hello."))
print(model(stream=True).call("Say hello."))
if "SCRIPTED" in os.environ:
    print(ask("weather crewai 1", weather).raw)
    assert sorted(asked) == ["Bonn", "Ulm"], asked
    assert ask("as an object", output_pydantic=Place).pydantic == Place(city="Ulm", people=3)
print("good")
