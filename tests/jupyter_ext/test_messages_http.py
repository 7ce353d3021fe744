"""Tests ``messages`` of a real server with Anthropic's official client."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import beta_tool
from anthropic.resources.beta.messages import Messages

from tests.http_server import Answer, http_server
from tests.jupyter_ext.chat import Place
from tests.server import TOKEN, AgentServer, Json, free_port

PYTHON = {"name": "python", "arguments": {"code": "x = 20\nopen('a.txt', 'w').write('hi')\nprint(x + 1)"}}
AGAIN = {"name": "python", "arguments": {"code": "print(x + 2)"}}
ULM = {"name": "weather", "arguments": {"city": "Ulm"}}
BONN = {"name": "weather", "arguments": {"city": "Bonn"}}
SCRIPT: list[Json] = [
    {"text": "one two three", "deltas": 3, "when": "count", "loop": True},
    {"text": '{"city": "Ulm", "people": 3}', "deltas": 4, "when": "as JSON", "loop": True},
    {"reasoning": "Hm.", "text": "Sure.", "when": "think", "loop": True},
    {"text": "It was", "finish": "length", "when": "cut", "loop": True},
    {"text": "It begins", "fault": "hang", "when": "hang", "loop": True},
    {"text": "It begins", "fault": "The model is broken.", "when": "break late", "delay": 0.01, "loop": True},
    {"fault": "The model is broken.", "when": "break", "loop": True},
    *[{"text": "Let me see.", "calls": [PYTHON], "when": f"compute {n}"} for n in range(7)],
    {"text": "It is 21.", "deltas": 2, "when": "compute", "loop": True},
    {"calls": [AGAIN], "when": "go on"},
    {"text": "It is 22.", "when": "go on", "loop": True},
    *[{"calls": [PYTHON], "when": f"run {word}"} for word in ("approved", "denied")],
    {"text": "Done.", "when": "run", "loop": True},
    *[{"text": "Let me ask.", "calls": [ULM, BONN], "when": f"weather {n}"} for n in range(5)],
    {"text": "Sun and rain.", "when": "weather", "loop": True},
    {"calls": [{"name": "web_search", "arguments": {"query": "sparrows"}}], "when": "look up"},
    {"text": "All of them.", "when": "look up", "loop": True},
    {"calls": [{"name": "shell", "arguments": {"commands": ["echo a", "false"]}}], "when": "in the shell"},
    {"text": "It failed.", "when": "in the shell", "loop": True},
    {"text": "Both.", "calls": [ULM, PYTHON], "when": "mixed"},
    {"text": "Both came.", "when": "mixed", "loop": True},
    {"calls": [PYTHON], "when": "stop me"},
    {"text": "It begins", "fault": "hang", "when": "stop me"},
    {"text": "It went on.", "when": "Go on.", "loop": True},
    {"text": "Hello.", "loop": True},
]
PICTURES, NOWHERE = free_port(), free_port()
TRAITS = {
    "web": "tests.tools.own_functions:search",
    "web_hosts": f"127.0.0.1:{PICTURES},127.0.0.1:{NOWHERE}",
    "policy": {"web": "auto"},
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}
CODE: Any = {"type": "code_execution_20250825", "name": "code_execution"}
PNG = base64.b64encode(b"png").decode()


THREADS = pytest.mark.skipif(not hasattr(Messages, "thread"), reason="this version of the client has no threads")


def client_of(server: AgentServer, **options: Any) -> anthropic.Anthropic:
    given = {"api_key": TOKEN, **options}
    return anthropic.Anthropic(base_url=f"{server.url}agent", max_retries=0, **given)


@pytest.fixture(scope="module")
def client(server: AgentServer) -> Iterator[anthropic.Anthropic]:
    with client_of(server) as client:
        yield client


def chat(*words: Any) -> Any:
    """Return one user message, or a conversation with alternating roles."""
    return [{"role": ("user", "assistant")[n % 2], "content": one} for n, one in enumerate(words)]


def asks(client: anthropic.Anthropic, *words: Any, **more: Any) -> Any:
    return client.messages.create(**{"model": "default", "max_tokens": 100, "messages": chat(*words), **more})


def text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def kinds(message: Any) -> list[str]:
    return [block.type for block in message.content]


# ---------------------------------------------------------------------------------------------------- answers


def test_an_answer_with_its_usage_and_the_id_of_its_request(client: anthropic.Anthropic) -> None:
    message = asks(client, "count", system="Be brief.")
    assert (text(message), message.stop_reason, message.model) == ("one two three", "end_turn", "default")
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 0
    assert message.usage.output_tokens == 3
    assert message._request_id
    assert "session_id" not in (message.model_extra or {})


async def test_the_async_client_and_its_stream(server: AgentServer) -> None:
    async with anthropic.AsyncAnthropic(base_url=f"{server.url}agent", api_key=TOKEN, max_retries=0) as client:
        async with client.messages.stream(model="default", max_tokens=10, messages=chat("count")) as stream:
            words = [word async for word in stream.text_stream]
            message = await stream.get_final_message()
        assert "".join(words) == text(message) == "one two three"
        assert stream.request_id


def test_the_accumulated_stream_is_the_message(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model="default", max_tokens=10, messages=chat("think")) as stream:
        streamed: Json = stream.get_final_message().to_dict(mode="json")
    plain: Json = asks(client, "think", max_tokens=10).to_dict(mode="json")
    assert streamed | {"id": "", "usage": {}} == plain | {"id": "", "usage": {}}
    assert streamed["usage"].keys() == plain["usage"].keys()
    assert [block["type"] for block in plain["content"]] == ["thinking", "text"]


def test_thinking_can_be_left_out(client: anthropic.Anthropic) -> None:
    assert kinds(asks(client, "think", thinking={"type": "disabled"})) == ["text"]
    adaptive = asks(client, "think", thinking={"type": "adaptive"})
    assert kinds(adaptive) == ["thinking", "text"]
    again = asks(client, "think", adaptive.content, "think")
    assert text(again) == "Sure."


def test_an_answer_that_was_cut_says_so(client: anthropic.Anthropic) -> None:
    assert asks(client, "cut").stop_reason == "max_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_before_a_stop_sequence_and_names_it(client: anthropic.Anthropic, stream: bool) -> None:
    given: Any = {"model": "default", "max_tokens": 10, "messages": chat("count"), "stop_sequences": ["zzz", "two"]}
    if stream:
        with client.messages.stream(**given) as followed:
            message: Any = followed.get_final_message()
    else:
        message = client.messages.create(**given)
    assert (text(message), message.stop_reason, message.stop_sequence) == ("one ", "stop_sequence", "two")


def test_parsed_answers(client: anthropic.Anthropic) -> None:
    parsed = client.messages.parse(model="default", max_tokens=50, messages=chat("as JSON"), output_format=Place)
    assert parsed.parsed_output == Place(city="Ulm", people=3)


def test_paths_of_the_beta_are_the_same(client: anthropic.Anthropic) -> None:
    message = client.beta.messages.create(model="default", max_tokens=10, messages=chat("count"), betas=["files-api"])
    assert message.stop_reason == "end_turn"
    with client.beta.messages.stream(model="default", max_tokens=10, messages=chat("count")) as stream:
        assert stream.get_final_text() == "one two three"


@pytest.mark.parametrize("how", [{"api_key": None, "auth_token": TOKEN}, {"default_headers": {"x-api-key": TOKEN}}])
def test_either_header_opens_the_route(server: AgentServer, how: Any) -> None:
    with client_of(server, **how) as client:
        assert text(asks(client, "hi")) == "Hello."
    reply = httpx.post(
        f"{server.agent_url}messages",
        headers={"x-api-key": TOKEN},
        json={"model": "default", "max_tokens": 5, "messages": chat("hi")},
    )
    assert (reply.status_code, reply.headers["request-id"]) == (200, reply.headers["x-request-id"])


# ---------------------------------------------------------------------------------------------------- tools


def test_tools_of_the_client_come_back_and_their_results_are_answered(client: anthropic.Anthropic) -> None:
    asked = asks(client, "weather 0", tools=[WEATHER])
    assert (asked.stop_reason, kinds(asked)) == ("tool_use", ["text", "tool_use", "tool_use"])
    uses = [block for block in asked.content if block.type == "tool_use"]
    assert [use.input["city"] for use in uses] == ["Ulm", "Bonn"]
    results = [{"type": "tool_result", "tool_use_id": use.id, "content": "Sun."} for use in uses]
    answer = asks(client, "weather 0", asked.content, results, tools=[WEATHER])
    assert (text(answer), answer.stop_reason) == ("Sun and rain.", "end_turn")


def test_results_may_come_alone_to_a_session(client: anthropic.Anthropic, server: AgentServer) -> None:
    asked = asks(client, "weather 1", tools=[WEATHER], extra_body={"session_id": "alone"})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "Sun."}]}
        for block in asked.content
        if block.type == "tool_use"
    ]
    answer = asks(client, results, tools=[WEATHER], extra_body={"session_id": "alone"})
    assert text(answer) == "Sun and rain."
    roles = [item["message"]["role"] for item in items(server, "alone")]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


def items(server: AgentServer, session: str) -> list[Json]:
    with server.blocking_client({"x-api-key": TOKEN}) as client:
        found: list[Json] = client.get(f"agent/v1/sessions/{session}/items").json()["items"]
        return found


@pytest.mark.parametrize(("number", "stream"), [(2, False), (3, True)])
def test_the_tool_runner_runs_to_the_end(client: anthropic.Anthropic, number: int, stream: Any) -> None:
    asked: list[str] = []

    @beta_tool
    def weather(city: str) -> str:
        """Tells it.

        Args:
            city: Of where.
        """
        asked.append(city)
        return "Sun."

    runner: Any = client.beta.messages.tool_runner(
        model="default", max_tokens=100, messages=chat(f"weather {number}"), tools=[weather], stream=stream
    )
    last: Any = None
    for step in runner:
        last = step.get_final_message() if stream else step
    assert asked == ["Ulm", "Bonn"]
    assert (text(last), last.stop_reason) == ("Sun and rain.", "end_turn")


@THREADS
def test_a_thread_sends_only_what_is_new_and_keeps_its_tools(client: anthropic.Anthropic, server: AgentServer) -> None:
    thread = client.beta.messages.thread(model="default", max_tokens=100, system="Be brief.", tools=[WEATHER])
    first = thread.send({"role": "user", "content": "hi"})
    asked = thread.send({"role": "user", "content": "weather 4"})
    assert thread.previous_message_id == asked.id
    uses = [block for block in asked.content if block.type == "tool_use"]
    assert len(uses) == 2
    results: Any = [{"type": "tool_result", "tool_use_id": use.id, "content": "Sun."} for use in uses]
    last = thread.send({"role": "user", "content": results})
    assert text(last) == "Sun and rain."
    sessions = {str((message.model_extra or {})["session_id"]) for message in (first, asked, last)}
    assert len(sessions) == 1
    roles = [item["message"]["role"] for item in items(server, sessions.pop())]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "tool", "assistant"]


@THREADS
def test_a_thread_that_is_lost_is_sent_whole_again(client: anthropic.Anthropic) -> None:
    follows = {"thread": {"type": "continue", "previous_message_id": "msg_unknown"}}
    with pytest.raises(anthropic.NotFoundError) as lost:
        asks(client, "hi", extra_body=follows)
    assert lost.value.error_code == "thread_not_found"
    thread = client.beta.messages.thread(model="default", max_tokens=100, messages=chat("hi"))
    thread.send()
    thread._state._thread.previous_message_id = "msg_unknown"  # type: ignore[union-attr]
    assert text(thread.send({"role": "user", "content": "count"})) == "one two three"


@THREADS
async def test_a_thread_of_the_async_client_streams(server: AgentServer) -> None:
    async with anthropic.AsyncAnthropic(base_url=f"{server.url}agent", api_key=TOKEN, max_retries=0) as client:
        thread = client.beta.messages.thread(model="default", max_tokens=100)
        for words in ("hi", "count"):
            async with thread.stream({"role": "user", "content": words}) as stream:
                message = await stream.get_final_message()
        assert text(message) == "one two three"
        assert thread.previous_message_id == message.id


# ---------------------------------------------------------------------------------------------------- the agent


def test_the_agent_runs_code_and_tells_of_it_also_without_a_stream(client: anthropic.Anthropic) -> None:
    message = asks(client, "compute 0", model="agent/default", extra_body={"files": [{"name": "a.txt"}]})
    assert kinds(message) == ["text", "server_tool_use", "code_execution_tool_result", "text"]
    result = message.content[2].content
    assert (result.stdout.splitlines()[0], result.return_code, message.stop_reason) == ("21", 0, "end_turn")
    extra = message.model_extra
    assert [record["name"] for record in extra["agentic_tool_calls"]] == ["python"]
    assert [file["name"] for file in extra["files"]] == ["a.txt"]
    assert extra["files"][0]["id"] in {output.file_id for output in result.content}
    assert message.container.id == extra["session_id"]


def test_a_tool_of_the_request_turns_code_on_and_the_conversation_goes_on_where_its_variables_are(
    client: anthropic.Anthropic, server: AgentServer
) -> None:
    with client.messages.stream(model="default", max_tokens=100, messages=chat("compute 1"), tools=[CODE]) as stream:
        first = stream.get_final_message()
    assert kinds(first) == ["text", "server_tool_use", "code_execution_tool_result", "text"]
    session = (first.model_extra or {})["session_id"]
    second = asks(client, "compute 1", first.content, "go on", tools=[CODE])
    assert second.model_extra["session_id"] == session
    assert second.content[1].content.stdout == "22"
    roles = [item["message"]["role"] for item in items(server, session)]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant"]


def test_a_container_that_is_named_is_used_again(client: anthropic.Anthropic) -> None:
    first = asks(client, "hi", tools=[CODE], container="kept-one")
    assert first.model_extra["session_id"] == "kept-one"
    assert asks(client, "hi", "Hello.", "hi", container={"id": "kept-one"}).model_extra["session_id"] == "kept-one"


def test_the_web_is_searched_where_a_tool_of_the_request_says_so(client: anthropic.Anthropic) -> None:
    search: Any = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    message = asks(client, "look up", tools=[search])
    assert kinds(message) == ["server_tool_use", "web_search_tool_result", "text"]
    assert [one.url for one in message.content[1].content] == ["https://shelf.example/1"]
    assert message.usage.server_tool_use.web_search_requests == 1
    again = asks(client, "look up", message.content, "hi", tools=[search])
    assert again.model_extra["session_id"] == message.model_extra["session_id"]


def test_the_shell_has_its_exit_code(client: anthropic.Anthropic) -> None:
    message = asks(client, "in the shell", model="agent/default")
    result = message.content[1].content
    assert (result.stdout, result.return_code, message.content[0].input) == ("a\n", 1, {"command": "echo a\nfalse"})


def test_what_other_sessions_ran_can_be_carried_to_a_plain_model(
    client: anthropic.Anthropic, server: AgentServer
) -> None:
    ran = asks(client, "compute 4", model="agent/default")
    answer = asks(client, "compute 4", ran.content, "hi", extra_body={"session_id": "carried"})
    assert text(answer) == "Hello."
    roles = [item["message"]["role"] for item in items(server, "carried")]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]


def test_calls_of_the_server_and_of_the_client_at_once(client: anthropic.Anthropic) -> None:
    asked = asks(client, "mixed", tools=[WEATHER, CODE])
    assert kinds(asked) == ["text", "server_tool_use", "code_execution_tool_result", "tool_use"]
    assert asked.stop_reason == "tool_use"
    result = [{"type": "tool_result", "tool_use_id": asked.content[-1].id, "content": "Sun."}]
    answer = asks(client, "mixed", asked.content, result, tools=[WEATHER, CODE])
    assert (text(answer), answer.model_extra["session_id"]) == ("Both came.", asked.model_extra["session_id"])


def test_a_turn_that_somebody_stopped_can_go_on(client: anthropic.Anthropic, server: AgentServer) -> None:
    given: Any = {"model": "default", "max_tokens": 10, "messages": chat("stop me"), "tools": [CODE]}
    with client.messages.stream(**given, extra_body={"session_id": "stopped"}) as stream:
        assert next(iter(stream.text_stream)) == "It begins"
        with server.blocking_client({"x-api-key": TOKEN}) as raw:
            turn = raw.get("agent/v1/sessions/stopped/turns").json()["turns"][-1]["turn"]
            raw.post(f"agent/v1/turns/{turn}/cancel", json={})
        message = stream.get_final_message()
    assert (message.stop_reason, text(message)) == ("pause_turn", "It begins")
    on = [*chat("stop me"), {"role": "assistant", "content": message.content}]
    assert (
        text(client.messages.create(**{**given, "messages": on}, extra_body={"session_id": "stopped"})) == "It went on."
    )


@pytest.mark.parametrize(("extra", "first"), [({"max_tool_rounds": 9}, 2), ({}, 5)])
def test_what_is_ours_in_a_stream_has_no_name_and_is_for_clients_that_use_our_fields(
    client: anthropic.Anthropic, server: AgentServer, extra: dict[str, int], first: int
) -> None:
    body = {"model": "agent/default", "max_tokens": 100, "messages": chat(f"compute {first}"), "stream": True}
    with server.blocking_client({"x-api-key": TOKEN}) as raw:
        reply = raw.post("agent/v1/messages", json=body | extra)
    events = [frame.split("\n") for frame in reply.text.strip().split("\n\n")]
    unnamed = [json.loads(lines[0].removeprefix("data: "))["type"] for lines in events if len(lines) == 1]
    ours = ["agentic_tool_call_progress", "file_produced", "agentic_tool_call_progress"]
    assert (unnamed, "code_execution_tool_result" in reply.text) == (ours if extra else [], True)
    given: Any = {"model": "agent/default", "stream": True, "extra_body": extra}
    known = {event.type for event in asks(client, f"compute {first + 1}", **given)}
    assert all(kind.startswith(("message_", "content_block_")) for kind in known)


@pytest.mark.parametrize(("decision", "said_of_it"), [("approve", "21"), ("deny", "no thanks")])
def test_a_call_that_waits_for_a_person_is_answered_from_the_stream(
    server: AgentServer, decision: str, said_of_it: str
) -> None:
    word = {"approve": "approved", "deny": "denied"}[decision]
    body = {"model": "agent/default", "max_tokens": 100, "messages": chat(f"run {word}")}
    body |= {"stream": True, "agent_permission": "ask"}
    found: list[Any] = []
    with (
        server.blocking_client({"x-api-key": TOKEN}) as raw,
        raw.stream("POST", "agent/v1/messages", json=body) as reply,
    ):
        for line in reply.iter_lines():
            if not line.startswith("data: "):
                continue
            found.append(json.loads(line[6:]))
            if found[-1]["type"] == "agentic_tool_approval_required":
                path = f"agent/v1/agent/approvals/{found[-1]['approval_id']}"
                answered = raw.post(path, json={"decision": decision, "message": "no thanks"})
                assert answered.status_code == 200
    results = [one["content_block"]["content"] for one in found if "tool_result" in str(one.get("content_block"))]
    assert said_of_it in results[0]["stdout"] + results[0]["stderr"]
    assert found[-1]["type"] == "message_stop"


def test_a_client_that_leaves_stops_its_turn(server: AgentServer) -> None:
    body = {"model": "default", "max_tokens": 100, "messages": chat("hang"), "stream": True, "session_id": "left"}
    with server.blocking_client({"x-api-key": TOKEN}) as raw:
        with raw.stream("POST", "agent/v1/messages", json=body) as reply:
            assert next(line for line in reply.iter_lines() if "text_delta" in line)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            turns = raw.get("agent/v1/sessions/left/turns").json()["turns"]
            if turns and turns[-1]["state"] == "cancelled":
                return
            time.sleep(0.1)
    raise AssertionError("the turn runs on")


# ---------------------------------------------------------------------------------------------------- files


def test_documents_and_pictures_are_taken(client: anthropic.Anthropic, server: AgentServer) -> None:
    with server.blocking_client({"x-api-key": TOKEN}) as raw:
        form = {"purpose": "user_data"}
        picture = raw.post("agent/v1/files", files={"file": ("a.png", b"png")}, data=form).json()["id"]
        table = raw.post("agent/v1/files", files={"file": ("t.csv", b"a,b\n1,2\n")}, data=form).json()["id"]
    content = [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PNG}},
        {"type": "document", "source": {"type": "file", "file_id": table}},
        {"type": "image", "source": {"type": "file", "file_id": picture}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "text", "text": "hi"},
    ]
    assert text(asks(client, content, extra_body={"session_id": "given"})) == "Hello."
    stored = [item["message"] for item in items(server, "given")]
    asked = next(message for message in stored if message["role"] == "user" and not message.get("hidden"))
    assert [part["type"] for part in asked["content"]].count("media") == 2
    assert "words" in asked["content"][0]["text"]
    told = next(message for message in stored if message.get("hidden"))
    assert "document.pdf" in told["content"]
    assert "t.csv" in told["content"]


def test_urls_are_fetched_by_the_server(client: anthropic.Anthropic, server: AgentServer) -> None:
    def answer(path: str, body: bytes) -> Answer:
        kind, content = ("image/png", b"png") if path == "/a.png" else ("text/plain", b"words from there")
        return 200, {"Content-Type": kind}, content

    with http_server(answer, port=PICTURES) as there:
        content = [
            {"type": "image", "source": {"type": "url", "url": f"{there}/a.png"}},
            {"type": "document", "source": {"type": "url", "url": f"{there}/a.txt"}},
        ]
        assert text(asks(client, content, extra_body={"session_id": "fetched"})) == "Hello."
    asked = items(server, "fetched")[0]["message"]["content"]
    assert [part["type"] for part in asked] == ["media", "text"]
    assert "words from there" in asked[1]["text"]


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ({"type": "url", "url": f"http://127.0.0.1:{NOWHERE}/a.png"}, 400),
        ({"type": "url", "url": "http://127.0.0.1/a.png"}, 403),
        ({"type": "url", "url": "file:///etc/passwd"}, 400),
        ({"type": "file", "file_id": "file-none"}, 404),
        ({"type": "base64", "media_type": "image/svg+xml", "data": PNG}, 400),
    ],
)
def test_sources_that_can_not_be_had_are_refused(client: anthropic.Anthropic, source: Any, status: int) -> None:
    with pytest.raises(anthropic.APIStatusError) as refused:
        asks(client, [{"type": "image", "source": source}])
    assert refused.value.status_code == status


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        ({"model": "no-such-model"}, anthropic.NotFoundError, "not_found_error"),
        ({"max_tokens": 0}, anthropic.BadRequestError, "invalid_request_error"),
        ({"extra_body": {"agent_permission": "ask"}, "tools": [CODE]}, anthropic.BadRequestError, "stream: true"),
        ({"tools": [{"name": "x"}]}, anthropic.BadRequestError, "input_schema"),
        ({"messages": chat("hi", "The answer is (")}, anthropic.BadRequestError, "a message of the assistant"),
        ({"messages": chat("break")}, anthropic.APIStatusError, "overloaded_error"),
    ],
)
def test_errors_are_those_of_anthropics_client(client: anthropic.Anthropic, more: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words) as refused:
        asks(client, "hi", **more)
    body: Any = refused.value.body
    assert body["type"] == "error"
    assert body["request_id"] == refused.value.request_id == body["error"]["request_id"]


def test_who_is_not_known_is_told_so(server: AgentServer) -> None:
    for options in ({"api_key": "wrong"}, {"api_key": None, "auth_token": "wrong"}):
        with client_of(server, **options) as client, pytest.raises(anthropic.AuthenticationError) as refused:
            asks(client, "hi")
        assert "authentication_error" in str(refused.value)
        with client_of(server, **options) as client, pytest.raises(anthropic.AuthenticationError):
            client.messages.count_tokens(model="default", messages=chat("hi"))


def test_a_failure_in_the_middle_of_a_stream_is_an_error_of_the_client(client: anthropic.Anthropic) -> None:
    words: list[str] = []
    with (
        pytest.raises(anthropic.APIStatusError, match="The model is broken") as failed,
        client.messages.stream(model="default", max_tokens=10, messages=chat("break late")) as stream,
    ):
        words += stream.text_stream
    body: Any = failed.value.body
    assert (words, body["error"]["type"]) == (["It begins"], "overloaded_error")


def test_a_session_that_is_busy_is_a_conflict(client: anthropic.Anthropic, server: AgentServer) -> None:
    with client.messages.stream(
        model="default", max_tokens=10, messages=chat("hang"), extra_body={"session_id": "busy"}
    ) as stream:
        assert next(iter(stream.text_stream)) == "It begins"
        with pytest.raises(anthropic.ConflictError):
            asks(client, "hi", extra_body={"session_id": "busy"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"model": "default", "max_tokens": 1e99, "messages": [{"role": "user", "content": "hi"}]}',
        b'{"model": "default", "max_tokens": 9, "messages": [{"role": "user", "content": ' + b"[" * 10_000,
        b'{"model": "default", "max_tokens": 9, "messages": [{"role": "tool", "content": "hi"}]}',
        b'{"model": "default", "max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "audio"}]}]}',
        b'{"model": "default", "max_tokens": 9, "messages": [{"role": "user", "content": ""}]}',
        b'{"model": "default", "max_tokens": 9, "messages": [{"role": "user", "content": []}]}',
        b'{"model": "\\ud800", "max_tokens": 9, "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"\xff",
    ],
)
@pytest.mark.parametrize("path", ["messages", "messages/count_tokens"])
def test_no_body_is_the_servers_fault(server: AgentServer, body: bytes, path: str) -> None:
    reply = httpx.post(f"{server.agent_url}{path}", headers={"x-api-key": TOKEN}, content=body)
    assert reply.status_code in {200, 400, 404}, reply.text
    if reply.status_code != 200:
        assert reply.json()["error"]["type"] in {"invalid_request_error", "not_found_error"}
        assert reply.headers["request-id"] == reply.json()["request_id"]


def test_a_body_that_is_too_large_is_said_to_be(server: AgentServer) -> None:
    body = {"model": "default", "max_tokens": 9, "messages": chat("x" * (33 << 20))}
    reply = httpx.post(f"{server.agent_url}messages", headers={"x-api-key": TOKEN}, json=body)
    assert (reply.status_code, reply.json()["error"]["type"]) == (413, "request_too_large")


# ---------------------------------------------------------------------------------------------------- tokens


def test_tokens_are_estimated_and_said_to_be(client: anthropic.Anthropic) -> None:
    short = client.messages.count_tokens(model="default", messages=chat("hi"))
    long = client.messages.count_tokens(model="agent/default", system="x" * 300, tools=[WEATHER], messages=chat("hi"))
    assert 0 < short.input_tokens < 100 < long.input_tokens
    assert short.model_extra == {"estimated": True}
    assert client.beta.messages.count_tokens(model="default", messages=chat("hi")).input_tokens == short.input_tokens
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(model="no-such-model", messages=chat("hi"))
