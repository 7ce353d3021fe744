"""Tests ``responses`` with OpenAI's own client on a real server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response
from pydantic import BaseModel

from tests.http_server import http_server
from tests.jupyter_ext.conftest import ServerFactory
from tests.narrowing import not_none
from tests.server import KERNEL_HEADER, TOKEN, AgentServer, Json

ASK = {"name": "weather", "arguments": {"city": "Ulm"}}
RUN = {"name": "python", "arguments": {"code": "open('out.csv', 'w').write('a'); print(6 * 7)"}}
LIST = {"name": "shell", "arguments": {"commands": ["echo here", "echo there >&2"]}}
SCRIPT: list[Json] = [
    {"text": "Let me ask. ", "calls": [ASK], "when": "weather one"},
    {"text": "", "calls": [ASK], "when": "weather two"},
    {"text": "", "calls": [ASK], "when": "weather three"},
    {"text": "", "calls": [ASK], "when": "weather four"},
    {"text": "", "calls": [{"name": "travel.book", "arguments": {}}], "when": "travel"},
    {"text": "Sunny.", "when": "weather", "loop": True},
    {"text": "I compute. ", "calls": [RUN], "when": "permitted"},
    *[{"text": "I compute. ", "calls": [RUN], "when": f"compute {how}"} for how in ("plain", "extended")],
    {"text": "I compute. ", "calls": [RUN], "when": "compute"},
    {"text": "It is 42, in out.csv.", "when": "compute", "loop": True},
    {"text": "", "calls": [LIST], "when": "list"},
    {"text": "Listed.", "when": "list", "loop": True},
    {"text": "", "calls": [LIST], "when": "not declared"},
    {"text": "Listed.", "when": "not declared", "loop": True},
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "word " * 20, "deltas": 20, "when": "gated", "gate": "go"},
    {"text": "word " * 20, "deltas": 20, "delay": 0.05, "when": "slow", "loop": True},
    {"text": "It is cut", "finish": "length", "when": "cut", "loop": True},
    {"text": "It beg", "deltas": 2, "delay": 0.05, "fault": "the model fell", "when": "broken", "loop": True},
    {"text": json.dumps({"city": "Ulm", "degrees": 20}), "when": "object", "loop": True},
    {"text": "", "delay": 0.3, "fault": "the model fell", "when": "at once it fell", "loop": True},
    {"text": "Hello.", "reasoning": "They greet.", "loop": True},
]
TRAITS = {"web_hosts": "127.0.0.2"}
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tells it.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}

DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6364f8ff1f00030301ffa"
    "7a3d6530000000049454e44ae426082"
)


def sdk(server: AgentServer, **options: Any) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0, **options)


@pytest.fixture
async def client(server: AgentServer) -> AsyncIterator[AsyncOpenAI]:
    async with sdk(server) as client:
        yield client


def session(response: Response) -> str:
    return str(response.to_dict()["session_id"])


async def sessions(server: AgentServer) -> set[str]:
    async with server.client() as client:
        return {str(one["id"]) for one in (await client.get("agent/v1/sessions")).json()["sessions"]}


async def read_messages(server: AgentServer, session: str) -> list[str]:
    """Return the messages of a session, including those of tools."""
    async with server.client() as client:
        items = (await client.get(f"agent/v1/sessions/{session}/items")).json()["items"]
    return [f"{item['message']['role']}: {item['message']['content']}" for item in items]


# ---------------------------------------------------------------------------------------------------- answers


async def test_an_answer_is_whole_and_can_be_fetched_again(client: AsyncOpenAI) -> None:
    made = await client.responses.create(
        model="default",
        input="Hi.",
        instructions="Be kind.",
        metadata={"k": "v"},
        temperature=0.5,
        max_output_tokens=99,
    )
    assert (made.status, made.output_text, made.model) == ("completed", "Hello.", "default")
    assert [item.type for item in made.output] == ["reasoning", "message"]
    assert (made.instructions, made.metadata, made.temperature) == ("Be kind.", {"k": "v"}, 0.5)
    assert made.usage is not None
    assert made.usage.total_tokens == made.usage.input_tokens + made.usage.output_tokens > 0
    assert made.completed_at is not None
    assert (await client.responses.retrieve(made.id)).to_dict() == made.to_dict()
    Response.model_validate(made.to_dict())


async def test_the_clients_accumulator_makes_the_final_resource_of_the_stream(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model="default", input="Hi.") as stream:
        events = [event async for event in stream]
        final = await stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[1].type, events[-1].type) == (
        "response.created",
        "response.in_progress",
        "response.completed",
    )
    assert final.output_text == "Hello."
    stored: Any = (await client.responses.retrieve(final.id)).to_dict()
    told: Any = final.to_dict()
    assert [item["id"] for item in stored["output"]] == [item["id"] for item in told["output"]]
    assert stored["usage"] == told["usage"]


async def test_a_schema_binds_the_answer_and_is_parsed(client: AsyncOpenAI) -> None:
    class Weather(BaseModel):
        city: str
        degrees: int

    made = await client.responses.parse(model="default", input="an object", text_format=Weather)
    assert made.output_parsed == Weather(city="Ulm", degrees=20)


async def test_an_answer_that_was_cut_is_incomplete(client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="default", input="cut")
    assert made.status == "incomplete"
    assert not_none(made.incomplete_details).reason == "max_output_tokens"
    events = [event async for event in await client.responses.create(model="default", input="cut", stream=True)]
    assert events[-1].type == "response.incomplete"


async def test_a_turn_that_fails_is_an_error_or_a_failed_response(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as refused:
        await client.responses.create(model="default", input="broken")
    assert "the model fell" in str(refused.value)
    events = [event async for event in await client.responses.create(model="default", input="broken", stream=True)]
    last = events[-1]
    assert last.type == "response.failed"
    assert (last.response.error is not None and last.response.error.code) == "server_error"
    assert (await client.responses.retrieve(last.response.id)).status == "failed"


async def test_log_probabilities_come_where_they_are_asked_for(client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="default", input="Hi.", include=["message.output_text.logprobs"])
    part = next(item for item in made.output if item.type == "message").content[0]
    assert part.type == "output_text"
    assert "".join(token.token for token in not_none(part.logprobs)) == "Hello."


# ---------------------------------------------------------------------------------------------------- functions


async def test_a_function_is_returned_and_its_result_alone_goes_on(client: AsyncOpenAI, server: AgentServer) -> None:
    made = await client.responses.create(model="default", input="weather one", tools=[WEATHER])
    call = made.output[-1]
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments), made.status) == ("weather", {"city": "Ulm"}, "completed")
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "20 degrees"}
    then = await client.responses.create(model="default", input=[result], tools=[WEATHER], previous_response_id=made.id)
    assert (then.output_text, session(then)) == ("Sunny.", session(made))
    assert await read_messages(server, session(made)) == [
        "user: weather one",
        "assistant: Let me ask. ",
        "tool: 20 degrees",
        "assistant: Sunny.",
    ]


async def test_the_result_of_a_function_may_be_sent_again(client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="default", input="weather four", tools=[WEATHER])
    call = made.output[-1]
    assert call.type == "function_call"
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "20 degrees"}
    asked: Any = {"model": "default", "tools": [WEATHER], "previous_response_id": made.id}
    answers = [(await client.responses.create(input=[result], **asked)).output_text for _ in range(3)]
    other = await client.responses.create(input="weather: forget it.", **asked)
    assert {*answers, other.output_text} == {"Sunny."}


@pytest.mark.parametrize("store", [True, False])
async def test_a_client_that_sends_all_items_itself_goes_on(client: AsyncOpenAI, store: bool) -> None:
    asked = "weather two" if store else "weather three"
    items: list[Any] = [{"role": "user", "content": asked}]
    made = await client.responses.create(model="default", input=items, tools=[WEATHER], store=store)
    items += [item.to_dict() for item in made.output]
    call = made.output[-1]
    assert call.type == "function_call"
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "20 degrees"})
    then = await client.responses.create(model="default", input=items, tools=[WEATHER], store=store)
    assert then.output_text == "Sunny."
    if store:
        assert session(then) == session(made)


async def test_functions_of_a_namespace_come_back_in_it(client: AsyncOpenAI) -> None:
    tools: Any = [{"type": "namespace", "name": "travel", "description": "", "tools": [WEATHER | {"name": "book"}]}]
    made = await client.responses.create(model="default", input="travel", tools=tools)
    call = made.output[-1]
    assert call.type == "function_call"
    assert (call.namespace, call.name) == ("travel", "book")


# ---------------------------------------------------------------------------------------------------- tools here


async def test_what_the_servers_tools_did_is_in_the_items(client: AsyncOpenAI, server: AgentServer) -> None:
    made = await client.responses.create(
        model="agent/default", input="compute", include=["code_interpreter_call.outputs"]
    )
    assert [item.type for item in made.output] == ["message", "code_interpreter_call", "message"]
    run, last = made.output[1:]
    assert run.type == "code_interpreter_call"
    assert run.container_id == session(made)
    assert run.outputs is not None
    assert run.outputs[0].type == "logs"
    assert "42" in run.outputs[0].logs
    assert last.type == "message"
    part = last.content[0]
    assert part.type == "output_text"
    cited = part.annotations[0]
    assert cited.type == "container_file_citation"
    assert (cited.filename, part.text[cited.start_index : cited.end_index]) == ("out.csv", "out.csv")
    async with server.client() as http:
        path = f"agent/v1/containers/{cited.container_id}/files/{cited.file_id}/content"
        assert (await http.get(path)).content == b"a"
    then = await client.responses.create(model="agent/default", input="Hi.", previous_response_id=made.id)
    assert session(then) == session(made)
    assert len([line for line in await read_messages(server, session(made)) if line.startswith("tool: ")]) == 1


@pytest.mark.parametrize(("how", "extra"), [("extended", {"max_tool_rounds": 9}), ("plain", {})])
async def test_a_stream_has_our_events_only_for_a_request_with_our_fields(
    client: AsyncOpenAI, how: str, extra: dict[str, int]
) -> None:
    stream = await client.responses.create(model="agent/default", input=f"compute {how}", stream=True, extra_body=extra)
    events = [event async for event in stream]
    ours = [event.type for event in events if not event.type.startswith("response.")]
    assert ours == (["agentic_tool_call_progress", "file_produced", "agentic_tool_call_progress"] if extra else [])
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "response.code_interpreter_call.completed" in {event.type for event in events}


async def test_a_shell_that_was_declared_has_items_of_its_own(client: AsyncOpenAI) -> None:
    shell: Any = {"type": "shell", "environment": {"type": "container_auto"}}
    async with client.responses.stream(model="default", input="list", tools=[shell]) as stream:
        events = [event async for event in stream]
        made = await stream.get_final_response()
    assert [item.type for item in made.output] == ["shell_call", "shell_call_output", "message"]
    called, printed = made.output[:2]
    assert called.type == "shell_call"
    assert called.action.commands == ["echo here", "echo there >&2"]
    assert printed.type == "shell_call_output"
    assert (printed.output[0].stdout, printed.output[0].stderr) == ("here\n", "there\n")
    assert printed.output[0].outcome.type == "exit"
    assert "response.shell_call_output_content.done" in [event.type for event in events]
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_a_shell_that_was_not_declared_is_no_call_for_the_client(client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="agent/default", input="not declared")
    assert [item.type for item in made.output] == ["message"]
    record: Any = made.to_dict()["agentic_tool_calls"]
    assert [one["name"] for one in record] == ["shell"]


async def test_a_plain_model_has_no_tools_of_the_server(client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="default", input="compute nothing")
    assert [item.type for item in made.output] == ["message"]


# ---------------------------------------------------------------------------------------------------- continuing


async def test_two_may_go_on_from_one_response(client: AsyncOpenAI, server: AgentServer) -> None:
    first = await client.responses.create(model="default", input="first")
    await client.responses.create(model="default", input="second", previous_response_id=first.id)
    other = await client.responses.create(model="default", input="another", previous_response_id=first.id)
    assert session(other) == session(first)
    assert [line for line in await read_messages(server, session(first)) if line.startswith("user")] == [
        "user: first",
        "user: another",
    ]
    both = await asyncio.gather(
        *[client.responses.create(model="default", input=f"n{n}", previous_response_id=first.id) for n in range(3)]
    )
    assert {made.status for made in both} == {"completed"}


async def test_a_reference_stands_for_its_item(client: AsyncOpenAI, server: AgentServer) -> None:
    first = await client.responses.create(model="default", input="first")
    items: Any = [
        {"role": "user", "content": "first"},
        {"type": "item_reference", "id": first.output[-1].id},
        {"role": "user", "content": "second"},
    ]
    second = await client.responses.create(model="default", input=items)
    assert session(second) == session(first)
    assert await read_messages(server, session(first)) == [
        "user: first",
        "assistant: Hello.",
        "user: second",
        "assistant: Hello.",
    ]


async def test_what_tools_did_elsewhere_is_said_in_a_new_session_and_once(
    client: AsyncOpenAI, server: AgentServer
) -> None:
    items: Any = [
        {"role": "user", "content": "Six by seven."},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "6 * 7", "outputs": [{"type": "logs", "logs": "42"}]},
        {"role": "assistant", "content": "It is 42."},
        {"role": "user", "content": "And?"},
    ]
    await client.responses.create(model="default", input=items, extra_body={"session_id": "from elsewhere"})
    told = await read_messages(server, "from elsewhere")
    assert told[:4] == ["user: Six by seven.", "assistant: ", "tool: 42", "assistant: It is 42."]
    items += [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "More."}]
    await client.responses.create(model="default", input=items, extra_body={"session_id": "from elsewhere"})
    assert await read_messages(server, "from elsewhere") == [*told, "user: More.", "assistant: Hello."]


async def test_what_tools_did_is_said_in_another_session_where_that_of_the_items_is_busy(
    client: AsyncOpenAI, server: AgentServer
) -> None:
    busy = await client.responses.create(model="default", input="hang", background=True)
    (said,) = [item async for item in client.responses.input_items.list(busy.id)]
    items: Any = [
        {"type": "message", "id": said.id, "role": "user", "content": "Six by seven."},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "6 * 7", "outputs": [{"type": "logs", "logs": "42"}]},
        {"role": "assistant", "content": "It is 42."},
        {"role": "user", "content": "And?"},
    ]
    made = await client.responses.create(model="default", input=items)
    assert session(made) != session(busy)
    assert (await read_messages(server, session(made)))[1:3] == ["assistant: ", "tool: 42"]
    await client.responses.cancel(busy.id)


async def test_from_a_response_that_failed_nothing_goes_on(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="default", input="broken", stream=True)
    events = [event async for event in stream]
    last = events[-1]
    assert last.type == "response.failed"
    with pytest.raises(openai.BadRequestError, match=f"{last.response.id}' has failed"):
        await client.responses.create(model="default", input="go on", previous_response_id=last.response.id)


async def test_a_response_that_is_not_stored_leaves_nothing(client: AsyncOpenAI, server: AgentServer) -> None:
    first = await client.responses.create(model="default", input="first")
    before = await sessions(server)
    made = await client.responses.create(model="default", input="x", store=False, previous_response_id=first.id)
    assert not_none(made.usage).input_tokens > 6, "it read what was said before"
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)
    assert await sessions(server) == before
    assert await read_messages(server, session(first)) == ["user: first", "assistant: Hello."]


async def test_a_conversation_is_a_session(client: AsyncOpenAI, server: AgentServer) -> None:
    await client.responses.create(model="default", input="one", extra_body={"session_id": "my talk"})
    made = await client.responses.create(model="default", input="two", conversation={"id": "my talk"})
    assert (session(made), made.conversation and made.conversation.id) == ("my talk", "my talk")
    assert len(await read_messages(server, "my talk")) == 4


MISTAKES: dict[str, tuple[Json, str | None, str | None]] = {
    "an unknown previous response": (
        {"previous_response_id": "resp_none"},
        "previous_response_not_found",
        "previous_response_id",
    ),
    "an unknown reference": ({"input": [{"type": "item_reference", "id": "msg_none"}]}, "item_not_found", "input"),
    "an unknown conversation": ({"conversation": "conv_none"}, "not_found", "conversation"),
    "an unknown conversation, by reference": ({"conversation": {"id": "conv_none"}}, "not_found", "conversation"),
    "an unknown field to include": (
        {"include": ["reasoning.encrypted_content", "x"]},
        "invalid_value",
        "include[1]",
    ),
    "a field of another type": ({"temperature": "hot"}, "invalid_type", "temperature"),
    "a format without its schema": (
        {"text": {"format": {"type": "json_schema", "name": "a"}}},
        "missing_required_parameter",
        "text.format.schema",
    ),
    "two sessions": ({"conversation": "a", "session_id": "b"}, None, None),
    "a response and a conversation": (
        {"previous_response_id": "resp_none", "conversation": "a"},
        None,
        "previous_response_id",
    ),
    "background without store": ({"background": True, "store": False}, None, None),
    "a bound on calls": ({"max_tool_calls": 3}, None, "max_tool_calls"),
    "no input": ({"input": ""}, None, "input"),
    "an item of another kind": ({"input": [{"type": "computer_call_output", "call_id": "c"}]}, None, "input[0]"),
    "a result without its call": (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        None,
        "input",
    ),
    "an answer at the end": ({"input": [{"role": "assistant", "content": "x"}]}, None, None),
    "audio": ({"input": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, None, None),
    "a picture that is none": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,%%"}]}]},
        None,
        "input",
    ),
    "a file on a private host": (
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "http://127.0.0.1/f.txt"}]}]},
        None,
        None,
    ),
    "files without tools": ({"files": [{"name": "a.csv"}]}, None, "files"),
    "an unknown model": ({"model": "no-such-model"}, "model_not_found", None),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_mistake_is_told_as_one(server: AgentServer, name: str) -> None:
    body, code, param = MISTAKES[name]
    async with server.client() as http:
        reply = await http.post("agent/v1/responses", json={"model": "default", "input": "x"} | body)
    error = reply.json()["error"]
    assert 400 <= reply.status_code < 500, reply.text
    assert error["message"]
    assert code is None or error["code"] == code, error
    assert param is None or error["param"] == param, error


async def test_another_session_than_that_of_the_previous_response_is_refused(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="default", input="first")
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(
            model="default", input="x", previous_response_id=first.id, extra_body={"session_id": "other"}
        )


# ---------------------------------------------------------------------------------------------------- background


async def retrieved_after(client: AsyncOpenAI, made: Response, status: str) -> Response:
    """Poll the response until it has another status."""
    while made.status == status:
        await asyncio.sleep(0.1)
        made = await client.responses.retrieve(made.id)
    return made


async def test_one_in_the_background_is_polled(client: AsyncOpenAI, server: AgentServer) -> None:
    made = await client.responses.create(model="default", input="gated", background=True)
    assert (made.status, made.background) == ("queued", True)
    with pytest.raises(openai.ConflictError):
        await client.responses.create(model="default", input="x", previous_response_id=made.id)
    made = await retrieved_after(client, made, "queued")
    assert made.status == "in_progress"
    (server.directory / "go").touch()
    made = await retrieved_after(client, made, "in_progress")
    assert (made.status, made.output_text) == ("completed", "word " * 20)


async def test_a_stream_is_taken_up_again_behind_any_event(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="default", input="slow", background=True, stream=True)
    heard = []
    async for event in stream:
        heard.append(event)
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    assert heard[0].type == "response.created"
    id = heard[0].response.id
    rest = [
        event
        async for event in await client.responses.retrieve(id, stream=True, starting_after=heard[-1].sequence_number)
    ]
    numbers = [event.sequence_number for event in [*heard, *rest]]
    assert numbers == list(range(len(numbers)))
    text = "".join(event.delta for event in [*heard, *rest] if event.type == "response.output_text.delta")
    assert text == "word " * 20
    again = [event async for event in await client.responses.retrieve(id, stream=True)]
    assert [event.to_dict() for event in again] == [event.to_dict() for event in [*heard, *rest]]
    late = [event async for event in await client.responses.retrieve(id, stream=True, starting_after=10_000)]
    assert [event.type for event in late] == ["response.completed"]


async def test_cancelling_stops_the_work(client: AsyncOpenAI, server: AgentServer) -> None:
    made = await client.responses.create(model="default", input="hang", background=True)
    assert (await client.responses.cancel(made.id)).status == "cancelled"
    async with server.client() as http:
        turns = (await http.get(f"agent/v1/sessions/{session(made)}/turns")).json()["turns"]
    assert [turn["state"] for turn in turns] == ["cancelled"]
    assert (await client.responses.cancel(made.id)).status == "cancelled"
    events = [event async for event in await client.responses.retrieve(made.id, stream=True)]
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.status == "cancelled"


async def test_a_client_that_leaves_stops_what_is_not_in_the_background(
    client: AsyncOpenAI, server: AgentServer
) -> None:
    stream = await client.responses.create(model="default", input="hang", stream=True)
    async for event in stream:
        if event.type == "response.created":
            id = event.response.id
            break
    await stream.close()
    while (found := await client.responses.retrieve(id)).status == "in_progress":
        await asyncio.sleep(0.05)
    assert found.status == "cancelled"


async def test_a_deleted_one_is_gone_and_stopped(client: AsyncOpenAI, server: AgentServer) -> None:
    made = await client.responses.create(
        model="default", input="hang", background=True, extra_body={"session_id": "a deleted one"}
    )
    async with server.client() as http:
        reply = await http.delete(f"agent/v1/responses/{made.id}")
        assert reply.json() == {"id": made.id, "object": "response", "deleted": True}
        assert (await http.delete(f"agent/v1/responses/{made.id}")).status_code == 404
        turns = (await http.get(f"agent/v1/sessions/{session(made)}/turns")).json()["turns"]
    assert [turn["state"] for turn in turns] == ["cancelled"]
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


async def test_with_its_last_response_goes_a_session_that_is_in_no_list(
    client: AsyncOpenAI, server: AgentServer
) -> None:
    first = await client.responses.create(model="default", input="Hi.")
    second = await client.responses.create(
        model="default", input="hang", previous_response_id=first.id, background=True
    )
    async with server.client() as http:
        for made, status in ((first, 200), (second, 404)):
            assert (await http.delete(f"agent/v1/responses/{made.id}")).status_code == 200
            assert (await http.get(f"agent/v1/sessions/{session(made)}/items")).status_code == status


async def test_with_a_session_go_its_responses(client: AsyncOpenAI, server: AgentServer) -> None:
    made = await client.responses.create(model="default", input="Hi.")
    async with server.client() as http:
        assert (await http.delete(f"agent/v1/sessions/{session(made)}")).status_code == 200
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


# ---------------------------------------------------------------------------------------------------- input items


async def test_what_it_was_made_from_is_listed(client: AsyncOpenAI) -> None:
    dot = f"data:image/png;base64,{base64.b64encode(DOT).decode()}"
    content: Any = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": dot, "detail": "low"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="},
    ]
    items: Any = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Ho."}]
    made = await client.responses.create(model="default", input=[*items, {"role": "user", "content": content}])
    page = await client.responses.input_items.list(made.id, limit=2)
    assert [item.type for item in page.data] == ["message", "message"]
    assert page.has_more
    every = [item async for item in client.responses.input_items.list(made.id, limit=1, order="asc")]
    assert len(every) == 3
    last: Any = every[-1].to_dict()
    text, image, file = last["content"]
    assert (text["text"], image["image_url"], file["filename"]) == ("look", None, "a.txt")
    assert file["file_id"]
    again: Any = [{"type": "item_reference", "id": every[-1].to_dict()["id"]}]
    then: Any = (await client.responses.create(model="default", input=again)).to_dict()
    assert then["session_id"] == session(made)
    shown = await client.responses.input_items.list(made.id, limit=1, include=["message.input_image.image_url"])
    assert shown.data[0].to_dict()["content"][1]["image_url"] == dot  # type: ignore[index]
    with pytest.raises(openai.BadRequestError, match="include must be among"):
        await client.responses.input_items.list(made.id, include=["nothing"])  # type: ignore[list-item]


# ---------------------------------------------------------------------------------------------------- lasting


async def test_responses_outlive_their_server(agent_server: ServerFactory) -> None:
    server = await agent_server(SCRIPT)
    async with sdk(server) as client:
        made = await client.responses.create(model="default", input="slow")
        hung = await client.responses.create(model="default", input="hang", background=True)
        events = [event async for event in await client.responses.retrieve(made.id, stream=True)]
    await server.kill()
    await server.start()
    async with sdk(server) as client:
        assert (await client.responses.retrieve(made.id)).to_dict() == made.to_dict()
        again = [event async for event in await client.responses.retrieve(made.id, stream=True)]
        assert [event.to_dict() for event in again] == [event.to_dict() for event in events]
        assert (await client.responses.retrieve(hung.id)).status == "failed"
        then = await client.responses.create(model="default", input="Hi.", previous_response_id=made.id)
        assert (then.output_text, session(then)) == ("Hello.", session(made))
    assert (server.directory / "data" / "responses.db").stat().st_mode & 0o077 == 0


async def test_one_belongs_to_the_credential_that_asked_for_it(server: AgentServer, client: AsyncOpenAI) -> None:
    made = await client.responses.create(model="default", input="Hi.")
    kernel = await server.start_kernel("of-a-response.ipynb")
    token = await server.kernel_token(kernel)
    async with server.client(None, {KERNEL_HEADER: token}) as http:
        assert (await http.get(f"agent/v1/responses/{made.id}")).status_code == 404
        mine = (await http.post("agent/v1/responses", json={"input": "Hi."})).json()
        assert (await http.get(f"agent/v1/responses/{mine['id']}")).status_code == 200
        item = {"type": "item_reference", "id": made.output[-1].id}
        assert (await http.post("agent/v1/responses", json={"input": [item]})).status_code == 400
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(mine["id"])


async def test_what_looks_like_a_key_is_not_kept(server: AgentServer, client: AsyncOpenAI) -> None:
    secret = "sk-proj-" + "a1B2c3D4e5" * 5
    made = await client.responses.create(model="default", input=f"my key is {secret}", instructions=f"use {secret}")
    shown = json.dumps([made.to_dict(), (await client.responses.input_items.list(made.id)).to_dict()])
    assert secret not in shown


async def test_the_stream_ends_as_mistral_rs_ends_it(server: AgentServer) -> None:
    async with server.client() as http:
        body = {"input": "Hi.", "stream": True}
        reply: httpx.Response = await http.post("agent/v1/responses", json=body)
    frames = reply.text.strip().split("\n\n")
    assert frames[-1] == "data: [DONE]"
    assert all(frame.startswith("event: ") for frame in frames[:-1])


# ---------------------------------------------------------------------------------------------------- asked again


@pytest.mark.parametrize("how", ["whole", "streamed", "in the background"])
async def test_the_same_request_under_its_key_is_the_same_response(client: AsyncOpenAI, how: str) -> None:
    options: Any = {"extra_headers": {"Idempotency-Key": f"key of one {how}"}, "background": how == "in the background"}

    async def ask() -> str:
        if how != "streamed":
            return str((await client.responses.create(model="default", input="once", **options)).id)
        stream = await client.responses.create(model="default", input="once", stream=True, **options)
        events = [event async for event in stream]
        assert events[-1].type == "response.completed"
        return str(events[-1].response.id)

    assert await ask() == await ask()


async def test_a_deleted_response_is_not_kept_by_the_same_request_again(client: AsyncOpenAI) -> None:
    async def ask() -> Response:
        headers = {"Idempotency-Key": "of a deleted one"}
        return await client.responses.create(
            model="default", input="once", extra_body={"session_id": "kept"}, extra_headers=headers
        )

    made = await ask()
    await client.responses.delete(made.id)
    assert (await ask()).output_text == made.output_text
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_same_request_twice_at_the_same_time_has_the_same_error(server: AgentServer, stream: bool) -> None:
    async with server.client() as http:

        async def ask() -> tuple[int, Json]:
            body = {"input": "at once it fell", "stream": stream}
            headers = {"Idempotency-Key": f"of two {stream}"}
            reply = await http.post("agent/v1/responses", json=body, headers=headers)
            return reply.status_code, reply.json()["error"] | {"request_id": ""}

        first, *others = await asyncio.gather(ask(), ask(), ask())
    assert first[0] >= 400
    assert others == [first, first]


# ---------------------------------------------------------------------------------------------------- questions


async def test_a_person_may_be_asked_while_the_answer_is_streamed(client: AsyncOpenAI, server: AgentServer) -> None:
    with pytest.raises(openai.UnprocessableEntityError):
        await client.responses.create(model="agent/default", input="permitted", extra_body={"agent_permission": "ask"})
    stream = await client.responses.create(
        model="agent/default", input="permitted", stream=True, extra_body={"agent_permission": "ask"}
    )
    kinds: list[str] = []
    async for event in stream:
        kinds.append(event.type)
        if event.type == "agentic_tool_approval_required":  # type: ignore[comparison-overlap]
            approval = event.to_dict()["approval_id"]  # type: ignore[unreachable]
            async with server.client() as http:
                reply = await http.post(f"agent/v1/agent/approvals/{approval}", json={"decision": "approve"})
                assert reply.status_code == 200
    assert kinds.count("agentic_tool_approval_required") == 1
    assert "response.code_interpreter_call.completed" in kinds


# ---------------------------------------------------------------------------------------------------- fetched


PAGES = {"/dot.png": ("image/png", DOT), "/data.csv": ("text/csv", b"a,b\n1,2\n")}


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """An address that the configuration allows."""
    with http_server(lambda path, _: (200, {"Content-Type": PAGES[path][0]}, PAGES[path][1]), "127.0.0.2") as url:
        yield url


async def test_pictures_and_files_are_fetched_where_the_guard_allows(
    client: AsyncOpenAI, server: AgentServer, elsewhere: str
) -> None:
    content: Any = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": f"{elsewhere}/dot.png", "detail": "auto"},
        {"type": "input_file", "file_url": f"{elsewhere}/data.csv"},
    ]
    made = await client.responses.create(model="agent/default", input=[{"role": "user", "content": content}])
    async with server.client() as http:
        files = (await http.get(f"agent/v1/containers/{session(made)}/files")).json()["data"]
    assert [(file["filename"], file["bytes"]) for file in files] == [("data.csv", 8)]
    listed: Any = (await client.responses.input_items.list(made.id)).to_dict()
    _, image, file = listed["data"][0]["content"]
    assert (image["image_url"], file["file_id"]) == (f"{elsewhere}/dot.png", files[0]["id"])
    content[1] = {"type": "input_image", "image_url": f"{elsewhere.replace('127.0.0.2', '127.0.0.3')}/dot.png"}
    with pytest.raises(openai.PermissionDeniedError):
        await client.responses.create(model="default", input=[{"role": "user", "content": content}])


async def test_a_picture_may_be_a_file_that_is_here(client: AsyncOpenAI) -> None:
    file = await client.files.create(file=("dot.png", DOT, "image/png"), purpose="vision")
    content: Any = [{"type": "input_image", "file_id": file.id, "detail": "auto"}]
    made = await client.responses.create(model="default", input=[{"role": "user", "content": content}])
    assert made.output_text == "Hello."
    content = [{"type": "input_image", "file_id": "file-none", "detail": "auto"}]
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(model="default", input=[{"role": "user", "content": content}])


# ---------------------------------------------------------------------------------------------------- tokens


async def count(client: AsyncOpenAI, **request: Any) -> int:
    counted = await client.responses.input_tokens.count(**{"model": "default", "input": "How warm is it?", **request})
    assert counted.object == "response.input_tokens"
    return counted.input_tokens


async def test_input_tokens_are_estimated_with_tools_and_the_conversation(client: AsyncOpenAI) -> None:
    alone = await count(client)
    assert await count(client, tools=[WEATHER], instructions="Be brief.") > alone
    first = await client.responses.create(model="default", input="Good day.", extra_body={"session_id": "counted"})
    assert await count(client, previous_response_id=first.id) > alone
    assert await count(client, conversation="counted") > alone
    with pytest.raises(openai.NotFoundError):
        await count(client, model="no-such-model")


async def test_routes_that_are_missing_say_what_to_use_instead(client: AsyncOpenAI) -> None:
    """They answered a bare "Method Not Allowed"."""
    with pytest.raises(openai.NotFoundError, match="shortens long conversations"):
        await client.responses.compact(model="default", input="hi")
    with pytest.raises(openai.NotFoundError, match="not stored"):
        await client.chat.completions.retrieve("chatcmpl-1")
    with pytest.raises(openai.APIStatusError, match="does not support GET, only POST"):
        await client.chat.completions.list()
