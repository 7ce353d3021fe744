"""Tests the limits on pictures that are files on the server: their number and total size are checked before any is
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import anthropic
import openai
import pytest

from tests.server import TOKEN, AgentServer, Json

SCRIPT: list[Json] = [{"text": "Hello.", "loop": True}]
LARGE = 11 << 20
Asks: TypeAlias = Callable[[list[str]], str]


@pytest.fixture(scope="module")
def large(server: AgentServer) -> list[str]:
    """Ids of two pictures, each of which a request may include, but not both."""
    with server.blocking_client({"x-api-key": TOKEN}) as raw:
        form = {"purpose": "user_data"}
        sent = [(f"{name}.png", b"\x89PNG" + name.encode() * LARGE) for name in "ab"]
        return [raw.post("agent/v1/files", files={"file": one}, data=form).json()["id"] for one in sent]


@pytest.fixture(params=["messages", "responses"])
def asks(request: pytest.FixtureRequest, server: AgentServer) -> Iterator[Asks]:
    """A function that sends these pictures and returns the answer or the error message."""
    if request.param == "messages":
        with anthropic.Anthropic(base_url=server.url + "agent", api_key=TOKEN, max_retries=0) as client:
            yield lambda ids: _by_messages(client, ids)
        return
    with openai.OpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0) as client:
        yield lambda ids: _by_responses(client, ids)


def _by_messages(client: anthropic.Anthropic, ids: list[str]) -> str:
    content: Any = [{"type": "image", "source": {"type": "file", "file_id": id}} for id in ids]
    try:
        said = client.messages.create(
            model="default", max_tokens=10, messages=[{"role": "user", "content": content}]
        ).content[0]
    except anthropic.APIStatusError as error:
        return f"{error.status_code} {error.message}"
    return said.text if said.type == "text" else said.type


def _by_responses(client: openai.OpenAI, ids: list[str]) -> str:
    content: Any = [{"type": "input_image", "detail": "auto", "file_id": id} for id in ids]
    try:
        return client.responses.create(model="default", input=[{"role": "user", "content": content}]).output_text
    except openai.APIStatusError as error:
        return f"{error.status_code} {error.message}"


def test_more_pictures_than_a_request_may_have_are_not_looked_for(asks: Asks) -> None:
    told = asks([f"file-{number}" for number in range(101)])
    assert told.startswith("400")
    assert "at most 100 pictures" in told


def test_pictures_that_are_too_large_together_are_refused_before_they_are_read(asks: Asks, large: list[str]) -> None:
    assert asks(large[:1]) == "Hello."
    told = asks([*large, "file-none"])
    assert told.startswith("400")
    assert "20 MiB of media" in told
