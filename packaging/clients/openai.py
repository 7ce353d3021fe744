# install: openai
import os

import openai
from pydantic import BaseModel

URL, TOKEN, MODEL = os.environ["URL"] + "/v1", os.environ["TOKEN"], os.environ["MODEL"]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "weather", "parameters": SCHEMA | {"additionalProperties": False}, "strict": True}
DOT = "data:image/png;base64," + os.environ["DOT"]


class Place(BaseModel):
    city: str
    people: int


def said(content):
    return [{"role": "user", "content": content}]


def error_of(kind, ask):
    try:
        ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


client = openai.OpenAI(base_url=URL, api_key=TOKEN, max_retries=0)
chat = {"model": MODEL, "stream_options": {"include_usage": True}}
with client.chat.completions.stream(messages=said("Say hello."), **chat) as stream:
    print("".join(event.delta for event in stream if event.type == "content.delta"))
    assert stream.get_final_completion().usage.total_tokens
first = client.responses.create(model=MODEL, input="Say hello.")
with client.responses.stream(model=MODEL, input="Once more.", previous_response_id=first.id) as stream:
    print([event.type for event in stream][-1], stream.get_final_response().output_text)
assert MODEL in [model.id for model in client.models.list()]
assert client.responses.input_tokens.count(model=MODEL, input="Say hello.").input_tokens
missing = error_of(
    openai.NotFoundError, lambda: client.chat.completions.create(model="no-such-model", messages=said("x"))
)
assert missing.code == "model_not_found", missing
error_of(openai.AuthenticationError, lambda: openai.OpenAI(base_url=URL, api_key="wrong", max_retries=0).models.list())
talk = client.conversations.create(items=said("I am Ada."), metadata={"topic": "names"})
client.responses.create(model=MODEL, conversation=talk.id, input="Say hello.")
assert len(list(client.conversations.items.list(talk.id, limit=1))) == 3
client.conversations.delete(talk.id)
if "SCRIPTED" in os.environ:
    tools = [{"type": "function", "function": WEATHER}]
    with client.chat.completions.stream(messages=said("weather openai 1"), tools=tools, **chat) as stream:
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert [call.function.parsed_arguments for call in calls] == [{"city": "Ulm"}, {"city": "Bonn"}], calls
    asked = {"messages": said("weather openai 2"), "tools": tools, "tool_choice": "none"}
    assert client.chat.completions.create(model=MODEL, **asked).choices[0].finish_reason == "stop"
    first = client.responses.create(model=MODEL, input="weather openai 3", tools=[{"type": "function", **WEATHER}])
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"} for call in first.output]
    assert client.responses.create(model=MODEL, previous_response_id=first.id, input=results).output_text
    found = client.chat.completions.parse(model=MODEL, messages=said("as an object"), response_format=Place)
    assert found.choices[0].message.parsed == Place(city="Ulm", people=3), found
    found = client.responses.parse(model=MODEL, input="as an object", text_format=Place)
    assert found.output_parsed == Place(city="Ulm", people=3), found
    picture = {"type": "image_url", "image_url": {"url": DOT}}
    assert client.chat.completions.create(model=MODEL, messages=said([picture])).choices
    with client.chat.completions.create(model=MODEL, messages=said("slowly"), stream=True) as stream:
        assert next(iter(stream)).choices
    error_of(openai.InternalServerError, lambda: client.chat.completions.create(model=MODEL, messages=said("break")))
    thought = client.responses.create(model=MODEL, input="think", reasoning={"summary": "auto"}).output[0]
    assert thought.summary[0].text == "First I think.", thought
print("good")
