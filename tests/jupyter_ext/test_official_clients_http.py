"""Tests OpenAI's and Anthropic's official clients, unchanged: the routes for files, containers, skills and models, and
every dialect with a model of this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import zipfile
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from agent_kernel.core.settings import Settings
from tests.server import TOKEN, AgentServer

SCRIPT = [{"text": "Hello there.", "loop": True}]
TRAITS = {"tools": "agent"}
SKILL = "---\nname: {name}\ndescription: Says hello.\n---\nSay hello.\n"


CLIENTS = contextlib.ExitStack()
"""The clients of the tests of this file."""


@pytest.fixture(scope="module", autouse=True)
def close_clients() -> Iterator[None]:
    with CLIENTS:
        yield


def openai_client(server: AgentServer, **options: Any) -> Any:
    given: Any = {"base_url": server.agent_url, "api_key": TOKEN, "max_retries": 0, **options}
    return CLIENTS.enter_context(openai.OpenAI(**given))


def anthropic_client(server: AgentServer, **options: Any) -> Any:
    given: Any = {"base_url": f"{server.url}agent", "api_key": TOKEN, "max_retries": 0, **options}
    return CLIENTS.enter_context(anthropic.Anthropic(**given))


def package(name: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(f"{name}/SKILL.md", SKILL.format(name=name))
    return packed.getvalue()


def test_openais_client_brings_lists_reads_and_deletes_files(server: AgentServer) -> None:
    files = openai_client(server).files
    brought = [files.create(file=(f"{n}.csv", b"a,b\n1,2\n"), purpose="user_data") for n in range(5)]
    assert [(file.object, file.bytes, file.purpose) for file in brought] == [("file", 8, "user_data")] * 5
    walked = [file.id for file in itertools.islice(files.list(limit=2), 100)]
    assert sorted(walked) == sorted(file.id for file in brought), "pages end"
    assert [file.id for file in files.list(purpose="assistants")] == []
    assert files.retrieve(brought[0].id).filename == "0.csv"
    assert files.content(brought[0].id).read() == b"a,b\n1,2\n"
    deleted = [files.delete(file.id).id for file in itertools.islice(files.list(limit=2), 100)]
    assert sorted(deleted) == sorted(walked), "also who deletes what a page listed gets the next one"
    with pytest.raises(openai.NotFoundError):
        files.retrieve(brought[0].id)


def test_openais_client_waits_for_a_file_and_says_how_long_it_lasts(server: AgentServer) -> None:
    """It waited for ever, because no file had a status; the time was dropped, and any purpose was taken."""
    files = openai_client(server).files
    lasting: Any = {"anchor": "created_at", "seconds": 3_600}
    brought = files.create(file=("a.csv", b"a\n1\n"), purpose="user_data", expires_after=lasting)
    assert files.wait_for_processing(brought.id, poll_interval=0.1, max_wait_seconds=5).status == "processed"
    assert brought.expires_at == brought.created_at + 3_600
    assert files.retrieve(brought.id).expires_at == brought.expires_at
    plain = files.create(file=("b.csv", b"a\n1\n"), purpose="vision")
    assert (plain.status, plain.expires_at) == ("processed", None)
    wrong: Any
    for wrong in ({"purpose": "anything"}, {"purpose": "assistants_output"}):
        with pytest.raises(openai.BadRequestError, match="purpose must be one of"):
            files.create(file=("a.csv", b"a"), **wrong)
    for wrong in ({"anchor": "created_at", "seconds": 5}, {"anchor": "last_active_at", "seconds": 3_600}):
        with pytest.raises(openai.BadRequestError, match="expires_after"):
            files.create(file=("a.csv", b"a"), purpose="user_data", expires_after=wrong)
    for file in files.list():
        files.delete(file.id)


def test_anthropics_client_brings_lists_reads_and_deletes_files(server: AgentServer) -> None:
    files = anthropic_client(server).files
    brought = [files.upload(file=(f"{n}.txt", b"hello", "text/plain")) for n in range(3)]
    assert {(file.type, file.size_bytes, file.mime_type) for file in brought} == {("file", 5, "text/plain")}
    assert sorted(file.id for file in itertools.islice(files.list(limit=2), 100)) == sorted(file.id for file in brought)
    assert files.retrieve_metadata(brought[0].id).created_at.tzinfo is not None
    assert files.download(brought[0].id).read() == b"hello"
    assert {files.delete(file.id).type for file in brought} == {"file_deleted"}
    with pytest.raises(anthropic.NotFoundError):
        files.retrieve_metadata(brought[0].id)


def test_a_container_is_a_session_and_its_files_are_read_by_openais_client(server: AgentServer) -> None:
    client = openai_client(server)
    brought = client.files.create(file=("a.csv", b"a\n1\n"), purpose="user_data")
    content: Any = [{"type": "text", "text": "hi"}, {"type": "file", "file": {"file_id": brought.id}}]
    answer: Any = client.chat.completions.create(
        model="agent/default", messages=[{"role": "user", "content": content}], extra_body={"session_id": "boxed"}
    )
    container = answer.session_id
    [held] = itertools.islice(client.containers.files.list(container), 10)
    assert (held.id, held.container_id, held.path) == (brought.id, "boxed", "a.csv")
    assert client.containers.files.retrieve(brought.id, container_id=container).bytes == 4
    assert client.containers.files.content.retrieve(brought.id, container_id=container).read() == b"a\n1\n"


def test_both_clients_bring_and_list_skills(server: AgentServer) -> None:
    ours, theirs = openai_client(server).skills, anthropic_client(server).skills
    greet = ours.create(files=("greet.zip", package("greet"), "application/zip"))
    assert (greet.name, greet.latest_version) == ("greet", "1")
    wave = theirs.create(files=[("wave/SKILL.md", SKILL.format(name="wave").encode(), "text/markdown")])
    assert wave.type == "skill"
    assert {skill.id for skill in itertools.islice(ours.list(), 10)} == {greet.id, wave.id}
    assert {skill.id for skill in itertools.islice(theirs.list(), 10)} == {greet.id, wave.id}
    ours.versions.create(greet.id, files=("greet.zip", package("greet"), "application/zip"))
    assert [version.version for version in ours.versions.list(greet.id)] == ["2", "1"]
    assert len(list(itertools.islice(theirs.versions.list(greet.id), 10))) == 2
    assert ours.delete(greet.id).deleted
    theirs.delete(wave.id)
    assert [skill.id for skill in itertools.islice(ours.list(), 10)] == []


def test_both_clients_list_and_retrieve_models(server: AgentServer) -> None:
    ours, theirs = openai_client(server).models, anthropic_client(server).models
    names = {model.id for model in ours.list()}
    assert {"scripted", "agent/scripted"} <= names
    assert {model.id for model in itertools.islice(theirs.list(), 100)} == names
    assert ours.retrieve("agent/scripted").id == "agent/scripted"
    assert theirs.retrieve("scripted").type == "model"
    with pytest.raises(openai.NotFoundError):
        ours.retrieve("none such")
    with pytest.raises(anthropic.NotFoundError):
        theirs.retrieve("none such")


def test_the_errors_of_both_clients_are_of_their_kind(server: AgentServer) -> None:
    with pytest.raises((openai.AuthenticationError, openai.PermissionDeniedError)):
        openai_client(server, api_key="wrong").chat.completions.create(
            model="default", messages=[{"role": "user", "content": "x"}]
        )
    with pytest.raises((anthropic.AuthenticationError, anthropic.PermissionDeniedError)):
        anthropic_client(server, api_key="wrong").messages.create(
            model="default", max_tokens=5, messages=[{"role": "user", "content": "x"}]
        )
    with pytest.raises(openai.BadRequestError):
        openai_client(server).chat.completions.create(model="default", messages=[])
    with pytest.raises(anthropic.BadRequestError):
        anthropic_client(server).messages.create(model="default", max_tokens=5, messages=[])


# ------------------------------------------------------------------------------------- with a model of this machine


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentServer]:
    traits = {"engine": "local", "model": "tiny", "cache_dir": str(Settings.from_env().cache_dir)}
    with AgentServer(tmp_path_factory.mktemp("local"), traits=traits) as server:
        yield asyncio.run(server.start())


WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.mark.model("tiny")
def test_a_model_of_this_machine_answers_in_every_dialect(local: AgentServer) -> None:
    ours, theirs = openai_client(local, timeout=120), anthropic_client(local, timeout=120)
    asked: Any = [{"role": "user", "content": "Say hello."}]
    whole = ours.chat.completions.create(model="default", messages=asked, max_tokens=8, temperature=0)
    assert whole.choices[0].message.content
    assert whole.usage
    assert 0 < whole.usage.completion_tokens <= 8
    assert whole.choices[0].finish_reason in ("stop", "length")
    said = whole.choices[0].message.content
    pieces = ours.chat.completions.create(model="default", messages=asked, max_tokens=8, temperature=0, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == said
    answer = ours.responses.create(model="default", input="Say hello.", max_output_tokens=8, temperature=0)
    assert answer.output_text == said
    events = ours.responses.create(model="default", input="Say hello.", max_output_tokens=8, temperature=0, stream=True)
    assert [*events][-1].response.output_text == said
    greedy: Any = {"model": "default", "messages": asked, "max_tokens": 8, "extra_body": {"temperature": 0}}
    message = theirs.messages.create(**greedy)
    assert [block.text for block in message.content if block.type == "text"] == [said]
    with theirs.messages.stream(**greedy) as parts:
        assert parts.get_final_text() == said
    assert theirs.messages.count_tokens(model="default", messages=asked).input_tokens > 0


@pytest.mark.model("tiny")
def test_a_call_that_a_model_must_make_is_returned_and_answered_in_every_dialect(local: AgentServer) -> None:
    ours, theirs = openai_client(local, timeout=120), anthropic_client(local, timeout=120)
    asked: Any = [{"role": "user", "content": "What is the weather in Ulm?"}]
    tools: Any = [{"type": "function", "function": WEATHER}]
    first = ours.chat.completions.create(
        model="default", messages=asked, tools=tools, tool_choice="required", max_tokens=64, temperature=0
    )
    [call] = first.choices[0].message.tool_calls or []
    assert (first.choices[0].finish_reason, call.type) == ("tool_calls", "function")
    told: Any = {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}
    said: Any = first.choices[0].message.model_dump(exclude_none=True)
    second = ours.chat.completions.create(model="default", messages=[*asked, said, told], tools=tools, max_tokens=16)
    assert second.choices[0].finish_reason in ("stop", "length", "tool_calls")
    begun = ours.responses.create(
        model="default",
        input="What is the weather in Ulm?",
        tools=[{"type": "function", "strict": None, **WEATHER}],
        tool_choice="required",
        max_output_tokens=64,
        temperature=0,
    )
    [wanted] = [item for item in begun.output if item.type == "function_call"]
    goes_on = ours.responses.create(
        model="default",
        previous_response_id=begun.id,
        input=[{"type": "function_call_output", "call_id": wanted.call_id, "output": "Sunny."}],
        max_output_tokens=16,
    )
    assert goes_on.previous_response_id == begun.id
    message = theirs.messages.create(
        model="default",
        messages=asked,
        tools=[{"name": "weather", "description": "Tells it.", "input_schema": WEATHER["parameters"]}],
        tool_choice={"type": "any"},
        max_tokens=64,
    )
    assert message.stop_reason == "tool_use"
    assert [block.name for block in message.content if block.type == "tool_use"] == ["weather"]


@pytest.mark.model("tiny")
def test_what_binds_an_answer_is_done_by_a_model_of_this_machine_or_refused_by_its_name(local: AgentServer) -> None:
    """They were ignored in silence."""
    client = openai_client(local, timeout=120)
    asked: Any = [{"role": "user", "content": "Count: one, two, three. Go on, and write every number three times."}]

    def said(**fields: Any) -> str:
        given: Any = {"model": "default", "messages": asked, "max_tokens": 48, "temperature": 0, **fields}
        return client.chat.completions.create(**given).choices[0].message.content or ""

    plain = said()
    assert said(frequency_penalty=2) != plain
    assert said(presence_penalty=2) != plain
    assert said(extra_body={"guided_choice": ["alpha", "beta"]}) in ("alpha", "beta")
    assert said(extra_body={"guided_regex": "[0-9]{3}"}).isdecimal()
    assert said(extra_body={"structured_outputs": {"regex": "[0-9]{3}"}}).isdecimal()
    assert said(extra_body={"grammar": {"type": "regex", "value": "[0-9]{3}"}}).isdecimal()
    assert said(reasoning_effort="none"), "a model that does not think has nothing to leave out"
    refused: dict[str, Any] = {
        "logit_bias": {"logit_bias": {"7": 5}},
        "top_logprobs": {"logprobs": True, "top_logprobs": 2},
        "reasoning_effort": {"reasoning_effort": "high"},
        "grammar": {"extra_body": {"guided_grammar": "root ::= x"}},
    }
    for name, fields in refused.items():
        with pytest.raises(openai.BadRequestError, match=name):
            said(**fields)
    with pytest.raises(openai.BadRequestError, match="reasoning_effort"):
        client.responses.create(model="default", input="hi", reasoning={"effort": "high"})
