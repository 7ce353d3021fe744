"""Tests merging of stored history with the history in a request. Letters of the cases: S is stored, I comes in, R is
what the model sees.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.messages import Media, Message, Text, ToolCall, assistant, system, tool_result, user
from agent_kernel.sessions import history_merge, message_comparison
from agent_kernel.sessions.history_merge import (
    Splice,
    drop_unpaired,
    first_added,
    mode,
    newest_messages,
    splice,
    splice_append,
    split_exchanges,
    split_instructions,
)


def call(id: str = "c", code: str = "1+1", text: str = "") -> Message:
    return assistant(text, [ToolCall(id, "python", {"code": code})])


def result(id: str = "c", text: str = "2") -> Message:
    return tool_result(ToolCall(id, "python", {}), text, "success")


u1, u2, u2x, u3 = user("u1"), user("u2"), user("u2x"), user("u3")
a1, a2 = assistant("a1"), assistant("a2")
tc1, t1 = call(code="one"), result(text="1")
tc2, t2 = call(code="two"), result(text="2")
D = [u1, tc1, t1, a1, u2, tc2, t2]


def merge(stored: list[Message], incoming: list[Message]) -> list[Message]:
    found = splice(stored, incoming)
    return [*stored[: found.kept], *found.new]


# ------------------------------------------------------------------------------------------- canonical form


def test_parts_of_text_and_white_space_at_the_end_make_no_difference() -> None:
    one = Message("user", (Text("a "), Text("b\n")), name="x", status="success", reasoning="r")
    assert message_comparison.is_same(one, user("a b"))
    assert not message_comparison.is_same(one, user(" a b"))
    assert not message_comparison.is_same(user("x"), assistant("x"))


def test_arguments_compare_as_json_and_calls_by_position() -> None:
    one = assistant("", [ToolCall("c1", "f", {"a": 1, "b": [2.0, {"c": 3}]}), ToolCall("c2", "g", {})])
    other = assistant("", [ToolCall("x", "f", {"b": [2, {"c": 3.0}], "a": 1.0}), ToolCall("y", "g", {})])
    assert message_comparison.is_same(one, other)
    assert not message_comparison.is_same(one, replace(other, calls=other.calls[::-1]))
    assert not message_comparison.is_same(one, assistant("", [ToolCall("c1", "f", {"a": "1", "b": [2, {"c": 3}]})]))


def test_pictures_compare_by_their_bytes_and_their_place() -> None:
    red, blue = (Media.of("image/png", data) for data in (b"red", b"blue"))
    assert message_comparison.is_same(user("look", [red]), user("look", [replace(red, data=None, mime="image/x-png")]))
    assert not message_comparison.is_same(user("look", [red]), user("look", [blue]))
    assert not message_comparison.is_same(user("look", [red, blue]), user("look", [blue, red]))
    assert not message_comparison.is_same(user("look", [red]), user("look"))


def test_a_chain_tells_beginnings_apart() -> None:
    assert message_comparison.hash_chain([u1, a1])[0] == message_comparison.hash_chain([u1, a2])[0]
    assert message_comparison.hash_chain([u1, a1])[1] != message_comparison.hash_chain([u1, a2])[1]
    assert (
        message_comparison.hash_chain([user("ab"), user("c")])[1]
        != message_comparison.hash_chain([user("a"), user("bc")])[1]
    )


def test_what_is_visible_has_no_tools_nothing_hidden_and_no_instructions() -> None:
    said = [system("s"), user("note", hidden=True), u1, tc1, t1, a1, system("later"), u2]
    assert [said[at].text for at in message_comparison.visible_indices(said)] == ["u1", "a1", "later", "u2"]


# ------------------------------------------------------------------------------------------- mode


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [
        ([u1], "append"),
        ([u1, u2], "append"),
        ([call(), result()], "append"),
        ([u1, call(), result()], "append"),
        ([u1, a1, u2], "replay"),
        ([a1, u2], "replay"),
        ([u1, a1], "replay"),
        ([u1, tc1, t1, tc2, t2], "replay"),
        ([u1, a1, call(), result()], "replay"),
    ],
)
def test_a_request_that_carries_an_answer_is_a_replay(incoming: list[Message], expected: str) -> None:
    assert mode(incoming) == expected
    assert mode(split_instructions([system("s"), system("developer"), *incoming])[1]) == expected
    assert (mode(incoming, "append"), mode(incoming, "replay")) == ("append", "replay")


def test_what_a_request_adds_is_its_last_user_message_or_the_calls_it_ends_with() -> None:
    two = assistant("", [ToolCall("a", "f", {}), ToolCall("b", "f", {})])
    assert [first_added(said) for said in ([], [u1], [u1, a1, u2], [u1, a1], [u1, tc1, t1], [result()])] == (
        [0, 0, 2, 2, 1, 0]
    )
    assert first_added([u1, two, result("a"), result("b")]) == 1


# ------------------------------------------------------------------------------------------- replay


def test_case_a_tools_that_ran_here_stay_in_the_history_that_comes_back() -> None:
    assert merge([u1, tc1, t1], [u1, a1, u2]) == [u1, tc1, t1, a1, u2]
    assert splice([u1, tc1, t1, a1], [u1, a1, u2]) == Splice(4, (u2,), 1, 2)


def test_case_b_so_do_several_rounds() -> None:
    assert merge([u1, tc1, t1, tc2, t2], [u1, a1, u2]) == [u1, tc1, t1, tc2, t2, a1, u2]


def test_case_c_an_edited_first_message_begins_anew() -> None:
    assert splice(D, [user("u1x")]) == Splice(0, (user("u1x"),), 1)


def test_case_d_an_edited_later_message_keeps_what_stands_before_it_with_its_tools() -> None:
    assert splice(D, [u1, a1, u2x]) == Splice(4, (u2x,), 1, 2)
    assert merge(D, [u1, a1, u2x]) == [u1, tc1, t1, a1, u2x]


def test_case_e_an_edited_answer_keeps_the_tools_before_it() -> None:
    a1x = assistant("a1x")
    assert merge(D, [u1, a1x, u2]) == [u1, tc1, t1, a1x, u2]
    assert splice(D, [u1, a1x, u2]) == Splice(3, (a1x, u2), 1, 1)


def test_case_g_what_is_stored_beyond_the_request_does_not_come_in() -> None:
    assert merge([u1, a1, u2, a2, u3], [u1, a1, u2]) == [u1, a1, u2]


def test_a_request_asked_again_leaves_its_old_answer_behind() -> None:
    assert splice([u1, a1, u2, tc1, t1, a2], [u1, a1, u2]) == Splice(2, (u2,), 1, 2)


def test_hidden_context_goes_with_the_message_behind_it() -> None:
    note = user("variables", hidden=True)
    stored = [note, u1, a1, note, u2, a2]
    assert splice(stored, [u1, a1, u2x]).kept == 3
    assert splice(stored, [u1, a1, u2, a2, u3]).kept == 6
    assert splice(stored, [user("u1x")]).kept == 0


def test_tool_history_that_the_client_repeats_is_not_doubled() -> None:
    stored = [u1, tc1, t1, tc2, t2, a1]
    theirs = [call("theirs", "one"), result("theirs", "1"), call("other", "two"), result("other", "2")]
    assert splice(stored, [u1, *theirs, a1, u2]) == Splice(6, (u2,), 1, 2)
    assert splice(stored, [u1, *theirs[2:], a1, u2]) == Splice(6, (u2,), 1, 2)


def test_results_of_one_round_may_come_in_another_order() -> None:
    calls = assistant("", [ToolCall("a", "f", {}), ToolCall("b", "g", {})])
    stored = [u1, calls, result("b", "B"), result("a", "A"), a1]
    assert splice(stored, [u1, calls, result("a", "A"), result("b", "B"), a1, u2]).kept == 5
    assert splice(stored, [u1, calls, result("a", "B"), result("b", "A"), a1, u2]).kept == 1


def test_edited_tool_history_is_the_clients_word() -> None:
    other = result(text="edited")
    assert merge([u1, tc1, t1, a1], [u1, tc1, other, a1, u2]) == [u1, tc1, other, a1, u2]


def test_rounds_of_tools_that_ran_at_the_client_are_new() -> None:
    assert splice([u1, tc1, t1], [u1, tc1, t1, tc2, t2]) == Splice(3, (tc2, t2), 2, 1)
    assert splice([u1], [u1, tc1, t1]) == Splice(1, (tc1, t1), 2, 1)


def test_a_round_that_is_asked_again_leaves_what_followed_behind() -> None:
    assert splice([u1, tc1, t1, tc2, t2, a1], [u1, tc1, t1, tc2, result(text="again")]).kept == 3


def test_a_call_that_was_left_without_its_result_is_not_taken_over() -> None:
    assert merge([u1], [u1, call("x"), a1, u2]) == [u1, a1, u2]
    assert merge([u1], [u1, result("x"), a1, u2]) == [u1, a1, u2]
    assert merge([], [u1, call("x", text="Let me see."), a1, u2]) == [u1, assistant("Let me see."), a1, u2]


def test_an_answer_that_came_in_pieces_comes_back_as_one() -> None:
    stored = [u1, call(text="I will compute it.\n"), result(), assistant("It is 2.")]
    assert splice(stored, [u1, assistant("I will compute it.It is 2."), u2]) == Splice(4, (u2,), 1, 2)
    assert splice(stored, [u1, assistant("It is 2."), u2]).kept == 4
    assert splice(stored, [u1, assistant("It is 3."), u2]).kept == 3


def test_a_stopped_answer_is_known_by_the_part_that_its_reader_saw() -> None:
    stored = [u1, assistant("one two three").with_status("interrupted")]
    assert splice(stored, [u1, assistant("one two"), u2]) == Splice(2, (u2,), 1, 2)
    assert splice([u1, assistant("one two three")], [u1, assistant("one two"), u2]).kept == 1
    assert splice(stored, [u1, assistant("two"), u2]).kept == 1


def test_empty_answers_do_not_count() -> None:
    stored = [u1, tc1, t1, assistant(""), u2, a2]
    for said in ([u1, u2, a2, u3], [u1, assistant("\n"), u2, a2, u3]):
        assert splice(stored, split_instructions(said)[1]) == Splice(6, (u3,), 1, 3)
    assert split_instructions([u1, assistant(" "), tc1, t1, user("")])[1] == [u1, tc1, t1]


def test_a_new_picture_stays_and_the_stored_ones_too() -> None:
    old, new = (Media.of("image/png", data) for data in (b"old", b"new"))
    stored = [user("look", [replace(old, data=None)]), a1]
    view = merge(stored, [user("look", [old]), a1, user("and this", [new])])
    assert [message.media for message in view] == [(old,), (), (new,)]
    assert merge(stored, [user("look", [new]), a1, u2])[0].media == (new,)


def test_instructions_are_neither_compared_nor_new() -> None:
    own, said = split_instructions([system("Today is Monday."), system("Be brief."), u1, a1, u2])
    assert [message.text for message in own] == ["Today is Monday.", "Be brief."]
    assert splice([system("Today is Sunday."), u1, a1], said) == Splice(3, (u2,), 1, 2)


# ------------------------------------------------------------------------------------------- append


def test_who_sends_only_what_is_new_keeps_the_history() -> None:
    _, said = split_instructions([system("Be brief."), u2])
    assert splice_append([u1, tc1, t1, a1], said) == Splice(4, (u2,), 1)


def test_results_that_come_alone_answer_the_call_they_name() -> None:
    stored = [u1, tc1, replace(t1, status="interrupted"), assistant("stopped", ()).with_status("interrupted")]
    late = result(text="the new output")
    assert splice_append(stored, [late]) == Splice(1, (tc1, late), 2)


def test_results_of_calls_that_nobody_knows_stay_for_the_store_to_refuse() -> None:
    assert splice_append([u1, a1], [result("unknown")]) == Splice(2, (result("unknown"),), 1)


# ------------------------------------------------------------------------------------------- pieces


def test_what_was_answered_is_told_from_what_was_not() -> None:
    assert split_exchanges([u1, a1, u2, tc1, t1, a2, u3]) == ([[u1, a1], [u2, tc1, t1, a2]], [u3])
    assert split_exchanges([a1, u2]) == ([[a1]], [u2])
    assert split_exchanges([]) == ([], [])


def test_the_newest_messages_never_begin_with_a_result() -> None:
    said = [u1, tc1, t1, a1]
    assert [len(newest_messages(said, limit)) for limit in (0, 1, 2, 3, 9)] == [0, 1, 1, 3, 4]


def test_only_whole_rounds_stay() -> None:
    two = assistant("", [ToolCall("a", "f", {}), ToolCall("b", "f", {})])
    assert drop_unpaired([u1, two, result("a"), u2]) == [u1, u2]
    assert drop_unpaired([result("a"), two, result("a"), result("b"), result("c"), u2]) == [u2]
    assert drop_unpaired([two, result("b"), result("a")]) == [two, result("b"), result("a")]


# ------------------------------------------------------------------------------------------- properties

words = st.sampled_from(["x", "y", "z"])
pictures = st.lists(st.binary(min_size=1, max_size=2).map(lambda data: Media.of("image/png", data)), max_size=1)


@st.composite
def rounds(draw: st.DrawFn) -> list[Message]:
    ids = [f"c{number}" for number in range(draw(st.integers(1, 2)))]
    asked = assistant(draw(st.sampled_from(["", "hm"])), [ToolCall(id, "f", {"n": draw(words)}) for id in ids])
    return [asked, *(result(id, draw(words)) for id in draw(st.permutations(ids)))]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    said: list[Message] = []
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            said.append(user("note", hidden=True))
        said.append(user(draw(words), draw(pictures)))
        for batch in draw(st.lists(rounds(), max_size=2)):
            said += batch
        if draw(st.integers(0, 4)):
            said.append(assistant(draw(words)))
    return said


def known_to_clients(said: list[Message]) -> list[Message]:
    return [said[at] for at in message_comparison.visible_indices(said)]


def whole(said: list[Message]) -> bool:
    return drop_unpaired(said) == said


@given(conversations())
def test_replaying_what_is_visible_changes_nothing(stored: list[Message]) -> None:
    answered = stored[: max((at for at, said in enumerate(stored, 1) if said.role == "assistant"), default=0)]
    if answered and not answered[-1].calls:
        assert splice(answered, known_to_clients(answered)) == Splice(
            len(answered), (), 0, len(known_to_clients(answered))
        )


@given(conversations())
def test_a_replay_with_one_more_message_is_an_append(stored: list[Message]) -> None:
    more = user("more")
    one, other = splice(stored, [*known_to_clients(stored), more]), splice_append(stored, [more])
    assert (one.kept, one.new) == (other.kept, other.new) == (len(stored), (more,))


@given(conversations(), st.data())
def test_clients_that_repeat_some_of_the_tools_change_nothing_either(
    stored: list[Message], data: st.DataObject
) -> None:
    carried: list[Message] = []
    for step in history_merge.visible_steps(stored):
        carried.append(stored[step.at])
        for start, end in step.rounds:
            if data.draw(st.booleans()):
                carried += stored[start:end]
    found = splice(stored, [*carried, user("more")])
    assert (found.kept, found.new) == (len(stored), (user("more"),))


@given(conversations(), conversations())
def test_of_any_two_histories_nothing_dangles_and_nothing_of_the_client_is_lost(
    stored: list[Message], other: list[Message]
) -> None:
    _, incoming = split_instructions([*other, user("now")])
    found = splice(stored, incoming)
    view = [*stored[: found.kept], *found.new]
    assert whole(view)
    assert whole(stored[: found.kept])
    forms = [message_comparison.comparison_form(message) for message in known_to_clients(view)]
    assert forms == [message_comparison.comparison_form(message) for message in known_to_clients(incoming)]


@given(conversations(), st.data())
def test_an_edit_keeps_exactly_what_stands_before_it(stored: list[Message], data: st.DataObject) -> None:
    known = known_to_clients(stored)
    asked = [at for at, message in enumerate(known) if message.role == "user"]
    if not asked:
        return
    edited = data.draw(st.sampled_from(asked))
    found = splice(stored, [*known[:edited], user("edited")])
    place = message_comparison.visible_indices(stored)[edited]
    while place and stored[place - 1].hidden:
        place -= 1
    assert (found.kept, found.new) == (place, (user("edited"),))


@given(st.lists(st.sampled_from([u1, a1, tc1, t1, call("x"), result("y"), user("h", hidden=True)]), max_size=9))
def test_whatever_a_client_sends_what_it_carries_is_whole(incoming: list[Message]) -> None:
    found = splice([u1, tc1, t1, a1], [*incoming, u3])
    assert whole([*[u1, tc1, t1, a1][: found.kept], *found.new])
