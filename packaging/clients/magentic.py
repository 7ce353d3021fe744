# install: magentic
import os

from magentic import OpenaiChatModel, ParallelFunctionCall, StreamedStr, prompt, prompt_chain
from pydantic import BaseModel

model = OpenaiChatModel(os.environ["MODEL"], base_url=os.environ["URL"] + "/v1", api_key=os.environ["TOKEN"])


class Place(BaseModel):
    city: str
    people: int


def weather(city: str) -> str:
    """Tells the weather of a city."""
    return "sunny in " + city


@prompt("Say hello.", model=model)
def hello() -> StreamedStr: ...


@prompt("weather magentic 1", functions=[weather], model=model)
def calls() -> ParallelFunctionCall[str]: ...


@prompt_chain("weather magentic 2", functions=[weather], model=model)
def chain() -> str: ...


@prompt("a place for magentic", model=model)
def place() -> Place: ...


print("".join(hello()))
if "SCRIPTED" in os.environ:
    assert calls()() == ("sunny in Ulm", "sunny in Bonn")
    print(chain())
    assert place() == Place(city="Ulm", people=3)
print("good")
