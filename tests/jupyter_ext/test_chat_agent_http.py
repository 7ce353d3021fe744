"""Tools over ``chat/completions``: those of a real server, functions of its client, and both; and the Agents SDK."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessageFunctionToolCall
from pydantic import BaseModel

from tests.jupyter_ext.chat import ask, extra, frames, said
from tests.server import ROOT, TOKEN, AgentServer, Json

PYTHON = {"name": "python", "arguments": {"code": "x = 20\nopen('a.txt', 'w').write('hi')\nprint(x + 1)"}}
ULM = {"name": "weather", "arguments": {"city": "Ulm"}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
CODE: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
AGAIN = {"name": "python", "arguments": {"code": "print(x + 2)"}}
FILM = """
import matplotlib.animation
figure, axes = plt.subplots(figsize=(2, 2))
line, = axes.plot([0, 1], [0, 1])
film = matplotlib.animation.FuncAnimation(figure, lambda at: line.set_ydata([at, 1]), frames=3)
print(1)
6 * 7
"""
BOTH = {"name": "python", "arguments": {"code": "import matplotlib.pyplot as plt" + FILM}}
BONN = {"name": "weather", "arguments": {"city": "Bonn"}}
SCRIPT: list[Json] = [
    {"text": "Let me ask.", "calls": [ULM, BONN], "when": "sdk: weather of both"},
    {"text": "Sun and rain.", "when": "sdk: weather of both", "loop": True},
    *[{"calls": [ULM], "when": f"sdk: weather streamed by {name}"} for name in ("default", "agent/default")],
    {"text": "It is sunny.", "deltas": 2, "when": "sdk: weather streamed", "loop": True},
    *[
        {"text": "Let me see.", "calls": [PYTHON], "when": f"sdk: compute {word}"}
        for word in ("whole", "streamed", "session")
    ],
    {"calls": [AGAIN], "when": "sdk: go on"},
    {"calls": [{"name": "transfer_to_other", "arguments": {}}], "when": "sdk: hand over"},
    {"text": "I am the other.", "when": "sdk: hand over", "loop": True},
    {"text": '{"city": "Ulm", "people": 3}', "deltas": 4, "when": "as JSON", "loop": True},
    *[{"text": "Let me see.", "calls": [PYTHON], "when": f"compute {n}"} for n in range(6)],
    {"text": "It is 21.", "deltas": 2, "when": "compute", "loop": True},
    {"calls": [BOTH], "when": "print and value"},
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
    {"text": "Round.", "calls": [{"name": "python", "arguments": {"code": "1"}}], "when": "call always", "loop": True},
    {"text": "Hello.", "loop": True},
]
PEER_INI = ROOT / "tests/peers/peer.ini"


# ---------------------------------------------------------------------------------------------------- the agent


def test_the_value_the_directory_and_the_frames_of_a_call_are_told(http: httpx.Client) -> None:
    """The value of the last expression was lost where something was printed, the others were never told."""
    found = frames(http, model="agent/default", messages=said("print and value"), max_tool_rounds=9)
    done = next(
        data
        for name, text in found
        if name == "agentic_tool_call_progress" and (data := json.loads(text))["phase"] == "complete"
    )["data"]
    assert (done["stdout"], done["result"]) == ("1\n", "42")
    assert done["working_directory"].startswith("/")
    assert done["video_frame_count"] == len(done["video_frames_base64"]) == 3
    assert all(base64.b64decode(frame).startswith(b"\x89PNG") for frame in done["video_frames_base64"])


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
    told = frames(http, model="agent/default", messages=said("compute 1"), max_tool_rounds=9)
    names = [name for name, _ in told if name]
    assert names == ["agentic_tool_call_progress", "file_produced", "agentic_tool_call_progress"]
    assert told[-1] == ("", "[DONE]")
    last = json.loads(told[-2][1])
    assert last["session_id"]
    extended: Any = {"extra_body": {"max_tool_rounds": 9}}
    with client.chat.completions.stream(model="agent/default", messages=said("compute 2"), **extended) as events:
        seen = [event.chunk for event in events if event.type == "chunk"]
        assert events.get_final_completion().choices[0].message.content == "Let me see.\n\nIt is 21."
    phases = [extra(chunk).get("phase") for chunk in seen if extra(chunk).get("type") == names[0]]
    assert phases == ["calling", "complete"]


def test_every_event_is_a_chunk_of_the_completion_for_a_request_with_only_openais_fields(http: httpx.Client) -> None:
    """The chunk that reported a file had the file's id; OpenAI's client for Go refuses a chunk with another id."""
    told = frames(http, model="agent/default", messages=said("compute 5"))
    chunks = [json.loads(data) for _, data in told[:-1]]
    assert {(chunk["id"], chunk["object"]) for chunk in chunks} == {(chunks[0]["id"], "chat.completion.chunk")}
    names = [name for name, _ in told if name]
    assert names == ["agentic_tool_call_progress", "file_produced", "agentic_tool_call_progress"]
    produced = next(chunk for chunk in chunks if chunk.get("type") == "file_produced")
    assert produced["file"]["id"].startswith("file")
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Let me see.\n\nIt is 21."


def test_after_the_last_round_of_tools_there_is_an_answer(client: openai.OpenAI, http: httpx.Client) -> None:
    told = ask(client, "call always", "agent/default", extra_body={"max_tool_rounds": 2})
    assert (told.choices[0].message.content, told.choices[0].finish_reason) == ("Round.", "stop")
    assert [call["round"] for call in extra(told)["agentic_tool_calls"]] == [0, 1]
    body = {"model": "agent/default", "max_tool_rounds": 1, "messages": said("call always")}
    last = json.loads(frames(http, **body)[-2][1])
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["session_id"]


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
    """Return the message with the calls, followed by their results."""
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
    (call,) = extra(told)["agentic_tool_calls"]
    assert "21" not in call["result_content"]


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
