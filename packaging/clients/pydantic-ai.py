# install: pydantic-ai-slim[openai,anthropic]
import base64
import os

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, NativeOutput, ThinkingPart
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

URL, TOKEN, MODEL = os.environ["URL"], os.environ["TOKEN"], os.environ["MODEL"]
openai = OpenAIProvider(base_url=URL + "/v1", api_key=TOKEN)
anthropic = AnthropicProvider(base_url=URL, api_key=TOKEN)
KINDS = ((OpenAIChatModel, openai), (OpenAIResponsesModel, openai), (AnthropicModel, anthropic))


class Place(BaseModel):
    city: str
    people: int


for number, (kind, provider) in enumerate(KINDS, start=1):
    model = kind(MODEL, provider=provider)
    asked = []
    agent = Agent(model)

    @agent.tool_plain
    def weather(city: str) -> str:
        asked.append(city)  # noqa: B023
        return "sunny"

    first = agent.run_sync(f"weather pydantic-ai {number}" if "SCRIPTED" in os.environ else "Say hello.")
    print(agent.run_sync("Say hello.", message_history=first.all_messages()).output)
    stream = agent.run_stream_sync("Say hello.")
    print("".join(stream.stream_text(delta=True)))
    assert stream.usage.output_tokens
    try:
        Agent(kind("no-such-model", provider=provider)).run_sync("x")
        raise AssertionError("a model that does not exist answers")
    except ModelHTTPError as error:
        assert error.status_code == 404, error
    if "SCRIPTED" in os.environ:
        assert sorted(asked) == ["Bonn", "Ulm"], asked
        found = Agent(model, output_type=Place).run_sync(f"pydantic-ai final {number}").output
        assert found == Place(city="Ulm", people=3), found
        if kind is not AnthropicModel:  # which has no structured output for a model that it does not know
            found = Agent(model, output_type=NativeOutput(Place)).run_sync("as an object").output
            assert found == Place(city="Ulm", people=3), found
        settings = {"openai_reasoning_summary": "auto"}
        thought = agent.run_sync("think", model_settings=settings).all_messages()[-1].parts[0]
        assert isinstance(thought, ThinkingPart), thought
        assert thought.content == "First I think.", thought
        agent.run_sync([BinaryContent(base64.b64decode(os.environ["DOT"]), media_type="image/png")])
print("good")
