from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.context import CHARS_PER_TOKEN, RESERVED_TOKENS, Context
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
