# install: llama-index-llms-openai-like
import asyncio
import base64
import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, ImageBlock
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

URL, TOKEN, MODEL = os.environ["URL"] + "/v1", os.environ["TOKEN"], os.environ["MODEL"]
given = {"model": MODEL, "api_base": URL, "api_key": TOKEN, "max_retries": 0, "context_window": 32_000}


class Place(BaseModel):
    city: str
    people: int


def weather(city: str) -> str:
    """Tells the weather of a city."""
    seen.append(city)
    return "sunny in " + city


async def ask(model, text):
    return str(await FunctionAgent(tools=[weather], llm=model).run(text))


chat = OpenAILike(is_chat_model=True, is_function_calling_model=True, **given)
form = OpenAILike(is_chat_model=True, should_use_structured_outputs=True, **given)
responses = OpenAIResponses(**given)
for number, (model, structured) in enumerate(((chat, form), (responses, responses)), start=1):
    seen = []
    print("".join(part.delta or "" for part in model.stream_chat([ChatMessage("Say hello.")])))
    if "SCRIPTED" in os.environ:
        print(asyncio.run(ask(model, f"weather llama-index {number}")))
        assert sorted(seen) == ["Bonn", "Ulm"], seen
        found = structured.as_structured_llm(Place).complete("as an object").raw
        assert found == Place(city="Ulm", people=3), found
        picture = ImageBlock(image=base64.b64decode(os.environ["DOT"]), image_mimetype="image/png")
        assert model.chat([ChatMessage(role="user", blocks=[picture])]).message.content
print("good")
