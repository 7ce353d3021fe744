"""Tests that the model sees what a hook returns, and that the new part of it is stored."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_kernel.core.errors import InvalidRequest
from agent_kernel.core.messages import Media, Message, ToolCall, assistant, user
from agent_kernel.turn.input_hook import ShapedInput, apply_hook, check_hook


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


def user_messages(*words: str) -> list[Message]:
    return [user(word) for word in words]


async def case(hook: Any, history: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """Return (what the model sees, what is stored)."""
    result: ShapedInput = await apply_hook(hook, user_messages(*history), user_messages(*new))
    return texts(result.seen), texts(result.to_store)


async def test_what_is_new_is_stored_and_history_is_not() -> None:
    assert await case(lambda history, new: history + new, ["h"], ["n"]) == (["h", "n"], ["n"])


async def test_a_hook_may_be_a_coroutine() -> None:
    async def hook(history: list[Message], new: list[Message]) -> list[Message]:
        return [*history[-1:], *new]

    assert await case(hook, ["h1", "h2"], ["n"]) == (["h2", "n"], ["n"])


async def test_new_messages_that_are_left_out_are_not_stored() -> None:
    assert await case(lambda history, new: history, ["h"], ["n"]) == (["h"], [])


async def test_messages_are_stored_in_the_order_in_which_they_come_back() -> None:
    hook = lambda history, new: [new[1], history[0], new[0]]  # noqa: E731
    assert await case(hook, ["h"], ["n1", "n2"]) == (["n2", "h", "n1"], ["n2", "n1"])


async def test_a_message_that_the_hook_adds_is_new() -> None:
    hook = lambda history, new: [*history, user("extra"), *new]  # noqa: E731
    assert await case(hook, ["h"], ["n"]) == (["h", "extra", "n"], ["extra", "n"])


async def test_copies_are_what_they_are_copies_of() -> None:
    hook = lambda history, new: copy.deepcopy([*history, *new])  # noqa: E731
    assert await case(hook, ["h"], ["n"]) == (["h", "n"], ["n"])


async def test_history_that_is_repeated_is_not_stored_again_and_equal_new_text_is() -> None:
    hook = lambda history, new: [history[0], history[0], new[0]]  # noqa: E731
    assert await case(hook, ["same"], ["same"]) == (["same", "same", "same"], ["same"])


async def test_history_that_is_moved_to_the_new_list_is_still_history() -> None:
    def hook(history: list[Message], new: list[Message]) -> list[Message]:
        new.insert(0, history.pop())
        return new

    assert await case(hook, ["h"], ["n"]) == (["h", "n"], ["n"])


async def test_what_the_hook_puts_into_the_history_is_seen_and_not_stored() -> None:
    def hook(history: list[Message], new: list[Message]) -> list[Message]:
        history[0] = user("summary")
        return history + new

    assert await case(hook, ["h"], ["n"]) == (["summary", "n"], ["n"])


async def test_a_rebuilt_message_beside_the_one_it_copies_is_new() -> None:
    hook = lambda history, new: [history[0], user("history"), *new]  # noqa: E731
    assert await case(hook, ["history"], ["n"]) == (["history", "history", "n"], ["history", "n"])


async def test_new_messages_may_be_repeated() -> None:
    assert await case(lambda history, new: new * 2, [], ["n"]) == (["n", "n"], ["n", "n"])


async def test_the_hook_gets_copies_that_it_may_change() -> None:
    call = assistant("", [ToolCall("c", "python", {"code": "1"})])

    def hook(history: list[Message], new: list[Message]) -> list[Message]:
        history[0].calls[0].arguments["code"] = "2"  # type: ignore[index]  # a hook may write to its copy
        return history + new

    result = await apply_hook(hook, [call], user_messages("n"))
    assert call.calls[0].arguments == {"code": "1"}
    assert (result.seen[0].calls[0].arguments, texts(result.to_store)) == ({"code": "2"}, ["n"])


async def test_one_message_at_two_places_is_two_copies() -> None:
    one = user("again")
    result = await apply_hook(lambda history, new: [new[0]], [one], [one])
    assert texts(result.to_store) == ["again"]


async def test_pictures_are_told_apart_by_their_bytes() -> None:
    first, second = (user("look", [Media.of("image/png", data)]) for data in (b"1", b"2"))
    rebuilt = lambda history, new: [*history, replace(second)]  # noqa: E731
    assert (await apply_hook(rebuilt, [first], [])).to_store == (second,)


@pytest.mark.parametrize("answer", ["text", None, ["text"], (user("x"),), {"role": "user"}])
async def test_anything_but_a_list_of_messages_is_a_mistake(answer: Any) -> None:
    with pytest.raises(InvalidRequest, match="list of messages"):
        await apply_hook(lambda history, new: answer, [], user_messages("n"))


@pytest.mark.parametrize("hook", ["history[-2:]", 3, []])
def test_what_can_not_be_called_is_a_mistake(hook: Any) -> None:
    with pytest.raises(InvalidRequest, match="must be a function"):
        check_hook(hook)


async def test_what_the_hook_raises_is_not_hidden() -> None:
    def hook(history: list[Message], new: list[Message]) -> list[Message]:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await apply_hook(hook, [], user_messages("n"))


words = st.lists(st.sampled_from("abc"), max_size=4)


@given(words, words, st.data())
async def test_whatever_is_taken_from_both_exactly_the_new_is_stored(
    history: list[str], new: list[str], data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, max(0, len(history) + len(new) - 1)), max_size=6))

    def hook(mine: list[Message], fresh: list[Message]) -> list[Message]:
        both = [*mine, *fresh]
        return [both[place] for place in places] if both else []

    result = await apply_hook(hook, user_messages(*history), user_messages(*new))
    both = [*history, *new]
    chosen = [place for place in places if both]
    assert texts(result.seen) == [both[place] for place in chosen]
    assert texts(result.to_store) == [both[place] for place in chosen if place >= len(history)]
