"""Tests the conversion of Anthropic's conversations to the messages of a turn."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.events import CallFinished, CallStarted, ContextBuilt, EventNumbering, TextDelta, TurnFinished
from agent_kernel.core.messages import Media, Message, Text, ToolCall
from jupyter_ext.api.anthropic import conversation as messages_conversation
from jupyter_ext.api.anthropic.codec import MessagesCodec
from jupyter_ext.api.anthropic.conversation import AnthropicConversation, Source, conversation, sources
from jupyter_ext.api.anthropic.request import MessagesBody
from jupyter_ext.api.dialects.openai_content import MAX_PICTURES, from_base64
from jupyter_ext.turns.dialect_request import SubmittedFile

PNG = base64.b64encode(b"png").decode()
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
USER = {"role": "user", "content": "hi"}


def body(*messages: Any, **more: Any) -> MessagesBody:
    given = {"model": "default", "max_tokens": 10, "messages": list(messages), **more}
    return MessagesBody.model_validate_json(json.dumps(given), strict=True)


def read(*messages: Any, fetched: Mapping[Source, SubmittedFile] | None = None, **more: Any) -> AnthropicConversation:
    return conversation(body(*messages, **more), fetched or {})


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}


def test_system_and_user_are_two_messages() -> None:
    said = read(USER, system="Be brief.").messages
    assert [(message.role, message.text) for message in said] == [("system", "Be brief."), ("user", "hi")]


def test_a_system_of_blocks_is_one_text_and_a_blank_one_is_none() -> None:
    assert read(USER, system=[text("Be"), text("brief.")]).messages[0].text == "Be\nbrief."
    assert [message.role for message in read(USER, system=" ").messages] == ["user"]


def test_a_system_message_may_stand_in_the_conversation() -> None:
    said = read(USER, model(text("Yes?")), {"role": "system", "content": "Now in French."}, USER).messages
    assert [message.role for message in said] == ["user", "assistant", "system", "user"]


def test_texts_and_pictures_keep_their_order() -> None:
    said = read(user(text("Look:"), PICTURE, text("and say."))).messages[0]
    assert said.parts == (Text("Look:"), Media.of("image/png", b"png"), Text("and say."))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"type": "base64", "media_type": "application/pdf", "data": PNG}, "models do not accept this medium"),
        ({"type": "base64", "media_type": "image/png", "data": "no base64!"}, "not valid base64"),
        ({"type": "base64", "media_type": "image/png", "data": ""}, "empty"),
    ],
)
def test_what_is_no_picture_is_refused_in_words(source: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        read(user({"type": "image", "source": source}))


def test_a_document_of_text_is_read_with_the_message_and_its_end_is_seen() -> None:
    document = {
        "type": "document",
        "title": 'A "b"',
        "source": {"type": "text", "media_type": "text/plain", "data": "x"},
    }
    said = read(user(document, text("Sum up.")))
    assert said.messages[0].text == '<document title="A &quot;b&quot;">\nx\n</document>\nSum up.'
    assert said.files == ()


def test_a_document_of_blocks_is_its_text() -> None:
    document = {"type": "document", "source": {"type": "content", "content": [text("a"), text("b")]}}
    assert "a\nb" in read(user(document)).messages[0].text


def test_a_message_of_a_file_alone_is_a_prompt_with_its_name() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": PNG}
    said = read(user({"type": "document", "title": "Report", "source": source}))
    assert [message.text for message in said.messages] == ["Report.pdf"]


@pytest.mark.parametrize(("title", "name"), [("Report/1", "Report_1.pdf"), ("r.PDF", "r.PDF"), (None, "document.pdf")])
def test_a_document_that_is_no_text_is_a_file_with_a_name_that_tells_what_it_is(title: Any, name: str) -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": PNG}
    said = read(user({"type": "document", "title": title, "source": source, "context": "Of May."}, text("Sum up.")))
    assert said.files == (SubmittedFile(name=name, mime="application/pdf", data=b"png"),)
    assert said.messages[0].text.endswith("Of May.Sum up.")


def test_files_of_the_server_are_named_once_by_their_ids() -> None:
    document = {"type": "document", "source": {"type": "file", "file_id": "file-1"}}
    upload = {"type": "container_upload", "file_id": "file-1"}
    assert read(user(document, upload, text("Read."))).files == (SubmittedFile(id="file-1"),)


def test_what_has_to_be_fetched_is_named_first_each_once() -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://a.org/a.png"}}
    kept = {"type": "image", "source": {"type": "file", "file_id": "f"}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [picture]}
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    asked = body(user(picture, kept, picture), model(use), user(result))
    assert sources(asked) == [Source("url", "https://a.org/a.png"), Source("file", "f")]
    found = dict.fromkeys(sources(asked), SubmittedFile(mime="image/png", data=b"x"))
    said = conversation(asked, found).messages
    assert [len(message.media) for message in said] == [3, 0, 1]


def test_a_fetched_document_is_text_or_a_file() -> None:
    link = {"type": "document", "source": {"type": "url", "url": "https://a.org/a"}}
    source = Source("url", "https://a.org/a")
    words = read(user(link), fetched={source: SubmittedFile(name="a", mime="text/plain", data=b"words")})
    assert "words" in words.messages[0].text
    pdf = read(user(link, text("?")), fetched={source: SubmittedFile(name="a", mime="application/pdf", data=b"%")})
    assert [file.name for file in pdf.files] == ["a.pdf"]


def test_no_more_than_a_few_sources_are_fetched() -> None:
    links = [{"type": "image", "source": {"type": "url", "url": f"https://a.org/{n}"}} for n in range(17)]
    with pytest.raises(InvalidRequest, match="16"):
        sources(body(user(*links)))


USE = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Ulm"}}


def test_calls_and_their_results_are_messages_of_their_own_with_the_name_of_the_tool() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [text("Rain."), PICTURE], "is_error": True}
    said = read(USER, model(text("Let me see."), USE), user(result, text("Well?"))).messages
    assert said[1] == Message("assistant", (Text("Let me see."),), (ToolCall("c1", "weather", {"city": "Ulm"}),))
    assert (said[2].role, said[2].call_id, said[2].name, said[2].status) == ("tool", "c1", "weather", "error")
    assert (said[2].text, len(said[2].media)) == ("Rain.", 1)
    assert (said[3].role, said[3].text) == ("user", "Well?")


def test_a_result_may_say_nothing() -> None:
    said = read(USER, model(USE), user({"type": "tool_result", "tool_use_id": "c1"})).messages
    assert (said[2].text, said[2].status) == ("", "success")


def test_results_may_come_alone() -> None:
    said = read(user({"type": "tool_result", "tool_use_id": "c1", "content": "Rain."})).messages
    assert [(message.role, message.call_id) for message in said] == [("tool", "c1")]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([USER, model(USE), USER], "has no tool_result"),
        ([USER, model(USE)], "add the result of each"),
        ([USER, user({"type": "tool_result", "tool_use_id": "c9", "content": "x"})], "answers no tool_use"),
        ([USER, model(text("The answer is ("))], "end it with a message of the user"),
        ([user(USE)], "a message of the user cannot have a block tool_use"),
        ([USER, model(PICTURE), USER], "a message of the assistant cannot have a block image"),
        ([USER, model(USE), user({"type": "tool_result", "tool_use_id": "c2", "content": "x"})], "has no tool_result"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_words(messages: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        read(*messages)


def test_thinking_is_what_the_model_thought_whoever_signed_it_and_redacted_thinking_says_nothing() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "of another"}
    said = read(USER, model(thought, {"type": "redacted_thinking", "data": "x"}, text("Yes.")), USER).messages
    assert (said[1].reasoning, said[1].text) == ("Hm.", "Yes.")


RAN = [
    text("First. "),
    {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {"code": "1"}},
    {
        "type": "code_execution_tool_result",
        "tool_use_id": "s1",
        "content": {"type": "code_execution_result", "stdout": "1", "stderr": "", "return_code": 0, "content": []},
    },
    text("Then."),
]


def test_what_a_server_ran_is_a_round_of_its_tool_and_left_out_where_the_session_has_it() -> None:
    said = read(USER, model(*RAN), USER)
    call = ToolCall("s1", "python", {"code": "1"})
    assert said.messages[1] == Message("assistant", (Text("First. "),), (call,))
    assert said.messages[2] == Message("tool", (Text("1"),), call_id="s1", name="python", status="success")
    assert [message.text for message in said.messages[3:]] == ["Then.", "hi"]
    assert [message.text for message in said.spoken] == ["hi", "First. Then.", "hi"]
    assert not any(message.calls for message in said.spoken)


def test_calls_of_a_server_and_of_the_client_in_one_answer_are_kept_apart() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "Rain."}
    said = read(USER, model(*RAN[:3], USE), user(result))
    assert [len(message.calls) for message in said.messages] == [0, 1, 0, 1, 0]
    assert [(message.role, message.text) for message in said.spoken[1:]] == [
        ("assistant", ""),
        ("tool", "Rain."),
    ]
    assert said.spoken[1].calls[0].id == "c1"


def test_a_call_of_a_server_whose_result_is_lost_is_left_out() -> None:
    said = read(USER, model(*RAN[:2]), USER)
    assert [(message.text, message.calls) for message in said.messages[1:2]] == [("First. ", ())]


def test_an_answer_that_was_stopped_among_the_servers_tools_goes_on() -> None:
    said = read(USER, model(*RAN[:3])).messages
    assert [message.role for message in said] == ["user", "assistant", "tool", "user"]


REPEATED: list[tuple[str, Any, Any, tuple[str, Any, str]]] = [
    (
        "bash_code_execution",
        {"command": "echo a\nfalse"},
        {"type": "bash_code_execution_result", "stdout": "a\n", "stderr": "b", "return_code": 1, "content": []},
        (
            "shell",
            {"commands": ["echo a", "false"]},
            "a\n[stderr]\nb\n[exit code 1: it ended at the first line that failed]",
        ),
    ),
    (
        "code_execution",
        {"code": "1"},
        {"type": "code_execution_tool_result_error", "error_code": "unavailable"},
        ("python", {"code": "1"}, '{"type": "code_execution_tool_result_error", "error_code": "unavailable"}'),
    ),
    ("mcp", {"a": 1}, [text("Rain."), text("Wind.")], ("mcp", {"a": 1}, "Rain.\nWind.")),
    ("tool_search", {}, "words", ("tool_search", {}, "words")),
]


@pytest.mark.parametrize(("name", "input", "content", "told"), REPEATED)
def test_results_of_servers_are_told_as_text(name: str, input: Any, content: Any, told: tuple[str, Any, str]) -> None:
    use = {"type": "server_tool_use", "id": "s", "name": name, "input": input}
    result = {"type": f"{name}_tool_result", "tool_use_id": "s", "content": content}
    said = read(USER, model(use, result, text(".")), USER).messages
    assert (said[1].calls[0].name, said[1].calls[0].arguments, said[2].text) == told


def test_what_a_search_found_is_read_again_from_what_this_server_sealed_and_of_others_the_titles() -> None:
    found = [{"title": "A", "description": "about", "url": "https://a.org/", "content": "words"}]
    calls = [
        CallStarted("c", "web_search", {"query": "a"}, "server"),
        CallFinished("c", "web_search", "success", json.dumps({"output": found}), 0.1),
    ]
    content = answer(*calls)
    said = read(USER, model(*content, text("A.")), USER).messages
    assert json.loads(said[2].text)["output"] == found
    foreign = [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "EoIB", "page_age": None}]
    content[1]["content"] = foreign
    said = read(USER, model(*content, text("A.")), USER).messages
    assert json.loads(said[2].text)["output"] == [{"title": "t", "url": "u"}]


def answer(*bodies: Any) -> list[Any]:
    """Return the content that our own codec writes for a turn."""
    codec, stamp = MessagesCodec("default", "s", refused=lambda end: {}), EventNumbering("t", "s")
    for one in (*bodies, TurnFinished("committed", "", 1, {}, finish="stop")):
        list(codec.feed(stamp(one)))
    content: list[Any] = json.loads(json.dumps(codec.whole()["content"]))
    return content


@given(st.lists(st.sampled_from(["python", "shell", "web_search", "fetch_page", "text"]), max_size=8))
def test_every_answer_of_ours_can_be_sent_back(steps: list[str]) -> None:
    bodies: list[Any] = []
    for number, step in enumerate(steps):
        if step == "text":
            bodies.append(TextDelta(f"word {number}. "))
            continue
        arguments = {"commands": ["ls"]} if step == "shell" else {"code": "1"}
        bodies += [CallStarted(f"c{number}", step, arguments, "server")]
        bodies += [CallFinished(f"c{number}", step, "success", "1", 0.1), ContextBuilt(1, 0)]
    content = answer(*bodies)
    said = read(USER, *([model(*content)] if content else []), USER)
    assert sum(len(message.calls) for message in said.messages) == sum(step != "text" for step in steps)
    assert sum(message.role == "tool" for message in said.messages) == sum(step != "text" for step in steps)
    assert not any(message.calls or message.role == "tool" for message in said.spoken)
    words = "".join(message.text for message in said.messages if message.role == "assistant")
    assert words == "".join(message.text for message in said.spoken if message.role == "assistant")


def test_arguments_and_results_are_not_deeper_than_a_session_holds() -> None:
    deep: Any = "x"
    for _ in range(101):
        deep = [deep]
    with pytest.raises(ValueError, match="100 levels"):
        body(USER, model({**USE, "input": {"a": deep}}), USER)


def test_more_than_a_session_holds_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="characters"):
        read(user(text("x" * (8 << 20)), text("y")))
    with pytest.raises(InvalidRequest, match="100 pictures"):
        read(user(*[PICTURE] * 101))


def test_data_is_decoded_once_also_where_the_client_repeats_calls_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded: list[str] = []

    def counted(data: str, limit: int) -> bytes:
        decoded.append(data)
        return from_base64(data, limit)

    monkeypatch.setattr(messages_conversation, "from_base64", counted)
    ran = {"type": "server_tool_use", "id": "s1", "name": "bash_code_execution", "input": {"command": "ls"}}
    result = {"type": "bash_code_execution_tool_result", "tool_use_id": "s1", "content": {"stdout": "a"}}
    said = read(user(PICTURE), model(ran, result, text("Seen.")), user(text("And?")))
    assert said.spoken != said.messages
    assert len(decoded) == 1


def test_more_pictures_than_a_request_may_have_are_not_even_looked_for() -> None:
    pictures = [{"type": "image", "source": {"type": "file", "file_id": f"file-{n}"}} for n in range(MAX_PICTURES)]
    assert len(sources(body(user(*pictures)))) == MAX_PICTURES
    more = {"type": "image", "source": {"type": "file", "file_id": "file-more"}}
    with pytest.raises(InvalidRequest, match="at most 100 pictures"):
        sources(body(user(*pictures, more)))
