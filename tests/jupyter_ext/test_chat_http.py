"""``chat/completions`` of a real server, as the official client of OpenAI speaks to it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageFunctionToolCall
from pydantic import BaseModel

from tests.server import ROOT, TOKEN, AgentServer, Json

PEER_INI = ROOT / "tests/peers/peer.ini"
PYTHON = {"name": "python", "arguments": {"code": "x = 20\nopen('a.txt', 'w').write('hi')\nprint(x + 1)"}}
AGAIN = {"name": "python", "arguments": {"code": "print(x + 2)"}}
ULM = {"name": "weather", "arguments": {"city": "Ulm"}}
BONN = {"name": "weather", "arguments": {"city": "Bonn"}}
SCRIPT: list[Json] = [
    {"text": "Let me ask.", "calls": [ULM, BONN], "when": "sdk: weather in two"},
    *[{"calls": [ULM], "when": f"sdk: weather streamed by {name}"} for name in ("default", "agent/default")],
    {"text": "It is sunny.", "deltas": 2, "when": "sdk: weather streamed", "loop": True},
    *[
        {"text": "Let me see.", "calls": [PYTHON], "when": f"sdk: compute {word}"}
        for word in ("whole", "streamed", "session")
    ],
    {"calls": [AGAIN], "when": "sdk: go on"},
    {"calls": [{"name": "transfer_to_other", "arguments": {}}], "when": "sdk: hand over"},
    {"text": "I am the other.", "when": "sdk: hand over", "loop": True},
    {"text": "one two three", "deltas": 3, "when": "count", "loop": True},
    {"text": '{"city": "Ulm", "people": 3}', "deltas": 4, "when": "as JSON", "loop": True},
    {"reasoning": "Hm.", "text": "Sure.", "when": "think", "loop": True},
    {"text": "It was", "finish": "length", "when": "cut", "loop": True},
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "It begins", "fault": "The model is broken.", "when": "break late", "delay": 0.01, "loop": True},
    {"fault": "The model is broken.", "when": "break", "loop": True},
    *[{"text": "Let me see.", "calls": [PYTHON], "when": f"compute {n}"} for n in range(5)],
    {"text": "It is 21.", "deltas": 2, "when": "compute", "loop": True},
    {"calls": [AGAIN], "when": "go on"},
    {"text": "It is 22.", "when": "go on", "loop": True},
    *[{"calls": [PYTHON], "when": f"run {word}"} for word in ("it", "approve", "deny")],
    {"text": "Done.", "when": "run", "loop": True},
    {"calls": [ULM], "when": "weather in one"},
    {"text": "Sunny in Ulm.", "when": "weather in one", "loop": True},
    {"text": "Let me ask.", "calls": [ULM, BONN], "when": "weather in two"},
    {"text": "Sun and rain.", "when": "weather in two", "loop": True},
    {"calls": [ULM, {"name": "python", "arguments": {"code": "print(1)"}}], "when": "weather and code"},
    {"text": "Both.", "when": "weather and code", "loop": True},
    {"calls": [ULM], "when": "weather streamed", "loop": True},
    {"calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}], "when": "read the file"},
    {"text": "I read it.", "when": "read the file", "loop": True},
    {"text": "Hello.", "loop": True},
]
TRAITS = {"web_hosts": "127.0.0.1"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
CODE: Any = {"type": "code_interpreter", "container": {"type": "auto"}}


class Place(BaseModel):
    city: str
    people: int


@pytest.fixture(scope="module")
def client(server: AgentServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def http(server: AgentServer) -> Iterator[httpx.Client]:
    """For what OpenAI's client has no words for."""
    with server.blocking_client({"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client


def said(text: str) -> Any:
    return [{"role": "user", "content": text}]


def ask(client: openai.OpenAI, text: str, model: str = "default", **options: Any) -> ChatCompletion:
    completion: ChatCompletion = client.chat.completions.create(model=model, messages=said(text), **options)
    return ChatCompletion.model_validate(completion.to_dict())


def stream(client: openai.OpenAI, text: str, model: str = "default", **options: Any) -> list[ChatCompletionChunk]:
    with client.chat.completions.create(model=model, messages=said(text), stream=True, **options) as chunks:
        return [ChatCompletionChunk.model_validate(chunk.to_dict()) for chunk in chunks]


def text_of(chunks: list[ChatCompletionChunk]) -> str:
    """As people write it: nothing of a chunk is looked at before."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def extra(of: BaseModel) -> dict[str, Any]:
    return of.model_extra or {}


def frames(http: httpx.Client, **body: Any) -> list[tuple[str, str]]:
    """(name, data) of every server-sent event."""
    reply = http.post("agent/v1/chat/completions", json={"stream": True, **body})
    assert reply.headers["Content-Type"].startswith("text/event-stream"), reply.text
    blocks = [block.split("\n") for block in reply.text.split("\n\n") if block and not block.startswith(":")]
    return [
        (lines[0].removeprefix("event: ") if lines[1:] else "", lines[-1].removeprefix("data: ")) for lines in blocks
    ]


# ---------------------------------------------------------------------------------------------------- plain answers


def test_an_answer_is_a_completion(client: openai.OpenAI) -> None:
    told = ask(client, "hi")
    assert (told.choices[0].message.content, told.choices[0].finish_reason) == ("Hello.", "stop")
    assert told.usage is not None
    assert told.usage.total_tokens == told.usage.prompt_tokens + told.usage.completion_tokens > 0
    assert extra(told) == {}


def test_an_answer_is_streamed(client: openai.OpenAI) -> None:
    chunks = stream(client, "count")
    assert text_of(chunks) == "one two three"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None


def test_usage_of_a_stream_comes_as_it_was_asked_for(client: openai.OpenAI) -> None:
    chunks = stream(client, "count", stream_options={"include_usage": True})
    assert [(chunk.choices, chunk.usage is not None) for chunk in chunks if not chunk.choices or chunk.usage] == [
        ([], True)
    ]


async def test_the_async_client_does_the_same(server: AgentServer) -> None:
    async with openai.AsyncOpenAI(base_url=server.agent_url, api_key=TOKEN, max_retries=0) as client:
        whole = await client.chat.completions.create(model="default", messages=said("hi"))
        assert whole.choices[0].message.content == "Hello."
        chunks = await client.chat.completions.create(model="default", messages=said("count"), stream=True)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in chunks]) == "one two three"
        async with client.chat.completions.stream(model="default", messages=said("count")) as events:
            kinds = {event.type async for event in events}
            assert {"chunk", "content.delta", "content.done"} <= kinds
            assert (await events.get_final_completion()).choices[0].message.content == "one two three"


def test_an_answer_is_parsed_as_a_type(client: openai.OpenAI) -> None:
    whole = client.chat.completions.parse(model="default", messages=said("as JSON"), response_format=Place)
    assert whole.choices[0].message.parsed == Place(city="Ulm", people=3)
    with client.chat.completions.stream(model="default", messages=said("as JSON"), response_format=Place) as events:
        assert events.get_final_completion().choices[0].message.parsed == Place(city="Ulm", people=3)


def test_raw_and_streaming_responses_of_the_client_work(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="default", messages=said("hi"))
    assert raw.parse().choices[0].message.content == "Hello."
    assert raw.headers["X-Request-ID"]
    with client.chat.completions.with_streaming_response.create(
        model="default", messages=said("count"), stream=True
    ) as reply:
        assert list(reply.iter_lines())[-1:] == [""] or "data: [DONE]" in list(reply.iter_lines())[-2:]


def test_reasoning_comes_beside_the_answer(client: openai.OpenAI) -> None:
    assert extra(ask(client, "think").choices[0].message) == {"reasoning_content": "Hm."}
    told = [extra(chunk.choices[0].delta) for chunk in stream(client, "think")]
    assert {"reasoning_content": "Hm."} in told


def test_an_answer_that_was_cut_says_so(client: openai.OpenAI) -> None:
    assert ask(client, "cut", max_tokens=2).choices[0].finish_reason == "length"
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="default", messages=said("cut"), response_format=Place)


def test_log_probabilities_come_with_the_answer(client: openai.OpenAI) -> None:
    for logprobs in (
        ask(client, "count", logprobs=True, top_logprobs=1).choices[0].logprobs,
        next(c.choices[0].logprobs for c in stream(client, "count", logprobs=True) if c.choices[0].logprobs),
    ):
        assert logprobs is not None
        assert "".join(token.token for token in logprobs.content or ()) == "one two three"


def test_a_picture_may_come_along(client: openai.OpenAI) -> None:
    url = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    content: Any = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]
    told = client.chat.completions.create(model="default", messages=[{"role": "user", "content": content}])
    assert told.choices[0].message.content == "Hello."


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """The address of a server with a picture (``/a.png``) and a page (``/page``)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind = {"/a.png": "image/png", "/page": "text/html"}.get(self.path)
            self.send_response(200 if kind else 404)
            self.send_header("Content-Type", kind or "text/plain")
            self.end_headers()
            self.wfile.write(b"\x89PNG")

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def look(client: openai.OpenAI, url: str) -> ChatCompletion:
    content: Any = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]
    return client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": content}], extra_body={"session_id": "pictures"}
    )


def test_a_picture_is_fetched_where_that_is_allowed(client: openai.OpenAI, http: httpx.Client, elsewhere: str) -> None:
    look(client, f"{elsewhere}/a.png")
    items = http.get("agent/v1/sessions/pictures/items").json()["items"]
    assert [part["type"] for part in items[0]["message"]["content"]] == ["text", "media"]


def test_what_can_not_be_fetched_is_the_clients_mistake(client: openai.OpenAI, elsewhere: str) -> None:
    for url in (f"{elsewhere}/page", f"{elsewhere}/none", "http://127.0.0.1:1/a.png", "http://"):
        with pytest.raises(openai.BadRequestError):
            look(client, url)
    with pytest.raises(openai.PermissionDeniedError):
        look(client, "http://10.0.0.1/a.png")


def test_calls_without_a_session_are_in_no_list(client: openai.OpenAI, http: httpx.Client) -> None:
    ask(client, "hi")
    assert "hi" not in http.get("agent/v1/sessions").text


# ---------------------------------------------------------------------------------------------------- the agent


def test_the_agents_tools_run_and_are_told(client: openai.OpenAI) -> None:
    told = ask(client, "compute 0", "agent/default")
    assert told.choices[0].message.content == "It is 21."
    (call,) = extra(told)["agentic_tool_calls"]
    assert (call["round"], call["name"], call["result_content"]) == (0, "python", "stdout: 21\n")
    assert [(file["name"], file["text"]) for file in extra(told)["files"]] == [("a.txt", "hi")]
    assert call["file_ids"] == [extra(told)["files"][0]["id"]]
    assert extra(told)["session_id"]


def test_a_stream_tells_of_tools_by_names_that_openais_client_passes_over(
    client: openai.OpenAI, http: httpx.Client
) -> None:
    told = frames(http, model="agent/default", messages=said("compute 1"))
    names = [name for name, _ in told if name]
    assert names == ["agentic_tool_call_progress", "file_produced", "agentic_tool_call_progress"]
    assert told[-1] == ("", "[DONE]")
    last = json.loads(told[-2][1])
    assert last["session_id"]
    with client.chat.completions.stream(model="agent/default", messages=said("compute 2")) as events:
        seen = [event.chunk for event in events if event.type == "chunk"]
        assert events.get_final_completion().choices[0].message.content == "Let me see.\n\nIt is 21."
    phases = [extra(chunk).get("phase") for chunk in seen if extra(chunk).get("type") == names[0]]
    assert phases == ["calling", "complete"]


def test_a_conversation_that_is_sent_whole_goes_on_where_its_variables_are(client: openai.OpenAI) -> None:
    session = extra(ask(client, "compute 3", "agent/default", tools=[CODE]))["session_id"]
    messages: Any = [*said("compute 3"), {"role": "assistant", "content": "It is 21."}, *said("go on")]
    told = client.chat.completions.create(model="agent/default", messages=messages)
    assert told.choices[0].message.content == "It is 22."
    assert extra(told)["agentic_tool_calls"][0]["result_content"] == "stdout: 22\n"
    assert extra(told)["session_id"] == session


def test_a_plain_model_runs_code_where_the_request_has_code_interpreter(client: openai.OpenAI) -> None:
    assert ask(client, "run it", tools=[CODE]).choices[0].message.content == "Done."


def test_a_named_session_keeps_what_is_said(client: openai.OpenAI, http: httpx.Client) -> None:
    told = ask(client, "hi", extra_body={"session_id": "kept"})
    assert extra(told) == {"session_id": "kept"}
    ask(client, "hi again", extra_body={"session_id": "kept"})
    items = http.get("agent/v1/sessions/kept/items").json()["items"]
    assert [item["message"]["content"] for item in items] == ["hi", "Hello.", "hi again", "Hello."]


def test_a_file_that_is_asked_for_and_not_made_is_said_to_be_missing(client: openai.OpenAI) -> None:
    told = ask(client, "hi", "agent/default", extra_body={"files": [{"name": "report.pdf"}]})
    (file,) = extra(told)["files"]
    assert (file["name"], file["code"], file["bytes"]) == ("report.pdf", "not_produced", 0)


def test_a_file_of_a_message_can_be_read(client: openai.OpenAI) -> None:
    data = base64.b64encode(b"the words").decode()
    part = {"type": "file", "file": {"filename": "notes.txt", "file_data": f"data:text/plain;base64,{data}"}}
    content: Any = [{"type": "text", "text": "read the file"}, part]
    told = client.chat.completions.create(model="default", messages=[{"role": "user", "content": content}])
    (call,) = extra(told)["agentic_tool_calls"]
    assert "the words" in call["result_content"]
    assert told.choices[0].message.content == "I read it."


def test_a_conversation_that_is_repeated_repeats_no_file(client: openai.OpenAI, http: httpx.Client) -> None:
    part = {"type": "file", "file": {"filename": "b.txt", "file_data": base64.b64encode(b"twice").decode()}}
    first: Any = {"role": "user", "content": [{"type": "text", "text": "hi"}, part]}
    for more in ([], [{"role": "assistant", "content": "Hello."}, *said("again")]):
        messages: Any = [first, *more]
        client.chat.completions.create(model="default", messages=messages, extra_body={"session_id": "repeated"})
    files = http.get("agent/v1/files", params={"session": "repeated"}).json()["data"]
    assert [(file["filename"], file["bytes"]) for file in files] == [("b.txt", 5)]


def test_an_uploaded_file_can_be_named(client: openai.OpenAI) -> None:
    uploaded = client.files.create(file=("b.txt", b"bytes"), purpose="user_data")
    content: Any = [{"type": "text", "text": "hi"}, {"type": "file", "file": {"file_id": uploaded.id}}]
    told = client.chat.completions.create(model="default", messages=[{"role": "user", "content": content}])
    assert told.choices[0].message.content == "Hello."


# ---------------------------------------------------------------------------------------------------- functions


def functions(completion: ChatCompletion) -> list[ChatCompletionMessageFunctionToolCall]:
    calls = completion.choices[0].message.tool_calls or []
    return [call for call in calls if call.type == "function"]


def results(completion: ChatCompletion, *texts: str) -> list[Any]:
    """The answer with its calls, and their results."""
    message = completion.choices[0].message
    calls = message.tool_calls or []
    told = [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in zip(calls, texts, strict=True)]
    return [message.to_dict(), *told]


def test_a_call_of_a_function_is_returned_and_its_result_is_taken(client: openai.OpenAI) -> None:
    first = ask(client, "weather in one", tools=[WEATHER])
    (call,) = functions(first)
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Ulm"}')
    assert (first.choices[0].finish_reason, first.choices[0].message.content) == ("tool_calls", None)
    messages: Any = [*said("weather in one"), *results(first, "sunny")]
    then = client.chat.completions.create(model="default", messages=messages, tools=[WEATHER])
    assert then.choices[0].message.content == "Sunny in Ulm."


def test_several_calls_are_returned_at_once_and_answered_in_a_session(client: openai.OpenAI) -> None:
    session = {"session_id": "functions"}
    first = ask(client, "weather in two", tools=[WEATHER], extra_body=session)
    assert [call.function.arguments for call in functions(first)] == ['{"city": "Ulm"}', '{"city": "Bonn"}']
    alone: Any = results(first, "sun", "rain")[1:]
    then = client.chat.completions.create(model="default", messages=alone, tools=[WEATHER], extra_body=session)
    assert then.choices[0].message.content == "Sun and rain."


def test_functions_of_the_client_and_tools_of_the_server_mix(client: openai.OpenAI) -> None:
    first = ask(client, "weather and code", "agent/default", tools=[WEATHER])
    assert [call["name"] for call in extra(first)["agentic_tool_calls"]] == ["python"]
    assert len(first.choices[0].message.tool_calls or ()) == 1
    messages: Any = [*said("weather and code"), *results(first, "sunny")]
    then = client.chat.completions.create(model="agent/default", messages=messages, tools=[WEATHER])
    assert then.choices[0].message.content == "Both."


def test_a_streamed_call_is_parsed_by_the_clients_own_helper(client: openai.OpenAI) -> None:
    class weather(BaseModel):  # noqa: N801  the class names the function
        city: str

    tool = openai.pydantic_function_tool(weather)
    with client.chat.completions.stream(model="default", messages=said("weather streamed"), tools=[tool]) as events:
        kinds = [event.type for event in events]
        final = events.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    parsed = [call.function.parsed_arguments for call in final.choices[0].message.tool_calls or []]
    assert parsed == [weather(city="Ulm")]


def test_a_function_called_as_a_tool_of_the_agent_is_refused(client: openai.OpenAI) -> None:
    mine: Any = {"type": "function", "function": {"name": "python"}}
    with pytest.raises(openai.BadRequestError, match="python"):
        ask(client, "hi", "agent/default", tools=[mine])


# ---------------------------------------------------------------------------------------------------- permissions


def test_to_be_asked_one_has_to_stream(client: openai.OpenAI) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="stream: true"):
        ask(client, "hi", "agent/default", extra_body={"agent_permission": "ask"})


@pytest.mark.parametrize(("decision", "told"), [("approve", "stdout"), ("deny", "exception")])
def test_a_question_is_answered_while_the_answer_is_streamed(
    client: openai.OpenAI, http: httpx.Client, decision: str, told: str
) -> None:
    found: list[dict[str, Any]] = []
    with client.chat.completions.create(
        model="agent/default", messages=said(f"run {decision}"), stream=True, extra_body={"agent_permission": "ask"}
    ) as chunks:
        for chunk in chunks:
            found.append(extra(chunk))
            if found[-1].get("type") == "agentic_tool_approval_required":
                approval = found[-1]["approval_id"]
                reply = http.post(f"agent/v1/agent/approvals/{approval}", json={"decision": decision})
                assert reply.json()["status"] == "resolved"
    (done,) = [one["data"] for one in found if one.get("phase") == "complete"]
    assert told in done


def test_code_that_is_denied_does_not_run(client: openai.OpenAI) -> None:
    told = ask(client, "compute 4", "agent/default", extra_body={"agent_permission": "deny"})
    assert "21" not in json.dumps(extra(told).get("agentic_tool_calls", []))


# ---------------------------------------------------------------------------------------------------- errors


MISTAKES: list[tuple[Json, int, str, str | None]] = [
    ({"model": "no-such-model"}, 404, "model_not_found", None),
    ({"n": 2}, 400, "invalid_request", "n"),
    ({"messages": []}, 400, "invalid_request", "messages"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "invalid_request", None),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "none"}}]}]},
        404,
        "file_not_found",
        None,
    ),
    ({"tool_choice": "required"}, 400, "invalid_request", "tool_choice"),
    ({"files": [{"name": "a"}]}, 422, "unprocessable", "files"),
    ({"session_id": "a\0b"}, 400, "invalid_request", None),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: next(iter(mistake[0])))
@pytest.mark.parametrize("streams", [False, True])
def test_a_mistake_is_told_in_openais_shape(
    http: httpx.Client, mistake: tuple[Json, int, str, str | None], streams: bool
) -> None:
    body, status, code, param = mistake
    reply = http.post("agent/v1/chat/completions", json={"messages": said("hi"), "stream": streams, **body})
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert error["message"]
    assert error["request_id"] == reply.headers["X-Request-ID"]


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '{"messages": ' + "[" * 10_000, '"\\ud800"'])
def test_a_body_that_is_no_request_is_the_clients_mistake(http: httpx.Client, body: str) -> None:
    reply = http.post("agent/v1/chat/completions", content=body)
    assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_wrong_token_is_told_in_the_clients_words(server: AgentServer) -> None:
    client = openai.OpenAI(base_url=server.agent_url, api_key="wrong", max_retries=0)
    with client, pytest.raises(openai.AuthenticationError) as raised:
        ask(client, "hi")
    assert raised.value.type == "authentication_error"


def test_another_verb_is_refused_in_the_same_shape(http: httpx.Client) -> None:
    reply = http.get("agent/v1/chat/completions")
    assert (reply.status_code, reply.json()["error"]["type"]) == (405, "invalid_request_error")


@pytest.mark.parametrize("streams", [False, True])
def test_a_failure_before_the_first_word_has_its_status(client: openai.OpenAI, streams: bool) -> None:
    with pytest.raises(openai.InternalServerError, match="broken") as raised:
        client.chat.completions.create(model="default", messages=said("break"), stream=streams)
    assert raised.value.status_code == 503


def test_a_failure_after_the_first_word_ends_the_stream_with_an_error(
    client: openai.OpenAI, http: httpx.Client
) -> None:
    with pytest.raises(openai.APIError, match="broken"):
        stream(client, "break late")
    told = frames(http, messages=said("break late"))
    assert told[-1] == ("", "[DONE]")
    assert json.loads(told[-2][1])["error"]["type"] == "server_error"


def turn_of(http: httpx.Client, session: str) -> Json:
    turns: list[Json] = http.get(f"agent/v1/sessions/{session}/turns").json()["turns"]
    return turns[-1]


def test_a_session_that_is_busy_says_so_and_a_turn_that_is_stopped_too(
    client: openai.OpenAI, http: httpx.Client
) -> None:
    with client.chat.completions.create(
        model="default", messages=said("hang"), stream=True, extra_body={"session_id": "busy"}
    ) as chunks:
        next(chunk for chunk in chunks if chunk.choices[0].delta.content)
        with pytest.raises(openai.ConflictError) as raised:
            ask(client, "hi", extra_body={"session_id": "busy"})
        assert raised.value.code == "session_busy"
        http.post(f"agent/v1/turns/{turn_of(http, 'busy')['turn']}/cancel", json={"reason": "enough"})
        with pytest.raises(openai.APIError, match="enough"):
            list(chunks)


async def test_an_answer_that_was_stopped_is_not_asked_for_again_by_itself(server: AgentServer) -> None:
    async with openai.AsyncOpenAI(base_url=server.agent_url, api_key=TOKEN) as client, server.client() as http:
        waiting = asyncio.ensure_future(
            client.chat.completions.create(model="default", messages=said("hang"), extra_body={"session_id": "stopped"})
        )
        while not (turns := (await http.get("agent/v1/sessions/stopped/turns")).json().get("turns")):
            await asyncio.sleep(0.05)
        await http.post(f"agent/v1/turns/{turns[0]['turn']}/cancel", json={"reason": "enough"})
        with pytest.raises(openai.ConflictError, match="enough") as raised:
            await waiting
        assert raised.value.code == "turn_stopped"
        assert len((await http.get("agent/v1/sessions/stopped/turns")).json()["turns"]) == 1


def test_a_client_that_leaves_stops_its_turn(client: openai.OpenAI, http: httpx.Client) -> None:
    with client.chat.completions.create(
        model="default", messages=said("hang"), stream=True, extra_body={"session_id": "left"}
    ) as chunks:
        next(chunk for chunk in chunks if chunk.choices[0].delta.content)
    until = time.monotonic() + 30
    while (turn := turn_of(http, "left"))["state"] == "open" and time.monotonic() < until:
        time.sleep(0.05)
    assert turn["state"] == "cancelled"


# ---------------------------------------------------------------------------------------------------- other clients


def test_the_agents_sdk_runs_on_it(server: AgentServer, agents_python: str) -> None:
    contract = ROOT / "tests/peers/agents_sdk/api_chat_completions.py"
    there = ["--rootdir", str(contract.parent), "--confcutdir", str(contract.parent), "-c", str(PEER_INI)]
    env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "AGENT_URL": server.agent_url, "AGENT_TOKEN": TOKEN}
    done = subprocess.run(
        [agents_python, "-m", "pytest", "-q", *there, str(contract)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
