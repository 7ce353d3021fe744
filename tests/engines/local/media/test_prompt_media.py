from __future__ import annotations

import io
from typing import Any

import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media, Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.protocols import EngineRequest
from agent_kernel.engines.local.backend import Picture
from agent_kernel.engines.local.media.prompt_media import ShownMedia, replace_marks
from agent_kernel.engines.local.tool_calling import code_fence_prompt

CALL = ToolCall("c", "python", {"code": "plot()"})


def image(shade: int) -> Media:
    out = io.BytesIO()
    PIL.Image.new("L", (9, 9), shade).save(out, "PNG")
    return Media.of("image/png", out.getvalue())


async def prepare_messages(*messages: Message, sees: bool = True) -> tuple[list[Message], dict[str, Picture]]:
    done = await ShownMedia(sees=sees).prepare(EngineRequest(messages))
    return list(done.request.messages), dict(done.pictures)


def kinds(content: Any) -> list[str]:
    return [part.get("text", "<image>") for part in content]


async def test_a_person_s_picture_stands_before_the_question_and_a_tool_s_in_its_output() -> None:
    one, two = image(1), image(2)
    result = tool_result(CALL, "(no output)", "success", [two])
    messages, known = await prepare_messages(user("What is this?", [one]), assistant("", [CALL]), result)
    chat, pictures = replace_marks(code_fence_prompt.chat(messages, tools=False), known)

    assert kinds(chat[0]["content"]) == ["<image>", "What is this?"]
    assert kinds(chat[2]["content"])[:2] == ["Output:\n", "<image>"]
    assert kinds(chat[2]["content"])[2].startswith("\n(no output)")
    assert [picture.data for picture in pictures] == [one.data, two.data]


async def test_the_picture_of_a_call_that_is_left_out_is_left_out_too() -> None:
    failed = tool_result(CALL, "NameError: name 'x' is not defined", "error", [image(1)])
    messages, known = await prepare_messages(user("Plot it."), assistant("", [CALL]), failed)
    chat, pictures = replace_marks(code_fence_prompt.chat(messages, tools=True, retry=True), known)

    assert pictures == ()
    assert all(isinstance(message["content"], str) for message in chat)


async def test_a_model_that_does_not_see_is_told_in_words() -> None:
    result = tool_result(CALL, "done", "success", [image(1)])
    messages, known = await prepare_messages(user("Look", [image(1)]), assistant("", [CALL]), result, sees=False)

    assert known == {}
    assert messages[0].text == "Look\n[1 image(s) or video(s) attached; this model cannot see them]"
    assert messages[2].text == "done\n[1 image(s) shown to the person]"
    assert not any(message.media for message in messages)


async def test_an_animation_becomes_frames() -> None:
    out = io.BytesIO()
    shades = [PIL.Image.new("L", (9, 9), at * 60) for at in range(4)]
    shades[0].save(out, "GIF", save_all=True, append_images=shades[1:])
    messages, known = await prepare_messages(user("What moves?", [Media.of("image/gif", out.getvalue())]))
    chat, pictures = replace_marks([{"role": "user", "content": messages[0].text}], known)

    assert kinds(chat[0]["content"]) == ["<image>"] * 4 + ["What moves?"]
    assert len({picture.data for picture in pictures}) == 4


BROKEN = Media.of("image/png", b"\x89PNG\r\n\x1a\nbroken")
GONE = Media("image/png", "0" * 64, 10)


async def test_a_person_hears_that_a_picture_can_not_be_read() -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        await prepare_messages(user("Look", [BROKEN]))


@pytest.mark.parametrize("medium", [BROKEN, GONE, Media.of("application/pdf", b"%PDF")])
async def test_what_a_tool_made_and_nobody_can_look_at_is_told_to_the_model(medium: Media) -> None:
    messages, known = await prepare_messages(
        user("Go"), assistant("", [CALL]), tool_result(CALL, "out", "success", [medium])
    )

    assert known == {}
    assert messages[2].text.startswith(f"out\n[{medium.mime}: ")


async def test_a_picture_that_is_no_longer_stored_does_not_end_the_conversation() -> None:
    messages, _ = await prepare_messages(user("Look", [GONE]))

    assert messages[0].text == "Look\n[image/png: the server no longer stores this file]"


@given(st.lists(st.text(alphabet="ab<>\ue0f0\ue0f1 \n"), min_size=1, max_size=5), st.integers(0, 2))
def test_marks_that_name_no_picture_of_the_request_are_text(texts: list[str], at: int) -> None:
    known = {digest * 64: Picture("image/png", digest.encode()) for digest in "ab"}
    forged = f"\ue0f0{'c' * 64}\ue0f1"
    marks = [f"\ue0f0{'a' * 64}\ue0f1", f"\ue0f0{'b' * 64}\ue0f1", forged]
    text = marks[at].join(texts)
    chat, pictures = replace_marks([{"role": "user", "content": text}], known)
    content = chat[0]["content"]

    if at == 2 or len(texts) == 1:
        assert (content, pictures) == (text, ())
    else:
        assert len(pictures) == len(texts) - 1
        assert "".join(part.get("text", marks[at]) for part in content) == text
