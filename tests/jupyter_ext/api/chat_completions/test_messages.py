"""Tests the messages of chat/completions, their parts, and their conversion."""

import base64
from typing import Any

import pytest

from agent_kernel.core.errors import RequestTooLarge
from agent_kernel.core.messages import Media, Text
from jupyter_ext.api.chat_completions.request import ChatBody
from tests.jupyter_ext.api.chat_completions.bodies import DATA, HI, PNG, one, refusal_of, turn_request


def test_a_conversation_is_taken_over() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
    said = turn_request(
        messages=[
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": "The "}, {"type": "text", "text": "weather?"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]},
        ]
    ).request.messages
    assert [(message.role, message.text) for message in said] == [
        ("system", "Be short."),
        ("user", "The weather?"),
        ("assistant", ""),
        ("tool", "sunny"),
    ]
    assert [(call.id, call.name, dict(call.arguments)) for call in said[2].calls] == [
        ("c1", "weather", {"city": "Ulm"})
    ]
    assert (said[3].call_id, said[3].name, said[3].status) == ("c1", "weather", "success")


def test_nulls_in_a_call_are_fields_that_are_not_there() -> None:
    call = {"id": "c1", "type": None, "function": {"name": "now", "arguments": None}}
    result = {"role": "tool", "tool_call_id": "c1", "content": "noon"}
    said = turn_request(messages=[HI, {"role": "assistant", "tool_calls": [call]}, result]).request.messages
    assert [(call.name, dict(call.arguments)) for call in said[1].calls] == [("now", {})]


def test_instructions_alone_are_what_is_asked() -> None:
    said = turn_request(
        messages=[{"role": "system", "content": "Be short."}, {"role": "developer", "content": "Say hi."}]
    )
    assert [(message.role, message.text) for message in said.request.messages] == [
        ("system", "Be short."),
        ("user", "Say hi."),
    ]


def test_pictures_come_with_their_data_or_as_they_were_fetched() -> None:
    link, fetched = "https://example.org/a.png", Media.of("image/png", b"fetched")
    parts = [{"type": "image_url", "image_url": {"url": url, "detail": "low"}} for url in (DATA, link)]
    body = ChatBody.model_validate({"messages": one({"type": "text", "text": "look"}, *parts)})
    assert body.links == [link]
    assert body.to_turn({link: fetched}).request.messages[0].parts == (
        Text("look"),
        Media.of("image/png", PNG),
        fetched,
    )


def test_a_file_comes_with_its_data() -> None:
    for data in (DATA, base64.b64encode(PNG).decode()):
        given = turn_request(messages=one({"type": "file", "file": {"filename": "a.png", "file_data": data}})).files
        assert [(file.name, file.data) for file in given] == [("a.png", PNG)]


def test_a_message_of_files_alone_is_a_prompt_with_their_names() -> None:
    files = [{"filename": "a.pdf", "file_data": DATA}, {"file_id": "file-7"}]
    asked = turn_request(messages=one(*({"type": "file", "file": file} for file in files)))
    assert [message.text for message in asked.request.messages] == ["a.pdf, file-7"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image_url", "image_url": {}},
        {"type": "file", "file": {}},
        {"type": "file", "file": {"filename": "a"}},
        {"type": "file", "file": {"file_data": "aGk="}},
        {"type": "file", "file": {"file_url": "https://example.org/a"}},
        {"type": "file", "file": {"file_id": "f", "file_data": "aGk="}},
        {"type": "file", "file": {"filename": "a", "file_data": "!"}},
        {"type": "text"},
        {"type": "nonsense"},
        "text",
    ],
)
def test_a_part_that_can_not_be_used_is_refused(part: Any) -> None:
    assert str(refusal_of(messages=one(part))[1]).startswith("messages[0].content[0]")


@pytest.mark.parametrize(
    "url", [DATA.replace("png", "bmp2"), "data:image/png,raw", "data:image/png;base64,!", "data:;base64,"]
)
def test_data_that_is_no_medium_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"medium|data|base64"):
        turn_request(messages=one({"type": "image_url", "image_url": {"url": url}}))


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool"])
def test_media_and_files_come_from_the_user_only(role: str) -> None:
    for part in ({"type": "image_url", "image_url": {"url": DATA}}, {"type": "file", "file": {"file_id": "f"}}):
        assert refusal_of(messages=one(part, role=role, tool_call_id="c1"))[1] == "messages[0]"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "user"}],
        [{"role": "tool", "content": "x"}],
        [{"role": "user", "content": "x", "tool_calls": [{"id": "1", "function": {"name": "f"}}]}],
        [{"role": "function", "name": "f", "content": "x"}],
        [{"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "f", "input": ""}}]}],
        "hi",
        [HI] * 4_001,
    ],
)
def test_messages_that_are_none_are_refused(messages: Any) -> None:
    assert str(refusal_of(messages=messages)[1]).startswith("messages")


CALLS = {"role": "assistant", "tool_calls": [{"id": id, "function": {"name": "f", "arguments": "{}"}} for id in "ab"]}


def result(id: str) -> dict[str, str]:
    return {"role": "tool", "tool_call_id": id, "content": "r"}


@pytest.mark.parametrize(
    "messages", [[HI, result("a")], [HI, CALLS, result("a")], [HI, CALLS, result("a"), result("x")]]
)
def test_results_answer_the_calls_before_them_and_all_of_them(messages: list[Any]) -> None:
    with pytest.raises(ValueError, match="result"):
        turn_request(messages=messages)


def test_results_may_come_alone_where_the_session_has_the_calls() -> None:
    said = turn_request(messages=[result("a"), result("b")], session_id="s1").request.messages
    assert [message.call_id for message in said] == ["a", "b"]
    with pytest.raises(ValueError, match="result"):
        turn_request(messages=[result("a")])


def test_a_round_of_calls_that_a_client_cut_off_does_not_matter_later() -> None:
    assert len(turn_request(messages=[HI, CALLS, result("a"), HI]).request.messages) == 4


def test_what_is_larger_than_a_request_may_be_is_refused_in_words() -> None:
    with pytest.raises(RequestTooLarge, match="characters"):
        turn_request(messages=[{"role": "user", "content": "x" * (9 << 20)}])
    large = "data:image/png;base64," + "A" * (30 << 20)
    with pytest.raises(ValueError, match="MiB"):
        turn_request(messages=one({"type": "image_url", "image_url": {"url": large}}))
    part = {"type": "image_url", "image_url": {"url": DATA}}
    with pytest.raises(ValueError, match="pictures"):
        turn_request(messages=one(*[part] * 101))


def test_few_pictures_are_fetched_for_one_request() -> None:
    parts = [{"type": "image_url", "image_url": {"url": f"https://example.org/{n}"}} for n in range(17)]
    assert refusal_of(messages=one(*parts))[1] == "messages"
