"""Shared parts of tests of ``chat/completions``: requests by the official client, read with its own types."""

from __future__ import annotations

from typing import Any

import httpx
import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel


class Place(BaseModel):
    city: str
    people: int


def said(text: str) -> Any:
    return [{"role": "user", "content": text}]


def ask(client: openai.OpenAI, text: str, model: str = "default", **options: Any) -> ChatCompletion:
    completion: ChatCompletion = client.chat.completions.create(model=model, messages=said(text), **options)
    return ChatCompletion.model_validate(completion.to_dict())


def stream(client: openai.OpenAI, text: str, model: str = "default", **options: Any) -> list[ChatCompletionChunk]:
    with client.chat.completions.create(model=model, messages=said(text), stream=True, **options) as chunks:
        return [ChatCompletionChunk.model_validate(chunk.to_dict()) for chunk in chunks]


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    """Return the text of the chunks, joined without any check, as users' programs do."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def extra(of: BaseModel) -> dict[str, Any]:
    return of.model_extra or {}


def frames(http: httpx.Client, **body: Any) -> list[tuple[str, str]]:
    """Return (name, data) of every server-sent event."""
    reply = http.post("agent/v1/chat/completions", json={"stream": True, **body})
    assert reply.headers["Content-Type"].startswith("text/event-stream"), reply.text
    blocks = [block.split("\n") for block in reply.text.split("\n\n") if block and not block.startswith(":")]
    return [
        (lines[0].removeprefix("event: ") if lines[1:] else "", lines[-1].removeprefix("data: ")) for lines in blocks
    ]
