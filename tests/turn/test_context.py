from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_kernel.core.messages import Media, Message, ToolCall, assistant, tool_result, user
from agent_kernel.core.token_estimate import CHARS_PER_TOKEN, RESERVED_TOKENS, prompt_budget, total_chars
from agent_kernel.turn import context
from agent_kernel.turn.context import LEFT_OUT, OLD_RESULT, PICTURE_TOKENS, PICTURES, SUMMARY, ContextBuilder, ModelView


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
    view = ContextBuilder(32_768).view(history(3), [user("now")])
    assert view.dropped == 0
    assert len(view.messages) == 1 + 12 + 1


def test_an_unknown_context_length_limits_nothing() -> None:
    assert ContextBuilder(0).view(history(2_000), [user("now")]).dropped == 0


def test_a_model_with_very_few_tokens_has_a_limit_too() -> None:
    view = ContextBuilder(900).view(history(20), [user("now")])
    assert view.dropped > 0
    assert total_chars(view.messages) <= prompt_budget(900)


def test_older_turns_leave_whole_and_the_model_is_told() -> None:
    view = ContextBuilder(2_000).view(history(40), [user("now")])
    assert view.dropped > 0
    assert view.messages[1].text == f"({view.dropped} older messages of this conversation are not shown.)"
    assert view.messages[2].text.startswith("question")
    assert view.messages[-1].text == "now"


@given(st.integers(0, 60), st.integers(1_100, 6_000))
def test_a_view_never_splits_a_call_from_its_result(turns: int, context_length: int) -> None:
    view = ContextBuilder(context_length).view(history(turns), [user("now")])
    called = {call.id for message in view.messages for call in message.calls}
    answered = {message.call_id for message in view.messages if message.role == "tool"}
    assert called == answered


@given(st.integers(5, 60))
def test_a_view_fits_its_budget_when_the_turn_itself_does(turns: int) -> None:
    view = ContextBuilder(3_000).view(history(turns), [user("now")])
    said = sum(len(message.text) + sum(len(str(call.arguments)) for call in message.calls) for message in view.messages)
    assert said <= (3_000 - RESERVED_TOKENS) * CHARS_PER_TOKEN


def test_the_beginning_of_the_prompt_stays_for_several_turns() -> None:
    starts = [ContextBuilder(4_000).view(history(turns), [user("now")]).dropped for turns in range(30, 50)]
    assert starts == sorted(starts)
    changes = sum(a != b for a, b in pairwise(starts))
    assert 1 <= changes <= 20 / 2


SIZES = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 5_000), st.integers(0, 2)), max_size=30)


def conversation(sizes: list[tuple[int, int, int]]) -> list[Message]:
    """Return turns with a question, some rounds of calls with long results, and an answer."""
    said: list[Message] = []
    for number, (asked, result, rounds) in enumerate(sizes):
        said.append(user(f"question {number} " + "q" * asked))
        for at in range(rounds):
            call = ToolCall(f"c{number}-{at}", "python", {"code": "x" * (asked // 2)})
            said += [assistant("", [call]), tool_result(call, f"r{number} " + "r" * result, "success")]
        said.append(assistant(f"answer {number}"))
    return said


@settings(max_examples=40)
@given(SIZES, st.integers(2_000, 12_000), st.sampled_from(["", "They want a plot. " * 20]))
def test_a_view_has_whole_pairs_and_its_budget(sizes: list[tuple[int, int, int]], length: int, summary: str) -> None:
    current = [user("now")]
    view = ContextBuilder(length, summary=summary).view(conversation(sizes), current)
    waiting: list[str] = []
    for message in view.messages:
        if message.role == "tool":
            assert message.call_id == waiting.pop(0)
        else:
            assert waiting == []
            waiting = [call.id for call in message.calls]
    assert waiting == []
    assert total_chars(view.messages) <= prompt_budget(length)
    assert view.messages[-1] == current[0]
    assert [m.role for m in view.messages[: 2 + bool(summary)]] == ["system", *["user"] * (1 + bool(summary))]


@settings(max_examples=40)
@given(SIZES, st.integers(3_000, 12_000))
def test_what_is_shown_is_the_end_of_the_conversation_word_for_word_but_for_long_results(
    sizes: list[tuple[int, int, int]], length: int
) -> None:
    said = conversation(sizes)
    view = ContextBuilder(length).view(said, [user("now")])
    shown = view.messages[1 + bool(view.dropped) : -1]
    assert len(shown) == len(said) - view.dropped
    changed = [(seen, was) for seen, was in zip(shown, said[view.dropped :], strict=True) if seen != was]
    assert len(changed) == view.shortened
    assert all(was.role == "tool" and len(was.text) > OLD_RESULT > len(seen.text) - 100 for seen, was in changed)


def test_results_of_older_turns_are_shortened_before_turns_are_left_out() -> None:
    said = conversation([(10, 5_000, 1)] * 5)
    view = ContextBuilder(8_000).view(said, [user("now")])
    assert (view.dropped, view.shortened) == (0, 3)
    assert "left out" in view.messages[3].text
    assert view.messages[3].text.startswith("r0 rrr")


def test_a_view_goes_on_where_the_last_one_ended_while_nothing_leaves() -> None:
    """Every turn begins with all that the turn before saw: its KV cache is used again."""
    said: list[Message] = []
    before: ModelView | None = None
    same = 0
    for number in range(60):
        now = user(f"question {number}")
        view = ContextBuilder(4_000).view(said, [now])
        if before is not None:
            same += view.messages[: len(before.messages)] == before.messages
        before = view
        said += [now, *turn(number, 400)[1:]]
    assert same >= 40


def test_a_summary_stands_before_the_history_and_is_marked() -> None:
    view = ContextBuilder(0, summary="They want a plot.").view([user("q"), assistant("a")], [user("now")])
    assert view.messages[1] == user(f"{SUMMARY}\nThey want a plot.", hidden=True)
    assert [message.text for message in view.messages[2:]] == ["q", "a", "now"]


def test_a_view_tells_how_much_of_the_budget_all_of_it_would_take() -> None:
    assert ContextBuilder(0).view(history(3), [user("now")]).share == 0.0
    few, many = (ContextBuilder(4_000).view(history(turns), [user("now")]).share for turns in (2, 40))
    assert few < 0.5
    assert many > 1


def test_an_answer_that_was_stopped_says_so_to_the_model() -> None:
    view = ContextBuilder(0).view([user("q"), assistant("half").with_status("interrupted")], [user("now")])
    assert view.messages[2].text == "half\n(stopped here)"


def test_pictures_are_told_of_in_words() -> None:
    call = ToolCall("c", "python", {"code": "plot()"})
    result = tool_result(call, "(no output)", "success", [Media.of("image/png", b"png")])
    view = ContextBuilder(0).view([user("q"), assistant("", [call]), result], [user("now")])
    assert view.messages[3].text == "(no output)\n[1 image(s) shown to the person]"
    assert view.messages[3].media == ()


def picture(number: int, mime: str = "image/png") -> Media:
    return Media.of(mime, f"picture {number}".encode())


def album(pictures: int) -> list[Message]:
    return [
        message for at in range(pictures) for message in (user(f"What is {at}?", [picture(at)]), assistant("A fox."))
    ]


def shown_media(context_length: int, messages: list[Message], now: Message) -> list[Media]:
    view = ContextBuilder(context_length, sees=True).view(messages, [now])
    return [medium for message in view.messages for medium in message.media]


def test_a_model_that_sees_is_shown_pictures_in_their_places() -> None:
    view = ContextBuilder(32_768, sees=True).view(album(1), [user("And this?", [picture(7)])])
    assert [message.media for message in view.messages] == [(), (picture(0),), (), (picture(7),)]


def test_older_pictures_leave_by_halves_of_what_fits_and_say_so() -> None:
    counts = [len(shown_media(0, album(number), user("now"))) for number in range(PICTURES * 3)]
    assert counts[: PICTURES + 1] == list(range(PICTURES + 1))
    assert counts[PICTURES + 1] == PICTURES // 2 + 1
    assert max(counts) == PICTURES
    view = ContextBuilder(0, sees=True).view(album(PICTURES + 1), [user("now")])
    assert view.messages[1].text == f"What is 0?\n{LEFT_OUT}"
    assert view.messages[-2].text == "A fox."


@given(st.integers(0, 60), st.integers(0, 40_000))
def test_pictures_stay_within_their_share_of_the_tokens_and_the_newest_is_there(number: int, length: int) -> None:
    seen = shown_media(length, album(number), user("now", [picture(99)]))
    assert seen[-1] == picture(99)
    assert len(seen) <= max(1, length // (4 * PICTURE_TOKENS)) or length == 0


def test_the_view_without_a_new_picture_begins_as_before() -> None:
    before = ContextBuilder(0, sees=True).view(album(20), [user("a")]).messages
    after = ContextBuilder(0, sees=True).view([*album(20), user("a"), assistant("b")], [user("c")]).messages
    assert after[: len(before)] == before


def test_a_video_counts_as_its_frames() -> None:
    film = user("What happens?", [picture(1, "video/mp4")])
    assert len(shown_media(0, [*album(PICTURES), film], user("now"))) == PICTURES // 2 + 1


def test_pictures_that_are_too_many_bytes_leave_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "MEDIA_BYTES", 30)
    assert shown_media(0, album(9), user("now")) == [picture(6), picture(7), picture(8)]


def test_what_no_model_is_shown_is_named() -> None:
    view = ContextBuilder(0, sees=True).view([user("q", [picture(1, "application/pdf")])], [user("now")])
    assert view.messages[1].text == "q\n[application/pdf, 9 bytes, shown to the person]"


def test_a_model_of_text_is_told_what_was_attached() -> None:
    view = ContextBuilder(0).view([], [user("What is this?", [picture(1)])])
    assert view.messages[1].text == "What is this?\n[1 image(s) or video(s) attached; this model cannot see them]"
