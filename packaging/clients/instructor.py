# install: instructor anthropic
import os
from collections.abc import Iterable

import anthropic
import instructor
import openai
from pydantic import BaseModel

URL, TOKEN, MODEL = os.environ["URL"], os.environ["TOKEN"], os.environ["MODEL"]
ULM = {"city": "Ulm", "people": 3}


class Place(BaseModel):
    city: str
    people: int


class weather(BaseModel):  # noqa: N801
    city: str


def ask(client, text, form=Place, **more):
    messages = [{"role": "user", "content": text}]
    found = client.create(model=MODEL, messages=messages, response_model=form, max_retries=0, **more)
    return found.model_dump() if form is Place else found


client = openai.OpenAI(base_url=URL + "/v1", api_key=TOKEN, max_retries=0)
if "SCRIPTED" in os.environ:
    modes = instructor.Mode
    for mode in (modes.JSON, modes.JSON_SCHEMA, modes.TOOLS, modes.RESPONSES_TOOLS):
        text = "as an object" if "json" in mode.value else f"a Place {mode.value}"
        assert ask(instructor.from_openai(client, mode=mode), text) == ULM, mode
    parallel = instructor.from_openai(client, mode=modes.PARALLEL_TOOLS)
    found = list(ask(parallel, "weather instructor 1", Iterable[weather]))
    assert found == [weather(city="Ulm"), weather(city="Bonn")], found
    theirs = instructor.from_anthropic(anthropic.Anthropic(base_url=URL, api_key=TOKEN, max_retries=0))
    assert ask(theirs, "a Place anthropic", max_tokens=100) == ULM
print(ask(instructor.from_openai(client), "Say hello.", None).choices[0].message.content)
print("good")
