from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel import context
from agent_kernel.context import CHARS_PER_TOKEN, LEFT_OUT, PICTURE_TOKENS, PICTURES, RESERVED_TOKENS, Context
from agent_kernel.messages import Media, Message, ToolCall, assistant, tool_result, user


def turn(number: int, size: int = 300) -> list[Message]:
    call = ToolCall(f"c{number}", "python", {"code": "x" * size})
    return [
        user(f"question {number}"),
        assistant("", [call]),
        tool_result(call, "r" * size, "success"),
        assistant("ok"),
    ]


def history(turns: int) -> list[Message]:
    return [message for number in range(turns) for message in turn(number)]


def test_everything_is_seen_while_it_fits() -> None:
    view = Context(32_768).view(history(3), [user("now")])
    assert view.dropped == 0
    assert len(view.messages) == 1 + 12 + 1


def test_an_unknown_context_length_limits_nothing() -> None:
    assert Context(0).view(history(2_000), [user("now")]).dropped == 0


def test_older_turns_leave_whole_and_the_model_is_told() -> None:
    view = Context(2_000).view(history(40), [user("now")])
    assert view.dropped > 0
    assert view.messages[1].text == f"({view.dropped} older messages of this conversation are not shown.)"
    assert view.messages[2].text.startswith("question")
    assert view.messages[-1].text == "now"


@given(st.integers(0, 60), st.integers(1_100, 6_000))
def test_a_view_never_splits_a_call_from_its_result(turns: int, context_length: int) -> None:
    view = Context(context_length).view(history(turns), [user("now")])
    called = {call.id for message in view.messages for call in message.calls}
    answered = {message.call_id for message in view.messages if message.role == "tool"}
    assert called == answered


@given(st.integers(5, 60))
def test_a_view_fits_its_budget_when_the_turn_itself_does(turns: int) -> None:
    view = Context(3_000).view(history(turns), [user("now")])
    said = sum(len(message.text) + sum(len(str(call.arguments)) for call in message.calls) for message in view.messages)
    assert said <= (3_000 - RESERVED_TOKENS) * CHARS_PER_TOKEN


def test_the_beginning_of_the_prompt_stays_for_several_turns() -> None:
    starts = [Context(4_000).view(history(turns), [user("now")]).dropped for turns in range(30, 50)]
    assert starts == sorted(starts)
    changes = sum(a != b for a, b in pairwise(starts))
    assert 1 <= changes <= 20 / 2


def test_an_answer_that_was_stopped_says_so_to_the_model() -> None:
    view = Context(0).view([user("q"), assistant("half").with_status("interrupted")], [user("now")])
    assert view.messages[2].text == "half\n(stopped here)"


def test_pictures_are_told_of_in_words() -> None:
    call = ToolCall("c", "python", {"code": "plot()"})
    result = tool_result(call, "(no output)", "success", [Media.of("image/png", b"png")])
    view = Context(0).view([user("q"), assistant("", [call]), result], [user("now")])
    assert view.messages[3].text == "(no output)\n[1 image(s) shown to the person]"
    assert view.messages[3].media == ()


def picture(number: int, mime: str = "image/png") -> Media:
    return Media.of(mime, f"picture {number}".encode())


def album(pictures: int) -> list[Message]:
    return [
        message for at in range(pictures) for message in (user(f"What is {at}?", [picture(at)]), assistant("A fox."))
    ]


def shown(context_length: int, messages: list[Message], now: Message) -> list[Media]:
    view = Context(context_length, sees=True).view(messages, [now])
    return [medium for message in view.messages for medium in message.media]


def test_a_model_that_sees_is_shown_pictures_in_their_places() -> None:
    view = Context(32_768, sees=True).view(album(1), [user("And this?", [picture(7)])])
    assert [message.media for message in view.messages] == [(), (picture(0),), (), (picture(7),)]


def test_older_pictures_leave_by_halves_of_what_fits_and_say_so() -> None:
    counts = [len(shown(0, album(number), user("now"))) for number in range(PICTURES * 3)]
    assert counts[: PICTURES + 1] == list(range(PICTURES + 1))
    assert counts[PICTURES + 1] == PICTURES // 2 + 1
    assert max(counts) == PICTURES
    view = Context(0, sees=True).view(album(PICTURES + 1), [user("now")])
    assert view.messages[1].text == f"What is 0?\n{LEFT_OUT}"
    assert view.messages[-2].text == "A fox."


@given(st.integers(0, 60), st.integers(0, 40_000))
def test_pictures_stay_within_their_share_of_the_tokens_and_the_newest_is_there(number: int, length: int) -> None:
    seen = shown(length, album(number), user("now", [picture(99)]))
    assert seen[-1] == picture(99)
    assert len(seen) <= max(1, length // (4 * PICTURE_TOKENS)) or length == 0


def test_the_view_without_a_new_picture_begins_as_before() -> None:
    before = Context(0, sees=True).view(album(20), [user("a")]).messages
    after = Context(0, sees=True).view([*album(20), user("a"), assistant("b")], [user("c")]).messages
    assert after[: len(before)] == before


def test_a_video_counts_as_its_frames() -> None:
    film = user("What happens?", [picture(1, "video/mp4")])
    assert len(shown(0, [*album(PICTURES), film], user("now"))) == PICTURES // 2 + 1


def test_pictures_that_are_too_many_bytes_leave_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "MEDIA_BYTES", 30)
    assert shown(0, album(9), user("now")) == [picture(6), picture(7), picture(8)]


def test_what_no_model_is_shown_is_named() -> None:
    view = Context(0, sees=True).view([user("q", [picture(1, "application/pdf")])], [user("now")])
    assert view.messages[1].text == "q\n[application/pdf, 9 bytes, shown to the person]"


def test_a_model_of_text_is_told_what_was_attached() -> None:
    view = Context(0).view([], [user("What is this?", [picture(1)])])
    assert view.messages[1].text == "What is this?\n[1 image(s) or video(s) attached; this model can not see them]"
