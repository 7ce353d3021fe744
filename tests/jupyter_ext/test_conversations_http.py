"""Tests ``conversations`` with OpenAI's own client on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.conversations import ConversationItem
from pydantic import TypeAdapter

from tests.server import TOKEN, AgentServer, Json

SCRIPT: list[Json] = [
    {"text": "", "calls": [{"name": "weather", "arguments": {"city": "Ulm"}}], "when": "weather"},
    {"text": "Hello.", "loop": True},
]
WEATHER: Any = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
ADA: Any = {"role": "user", "content": "I am Ada."}
GREETED: Any = {"role": "assistant", "content": "Hello, Ada."}
ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)
ADDED_WORDS = 7
"""What the scripted engine counts for ADA and GREETED: their words and their roles."""


@pytest.fixture
async def client(server: AgentServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0) as client:
        yield client


async def read_items(client: AsyncOpenAI, id: str, **page: Any) -> list[Json]:
    return [item.to_dict() async for item in client.conversations.items.list(id, order="asc", **page)]


def texts(items: list[Json]) -> list[str]:
    return [item["content"][0]["text"] for item in items]


async def test_a_conversation_is_created_described_and_deleted(client: AsyncOpenAI, server: AgentServer) -> None:
    made = await client.conversations.create(metadata={"topic": "a"})
    assert made == await client.conversations.retrieve(made.id)
    assert (made.object, made.metadata) == ("conversation", {"topic": "a"})
    assert (await client.conversations.update(made.id, metadata={"topic": "b"})).metadata == {"topic": "b"}
    async with server.client() as http:
        listed = (await http.get("agent/v1/sessions")).json()["sessions"]
    assert made.id in [one["id"] for one in listed]
    assert (await client.conversations.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(made.id)


async def test_the_items_of_a_conversation_are_what_the_client_added_and_what_turns_said(client: AsyncOpenAI) -> None:
    made = await client.conversations.create(items=[ADA, GREETED])
    await client.responses.create(model="default", conversation=made.id, input="Who am I?")
    items = await read_items(client, made.id, limit=1)
    assert texts(items) == ["I am Ada.", "Hello, Ada.", "Who am I?", "Hello."]
    assert [item["content"][0]["type"] for item in items] == ["input_text", "output_text"] * 2
    assert {(item["type"], item["status"]) for item in items} == {("message", "completed")}
    assert len({item["id"] for item in items}) == 4
    newest = (await client.conversations.items.list(made.id, limit=1)).data[0]
    assert newest.to_dict() == items[-1]
    assert await client.conversations.items.retrieve(newest.id or "", conversation_id=made.id) == newest


async def test_the_model_reads_the_added_items(client: AsyncOpenAI) -> None:
    made = await client.conversations.create(items=[ADA, GREETED])
    empty = await client.conversations.create()
    usages = [
        (await client.responses.create(model="default", conversation=id, input="Who am I?")).usage
        for id in (made.id, empty.id)
    ]
    assert usages[0] is not None
    assert usages[1] is not None
    assert usages[0].input_tokens == usages[1].input_tokens + ADDED_WORDS


async def test_calls_and_their_results_are_items(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    asked = await client.responses.create(
        model="default", conversation=made.id, input="weather", tools=[WEATHER], store=True
    )
    [call] = asked.output
    assert call.type == "function_call"
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    await client.responses.create(model="default", conversation=made.id, input=[result], tools=[WEATHER])
    items = await read_items(client, made.id)
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"]
    assert items[1]["call_id"] == items[2]["call_id"]


async def test_items_are_returned_with_all_their_fields(client: AsyncOpenAI) -> None:
    made = await client.conversations.create()
    reasoning: Any = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I think."}]}
    added = await client.conversations.items.create(made.id, items=[ADA, reasoning])
    assert [item.to_dict() for item in added.data] == await read_items(client, made.id)
    assert added.data[1].to_dict() == {**reasoning, "status": "completed"}


DOT = "data:image/png;base64,iVBORw0KGgo="
BRIEF: list[Any] = [
    {"role": "user", "content": "Hi.", "status": None},
    {"role": "user", "content": [{"type": "input_image", "image_url": DOT}]},
    {"role": "user", "content": [{"type": "input_image", "image_url": DOT, "detail": None}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Ho."}]},
    {"type": "function_call", "call_id": "c", "name": "f"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": DOT}]},
    {"type": "reasoning", "id": "rs_1"},
    {"type": "code_interpreter_call", "id": "ci_1", "code": "1"},
    {"type": "web_search_call", "id": "ws_1"},
]


async def test_an_item_that_leaves_fields_out_is_returned_with_those_that_clients_expect(client: AsyncOpenAI) -> None:
    made = await client.conversations.create(items=BRIEF)
    items = await read_items(client, made.id)
    assert len(items) == len(BRIEF)
    for item in items:
        ITEM.validate_python(item, strict=True)


async def test_only_the_newest_item_is_deleted(client: AsyncOpenAI) -> None:
    made = await client.conversations.create(items=[ADA, GREETED])
    first, last = [item["id"] for item in await read_items(client, made.id)]
    with pytest.raises(openai.BadRequestError, match="newest"):
        await client.conversations.items.delete(first, conversation_id=made.id)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.delete("msg_none", conversation_id=made.id)
    assert (await client.conversations.items.delete(last, conversation_id=made.id)).id == made.id
    assert [item["id"] for item in await read_items(client, made.id)] == [first]


async def test_a_reference_is_not_an_item(client: AsyncOpenAI) -> None:
    reference: Any = {"type": "item_reference", "id": "msg_1"}
    with pytest.raises(openai.BadRequestError) as raised:
        await client.conversations.create(items=[reference])
    assert raised.value.param == "items"


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "include=nonsense", "include[]=nonsense"])
async def test_a_list_refuses_a_limit_or_an_include_that_openai_refuses(
    client: AsyncOpenAI, server: AgentServer, query: str
) -> None:
    conversation = await client.conversations.create(items=[{"role": "user", "content": "x"}])
    response = await client.responses.create(model="default", input="x")
    paths = [f"conversations/{conversation.id}/items", f"responses/{response.id}/input_items"]
    paths += [f"responses/{response.id}"] * query.startswith("include")
    paths += [f"conversations/{conversation.id}/items/msg_1"] * query.startswith("include")
    async with server.client() as http:
        for path in paths:
            reply = await http.get(f"agent/v1/{path}?{query}")
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, query.partition("=")[0].rstrip("[]")), (
                path
            )


async def test_an_include_is_checked_where_items_are_added(client: AsyncOpenAI) -> None:
    conversation = await client.conversations.create()
    wrong: Any = ["nonsense"]
    with pytest.raises(openai.BadRequestError, match="include"):
        await client.conversations.items.create(conversation.id, items=[ADA], include=wrong)
