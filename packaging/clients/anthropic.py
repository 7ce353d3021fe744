# install: anthropic
import os

import anthropic

URL, TOKEN, MODEL = os.environ["URL"], os.environ["TOKEN"], os.environ["MODEL"]
given = {"model": MODEL, "max_tokens": 100}


def said(content):
    return [{"role": "user", "content": content}]


client = anthropic.Anthropic(base_url=URL, api_key=TOKEN, max_retries=0)
with client.messages.stream(messages=said("Say hello."), **given) as stream:
    print("".join(stream.text_stream))
    assert stream.get_final_message().usage.output_tokens
assert client.messages.count_tokens(model=MODEL, messages=said("Say hello.")).input_tokens
assert MODEL in [model.id for model in client.models.list()]
try:
    client.messages.create(model="no-such-model", max_tokens=1, messages=said("x"))
    raise AssertionError("a model that does not exist answers")
except anthropic.NotFoundError as error:
    assert error.type == "not_found_error", error
if "SCRIPTED" in os.environ:
    tools = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]
    with client.messages.stream(messages=said("weather anthropic 1"), tools=tools, **given) as stream:
        message = stream.get_final_message()
    calls = message.content
    assert (message.stop_reason, [call.input["city"] for call in calls]) == ("tool_use", ["Ulm", "Bonn"]), message
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"} for call in calls]
    turns = [*said("weather anthropic 1"), {"role": "assistant", "content": calls}, *said(results)]
    print(client.messages.create(messages=turns, tools=tools, **given).content[0].text)
    source = {"type": "base64", "media_type": "image/png", "data": os.environ["DOT"]}
    assert client.messages.create(messages=said([{"type": "image", "source": source}]), **given).content
    thought = client.messages.create(messages=said("think"), **given).content[0]
    assert (thought.type, thought.thinking) == ("thinking", "First I think."), thought
print("good")
