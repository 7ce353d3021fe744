import pytest

from agent_kernel.core.messages import (
    Media,
    Message,
    ToolCall,
    Usage,
    assistant,
    figures_note,
    images_note,
    parse_arguments,
    tool_result,
    user,
    without_image_notes,
)


def test_media_are_named_by_hash_and_never_inlined() -> None:
    image = Media.of("image/png", b"\x89PNG...")
    body = user("look", [image]).to_json()
    assert body["content"][1] == {"type": "media", "mime": "image/png", "hash": image.hash, "size": 7}


def test_openai_arguments_given_as_a_string_become_an_object() -> None:
    body = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}]}
    assert Message.from_json(body).calls == (ToolCall("c", "f", {"a": 1}),)


@pytest.mark.parametrize("raw", ["", "{", "[1]", "null", "plain words"])
def test_arguments_that_are_no_object_are_kept_as_they_were(raw: str) -> None:
    assert parse_arguments(raw) == {"_raw": raw}


def test_a_result_carries_the_name_and_id_of_its_call() -> None:
    call = ToolCall("c1", "python", {"code": "1"})
    result = tool_result(call, "1", "success")
    assert (result.role, result.call_id, result.name, result.status) == ("tool", "c1", "python", "success")


def test_empty_values_are_left_out_of_the_json_form() -> None:
    assert assistant("hi").to_json() == {"role": "assistant", "content": "hi"}


def test_usage_adds_up_and_keeps_the_first_rounds_first_token() -> None:
    total = Usage(10, 2, 5, 0.5, 1.0) + Usage(20, 3, 18, 0.1, 2.0)
    assert total == Usage(30, 5, 23, 0.5, 3.0)


@pytest.mark.parametrize("note", [figures_note(12), images_note(1)])
def test_a_note_about_images_is_removed_where_it_is_a_line(note: str) -> None:
    assert figures_note(0) == images_note(0) == ""
    assert without_image_notes(f"a line\n{note}\nValueError: x") == "a line\nValueError: x"
    assert without_image_notes(f"the text {note} within a line") == f"the text {note} within a line"
