# install: litellm mcp
import os

import litellm
from pydantic import BaseModel

URL, TOKEN, MODEL = os.environ["URL"], os.environ["TOKEN"], os.environ["MODEL"]
TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


class Place(BaseModel):
    city: str
    people: int


def ask(text, **more):
    return litellm.completion(messages=[{"role": "user", "content": text}], **given, **more)


for number, (kind, base) in enumerate((("openai", URL + "/v1"), ("anthropic", URL)), start=1):
    given = {"model": f"{kind}/{MODEL}", "api_base": base, "api_key": TOKEN, "max_tokens": 100, "max_retries": 0}
    whole = litellm.stream_chunk_builder(list(ask("Say hello.", stream=True, stream_options={"include_usage": True})))
    print(whole.choices[0].message.content)
    assert whole.usage.total_tokens
    if "SCRIPTED" in os.environ:
        tools = [{"type": "function", "function": TOOL}]
        whole = litellm.stream_chunk_builder(list(ask(f"weather litellm {number}", tools=tools, stream=True)))
        assert [call.function.name for call in whole.choices[0].message.tool_calls] == ["weather"] * 2, whole
        found = ask("as an object", response_format=Place).choices[0].message.content
        assert Place.model_validate_json(found) == Place(city="Ulm", people=3), found
given = {"model": f"openai/{MODEL}", "api_base": URL + "/v1", "api_key": TOKEN}
first = litellm.responses(input="Say hello.", **given)
print(litellm.responses(input="Once more.", previous_response_id=first.id, **given).output[-1].content[0].text)
print("good")
